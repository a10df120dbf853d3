package document

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type plugin struct {
	Type   string `key:"type" doc:"Name of the plugin." required:"true" example:"\"x\""`
	Config Node   `key:"config" doc:"Its settings." accept:"object" variant:"plugin"`
}

type outer struct {
	Plugins []plugin        `key:"plugins" doc:"The plugins."`
	ByKey   map[string]Node `key:"by_key" doc:"Settings; the keys are names." variant:"plugin" accept:"object"`
	Inner   *portRange      `key:"inner" doc:"A range; a|b."`
	Port    uint16          `key:"port,portValue" doc:"A port." default:"80" example:"8080"`
	Old     string          `key:"old" doc:"Old." ignored:"no component reads it"`
	Later   bool            `key:"later" doc:"Later." unsupported:"later" example:"true"`
	Level   level           `key:"level" doc:"Log level." enum:"LOW|HIGH" default:"LOW" since:"0.2"`
	Twice   *portRange      `key:"twice" doc:"A second range."`
}

var testVariants = Variants{"plugin": {{Name: "range", Prototype: portRange{}}, {Name: "retry", Prototype: &retry{}}, {Name: "free"}}}

func TestSections(t *testing.T) {
	var got []string
	for _, s := range Sections("", outer{}, testVariants) {
		got = append(got, s.Path)
	}
	want := []string{"", "plugins[]", "plugins[].config (range)", "plugins[].config (retry)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Sections (-want +got):\n%s", diff)
	}
}

func TestMarkdown(t *testing.T) {
	got := Markdown(2, "All", struct {
		Inner outer `key:"o" doc:"O."`
	}{}, nil)
	want := "## All\n\n" +
		"| key | meaning | value | default | example |\n|---|---|---|---|---|\n" +
		"| `o` | O. | object |  |  |\n\n" +
		"## `o`\n\n" +
		"| key | meaning | value | default | example |\n|---|---|---|---|---|\n" +
		"| `plugins` | The plugins. | list: object |  |  |\n" +
		"| `by_key` | Settings; the keys are names. | object, each member: object |  |  |\n" +
		"| `inner` | A range; a\\|b. | object |  |  |\n" +
		"| `port`, `portValue` | A port. | integer from 0 to 65535 | `80` | `8080` |\n" +
		"| `old` | Old. **Accepted, no effect: no component reads it.** | string |  |  |\n" +
		"| `later` | Later. *Not supported yet.* | true or false |  | `true` |\n" +
		"| `level` | Log level. (since 0.2) | \"LOW\" or \"HIGH\" | `LOW` |  |\n" +
		"| `twice` | A second range. | object |  |  |\n\n" +
		"## `o.plugins[]`\n\n" +
		"| key | meaning | value | default | example |\n|---|---|---|---|---|\n" +
		"| `type` | Name of the plugin. **Required.** | string |  | `\"x\"` |\n" +
		"| `config` | Its settings. | object |  |  |\n\n" +
		"## `o.inner`\n\n" +
		"| key | meaning | value | default | example |\n|---|---|---|---|---|\n" +
		"| `from` | From. | integer | `0` |  |\n" +
		"| `to` | To. | integer | `0` |  |\n\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Markdown (-want +got):\n%s", diff)
	}
}

func TestSchema(t *testing.T) {
	var schema struct {
		Schema     string                    `json:"$schema"`
		Title      string                    `json:"title"`
		Properties map[string]map[string]any `json:"properties"`
		Additional bool                      `json:"additionalProperties"`
		Defs       map[string]map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(Schema("All", outer{}, testVariants), &schema); err != nil {
		t.Fatal(err)
	}
	if schema.Schema != schemaID || schema.Title != "All" || schema.Additional {
		t.Errorf("schema, title and additionalProperties = %q, %q, %v; want %q, All, false", schema.Schema, schema.Title, schema.Additional, schemaID)
	}
	port := map[string]any{
		"description": "A port.", "default": float64(80), "examples": []any{float64(8080)},
		"anyOf": []any{
			map[string]any{"type": "integer", "minimum": float64(0), "maximum": float64(65535)},
			map[string]any{"$ref": "#/$defs/variable"},
		},
	}
	for _, name := range []string{"port", "portValue"} {
		if diff := cmp.Diff(port, schema.Properties[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if schema.Properties["old"]["deprecated"] != true {
		t.Errorf("property old = %v, want deprecated", schema.Properties["old"])
	}
	condition := map[string]any{
		"if":   map[string]any{"properties": map[string]any{"type": map[string]any{"const": "range"}}, "required": []any{"type"}},
		"then": map[string]any{"properties": map[string]any{"config": map[string]any{"$ref": "#/$defs/portRange"}}},
	}
	conditions, _ := schema.Defs["plugin"]["allOf"].([]any)
	if len(conditions) != 2 {
		t.Fatalf("plugin has %d conditions, want one for each variant with a prototype", len(conditions))
	}
	if diff := cmp.Diff(any(condition), conditions[0]); diff != "" {
		t.Errorf("the first condition (-want +got):\n%s", diff)
	}
	byKey, _ := schema.Properties["by_key"]["properties"].(map[string]any)
	if len(byKey) != 3 {
		t.Errorf("by_key has the variants %v, want three", byKey)
	}
}

// TestObjectForm verifies that the tables and the schema include the keys of the object form of a
// Node.
func TestObjectForm(t *testing.T) {
	type ranges struct {
		Ranges []Node `key:"ranges" doc:"Ranges." accept:"string|object" object:"range"`
	}
	variants := Variants{"range": {{Prototype: portRange{}}}}
	sections := Sections("", ranges{}, variants)
	if len(sections) != 2 || sections[1].Path != "ranges[]" || sections[1].Type != reflect.TypeFor[portRange]() {
		t.Fatalf("Sections = %v, want the root and ranges[]", sections)
	}
	want := "| key | meaning | value | default | example |\n|---|---|---|---|---|\n" +
		"| `ranges` | Ranges. | list: string or an [object](#a) |  |  |\n"
	if got := sections[0].Table(variants, func(reflect.Type) string { return "#a" }); got != want {
		t.Errorf("Table = %q, want %q", got, want)
	}
	var schema struct {
		Properties map[string]map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(Schema("All", ranges{}, variants), &schema); err != nil {
		t.Fatal(err)
	}
	items := map[string]any{"anyOf": []any{map[string]any{"type": []any{"string"}}, map[string]any{"$ref": "#/$defs/portRange"}}}
	if diff := cmp.Diff(any(items), schema.Properties["ranges"]["items"]); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

func TestTableOfStructWithoutKeys(t *testing.T) {
	const want = "## All\n\nNo keys: write `{}`.\n\n"
	if got := Markdown(2, "All", struct{}{}, nil); got != want {
		t.Errorf("Markdown = %q, want %q", got, want)
	}
}

// BenchmarkParse reads 1.7 MB of nested JSON.
func BenchmarkParse(b *testing.B) {
	text := []byte("[")
	for range 20_000 {
		text = append(text, `{"match": {"prefix": "/service/1/"}, "route": {"cluster_name": "c", "timeout": "30s"}},`...)
	}
	text = append(text, ']')
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var r Report
		if !Parse("b.json", text, Options{}, &r).Exists() {
			b.Fatal(r.Diagnostics())
		}
	}
}
