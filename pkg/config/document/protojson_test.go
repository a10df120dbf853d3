package document

import (
	"encoding/json"
	"strings"
	"testing"
)

// tokenSettings is a struct in the JSON form of a protobuf message.
type tokenSettings struct {
	LocalKeys sharedSettings            `key:"local_keys" doc:"Keys." required:"true"`
	ByIssuer  map[string]sharedSettings `key:"by_issuer" doc:"Keys by issuer."`
	URL       string                    `key:"http_uri,location" doc:"URL." example:"\"http://a\""`
}

func (*tokenSettings) ProtoJSON() {}

// sharedSettings is a struct that other structs contain, too.
type sharedSettings struct {
	Inline string `key:"inline_string" doc:"Keys as text." secret:"true" example:"\"k\""`
}

type nativeSettings struct {
	Tokens tokenSettings  `key:"tokens" doc:"Tokens."`
	Shared sharedSettings `key:"shared" doc:"Settings."`
}

func TestLowerCamelKeysOfProtoJSON(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"snake case":                 {`{"tokens": {"local_keys": {"inline_string": "k"}}}`, ""},
		"lower camel case":           {`{"tokens": {"localKeys": {"inlineString": "k"}}}`, ""},
		"names in a map are kept":    {`{"tokens": {"localKeys": {}, "byIssuer": {"my_issuer": {"inlineString": "k"}}}}`, ""},
		"both spellings":             {`{"tokens": {"local_keys": {}, "localKeys": {}}}`, `c.json:1:31: tokens.localKeys: duplicate key "localKeys": it is already defined on line 1`},
		"unknown key":                {`{"tokens": {"localKeys": {"inlineStrings": "k"}}}`, `c.json:1:27: tokens.localKeys.inlineStrings: unknown key "inlineStrings"; did you mean "inline_string"?`},
		"missing key":                {`{"tokens": {"httpUri": "u"}}`, `c.json:1:12: tokens: the key "local_keys" is missing: expected an object`},
		"the same struct outside it": {`{"tokens": {"localKeys": {}}, "shared": {"inlineString": "k"}}`, `c.json:1:42: shared.inlineString: unknown key "inlineString"; did you mean "inline_string"?`},
	} {
		t.Run(name, func(t *testing.T) {
			v, diags, root := decode[nativeSettings](c.text, false)
			if got := diags.Error(); got != c.want && (c.want != "" || diags.Failed()) {
				t.Fatalf("Decode(%s) reports\n\t%s\nwant\n\t%s", c.text, got, c.want)
			}
			if c.want == "" && v.Tokens.LocalKeys.Inline != "k" && v.Tokens.ByIssuer["my_issuer"].Inline != "k" {
				t.Errorf("Decode(%s) = %+v, want the text k", c.text, v)
			}
			if text := string(Redact(root)); c.want == "" && strings.Contains(text, `"k"`) {
				t.Errorf("Redact = %s, want no secret", text)
			}
		})
	}
}

// TestSchemaOfProtoJSON verifies that the JSON Schema has both spellings of keys inside a struct in
// the JSON form of a protobuf message, and only the tags' spelling elsewhere.
func TestSchemaOfProtoJSON(t *testing.T) {
	var schema struct {
		Defs map[string]struct {
			Properties map[string]any `json:"properties"`
			Required   []string       `json:"required"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(Schema("settings", nativeSettings{}, nil), &schema); err != nil {
		t.Fatal(err)
	}
	tokens, inside, outside := schema.Defs["tokenSettings"], schema.Defs["sharedSettings"], schema.Defs["sharedSettings_"]
	if tokens.Properties["localKeys"] == nil || tokens.Properties["local_keys"] == nil || len(tokens.Required) > 0 {
		t.Errorf("tokenSettings: %+v, want local_keys and localKeys, of which one is required", tokens)
	}
	if len(inside.Properties) != 2 || len(outside.Properties) != 1 {
		t.Errorf("sharedSettings: properties %v inside and %v outside, want 2 and 1", inside.Properties, outside.Properties)
	}
}
