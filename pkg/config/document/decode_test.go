package document

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type level string

type retry struct {
	Node  Node `key:"."`
	On    bool `key:"on" doc:"Enabled."`
	Tries int  `key:"tries" doc:"Attempts." default:"2" min:"1" max:"5"`
}

type headers struct {
	Add []string `key:"add" doc:"Fields." example:"[\"a\"]"`
}

type settings struct {
	Node    Node              `key:"."`
	Name    string            `key:"name,title" doc:"The name." required:"true" example:"\"a\""`
	Level   level             `key:"level" doc:"Log level." enum:"INFO|WARN" default:"INFO"`
	Timeout time.Duration     `key:"connect_timeout" doc:"A timeout." default:"10s" min:"1ms"`
	Pause   *time.Duration    `key:"pause" doc:"A pause."`
	Weight  uint8             `key:"weight" doc:"A weight."`
	Threads int               `key:"threads" doc:"CPUs." enum:"auto=0" allowstring:"true" default:"auto"`
	Size    int64             `key:"size" doc:"A size." unit:"bytes" default:"8KB"`
	Ratio   float64           `key:"ratio" doc:"A ratio." min:"0" max:"1"`
	Secret  string            `key:"private_key" doc:"The key." secret:"true"`
	Tokens  []string          `key:"tokens" doc:"Secrets." secret:"true"`
	Retry   retry             `key:"retry" doc:"Retries."`
	More    *retry            `key:"more" doc:"Optional retries." emptyisabsent:"true"`
	List    []retry           `key:"list" doc:"Many."`
	Labels  map[string]string `key:"labels" doc:"Labels."`
	Extra   any               `key:"extra" doc:"Anything."`
	Raw     Node              `key:"raw" doc:"A switch or its name." accept:"bool|string"`
	Old     string            `key:"log_path" doc:"Old." ignored:"true"`
	Later   Node              `key:"subset" doc:"Later." unsupported:"subset"`
	Colours []string          `key:"colours" doc:"Colours." enum:"red|blue"`
	headers
	Ignored int `key:"-"`
}

type portRange struct {
	From int `key:"from" doc:"From."`
	To   int `key:"to" doc:"To."`
}

func (p *portRange) Validate() error {
	if p.From > p.To {
		return &KeyError{Key: "to", Err: errors.New("is below from")}
	}
	if p.To > 100 {
		return errors.New("is too wide")
	}
	return nil
}

// decode returns the value decoded from a document, the diagnostics, and the root node.
func decode[T any](text string, lenient bool) (T, Diagnostics, Node) {
	var target T
	var r Report
	n := Parse("c.json", []byte(text), Options{Env: func(name string) (string, bool) { return "12", name == "N" }}, &r)
	d := NewDecoder(&r)
	d.Lenient = lenient
	d.Decode(n, &target)
	return target, r.Diagnostics(), n
}

var ignoreNodes = cmp.Options{
	cmp.FilterValues(func(a, b Node) bool { return true }, cmp.Ignore()),
	cmp.AllowUnexported(settings{}, headers{}),
}

func TestDecodeAllTypes(t *testing.T) {
	got, diags, _ := decode[settings](`{
		"NAME": "a", "Level": "warn", "connect_timeout": "1m30s", "pause": "0s", "weight": 255, "threads": "4",
		"size": "2 MiB", "ratio": 0.5, "private_key": "k", "retry": {"on": true}, "more": {}, "list": [{"tries": 5}, {}],
		"labels": {"Case": "Kept"}, "extra": [1, {"x": 1.5}], "raw": "redirect", "subset": {}, "colours": ["RED"], "add": ["x", "y"]
	}`, false)
	if len(diags) > 0 {
		t.Fatalf("want no diagnostics, Decode reports\n%v", diags)
	}
	want := settings{
		Name: "a", Level: "WARN", Timeout: 90 * time.Second, Pause: new(time.Duration), Weight: 255, Threads: 4,
		Size: 2 << 20, Ratio: 0.5, Secret: "k", Retry: retry{On: true, Tries: 2}, More: &retry{Tries: 2},
		List: []retry{{Tries: 5}, {Tries: 2}}, Labels: map[string]string{"Case": "Kept"},
		Extra: []any{int64(1), map[string]any{"x": 1.5}}, Colours: []string{"red"}, headers: headers{Add: []string{"x", "y"}},
	}
	if diff := cmp.Diff(want, got, ignoreNodes); diff != "" {
		t.Errorf("Decode differs (-want +got):\n%s", diff)
	}
	if got.Raw.Text() != "redirect" || got.Node.Get("name").Text() != "a" || got.More.Node.Kind() != Object {
		t.Errorf("captured nodes: %q, %q, %v; want redirect, a, an object", got.Raw.Text(), got.Node.Get("name").Text(), got.More.Node.Kind())
	}
}

func TestDecodeSetsDefaults(t *testing.T) {
	for _, text := range []string{`{"name": "a"}`, `{"name": "a", "more": ""}`, `{"name": "a", "level": null, "retry": null, "threads": null, "size": null, "connect_timeout": null}`} {
		got, diags, _ := decode[settings](text, false)
		want := settings{Name: "a", Level: "INFO", Timeout: 10 * time.Second, Size: 8 << 10, Retry: retry{Tries: 2}}
		if diff := cmp.Diff(want, got, ignoreNodes); diff != "" || len(diags) > 0 {
			t.Errorf("Decode(%s) reports %v and differs (-want +got):\n%s", text, diags, diff)
		}
	}
}

func TestDecodeKeepsFieldsWithoutDefault(t *testing.T) {
	target := portRange{From: 3, To: 7}
	var r Report
	n := Parse("c.json", []byte(`{"to": 9}`), Options{}, &r)
	if !NewDecoder(&r).Decode(n, &target) || target != (portRange{3, 9}) {
		t.Errorf("Decode into {3 7} = %v, %v, want {3 9}", target, r.Diagnostics())
	}
}

func TestOneOf(t *testing.T) {
	type redirect struct {
		Code int `key:"code" doc:"Status." oneof:"301|302|308" default:"301"`
	}
	for text, want := range map[string]string{
		`{}`: ``, `{"code": 301}`: ``, `{"code": 308}`: ``,
		`{"code": 304}`: `c.json:1:10: code: found the number 304, expected 301, 302 or 308`,
		`{"code": "x"}`: `c.json:1:10: code: found the string "x", expected 301, 302 or 308`,
	} {
		_, diags, _ := decode[redirect](text, false)
		if got := diags.Error(); got != want {
			t.Errorf("Decode(%s) reports %q, want %q", text, got, want)
		}
	}
	if got, want := Keys(redirect{})[0].Expected(), "301, 302 or 308"; got != want {
		t.Errorf("Expected() = %q, want %q", got, want)
	}
	var schema struct {
		Properties map[string]struct {
			AnyOf []struct {
				Enum []int64 `json:"enum"`
			} `json:"anyOf"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(Schema("Redirect", redirect{}, nil), &schema); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{301, 302, 308}, schema.Properties["code"].AnyOf[0].Enum); diff != "" {
		t.Errorf("enum of the schema (-want +got):\n%s", diff)
	}
}

type streamSettings struct {
	Items Stream[retry] `key:"items" doc:"A list." required:"true"`
}

func TestStream(t *testing.T) {
	var r Report
	n := Parse("c.json", []byte(`{"items": [{"tries": 4, "on": true}, {}, {"tries": 9}, {"x": 1}, null, 5]}`), Options{}, &r)
	var target streamSettings
	if !NewDecoder(&r).Decode(n, &target) || target.Items.Len() != 6 {
		t.Fatalf("Decode reports %v, Len() = %d; want nothing, 6", r.Diagnostics(), target.Items.Len())
	}
	var got []retry
	for item := range target.Items.All() {
		got = append(got, *item)
	}
	want := []retry{{On: true, Tries: 4}, {Tries: 2}, {}, {Tries: 2}, {Tries: 2}, {}}
	if diff := cmp.Diff(want, got, ignoreNodes); diff != "" {
		t.Errorf("All (-want +got):\n%s", diff)
	}
	problems := `c.json:1:52: items[2].tries: found the number 9, expected an integer from 1 to 5
c.json:1:57: items[3].x: unknown key "x"
c.json:1:66: items[4]: found null, expected an object
c.json:1:72: items[5]: found the number 5, expected an object`
	if diff := cmp.Diff(problems, r.Diagnostics().Error()); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	empty, diags, _ := decode[streamSettings](`{"items": {}}`, false)
	if got, want := diags.Error(), `c.json:1:11: items: found an object, expected a list`; got != want || empty.Items.Len() != 0 {
		t.Errorf("Decode reports %q, Len() = %d; want %q, 0", got, empty.Items.Len(), want)
	}
}

func TestVariablesInNumbers(t *testing.T) {
	got, diags, _ := decode[settings](`{"name": "a", "weight": "${N}", "retry": {"on": "${O:-true}"}, "ratio": "${R:-0.5}"}`, false)
	if len(diags) > 0 || got.Weight != 12 || !got.Retry.On || got.Ratio != 0.5 {
		t.Errorf("Decode = %v %v %v, reports %v; want 12 true 0.5, nothing", got.Weight, got.Retry.On, got.Ratio, diags)
	}
}

func TestDecodeReportsAllErrors(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"unknown key":                    {`{"name": "a", "conect_timeout": "1s"}`, `c.json:1:15: conect_timeout: unknown key "conect_timeout"; did you mean "connect_timeout"?`},
		"unknown key without suggestion": {`{"name": "a", "zzz": 1}`, `c.json:1:15: zzz: unknown key "zzz"`},
		"other separators":               {`{"name": "a", "connectTimeout": "1s"}`, `c.json:1:15: connectTimeout: unknown key "connectTimeout"; did you mean "connect_timeout"?`},
		"missing key":                    {`{"level": "INFO"}`, `c.json:1:1: the key "name" is missing: expected a string like "a"`},
		"null for a required key":        {`{"name": null}`, `c.json:1:10: name: found null, expected a string`},
		"wrong enum value":               {`{"name": "a", "level": "WARNING"}`, `c.json:1:24: level: found the string "WARNING", expected "INFO" or "WARN"; did you mean "WARN"?`},
		"number for a string":            {`{"name": 5}`, `c.json:1:10: name: found the number 5, expected a string`},
		"number for duration":            {`{"name": "a", "connect_timeout": 10}`, `c.json:1:34: connect_timeout: found the number 10, expected a duration like "10s" of at least 1ms`},
		"text for a duration":            {`{"name": "a", "connect_timeout": "soon"}`, `c.json:1:34: connect_timeout: found the string "soon", expected a duration like "10s" of at least 1ms`},
		"negative duration":              {`{"name": "a", "pause": "-1s"}`, `c.json:1:24: pause: found the string "-1s", expected a duration like "10s"`},
		"duration too small":             {`{"name": "a", "connect_timeout": "1us"}`, `c.json:1:34: connect_timeout: found the string "1us", expected a duration like "10s" of at least 1ms`},
		"string for a number":            {`{"name": "a", "weight": "5"}`, `c.json:1:25: weight: found the string "5", expected an integer from 0 to 255`},
		"too large":                      {`{"name": "a", "weight": 256}`, `c.json:1:25: weight: found the number 256, expected an integer from 0 to 255`},
		"fraction":                       {`{"name": "a", "retry": {"tries": 1.5}}`, `c.json:1:34: retry.tries: found the number 1.5, expected an integer from 1 to 5`},
		"above the range":                {`{"name": "a", "list": [{}, {"tries": 6}]}`, `c.json:1:38: list[1].tries: found the number 6, expected an integer from 1 to 5`},
		"neither enum value nor number":  {`{"name": "a", "threads": "many"}`, `c.json:1:26: threads: found the string "many", expected an integer or "auto"`},
		"unknown unit of a size":         {`{"name": "a", "size": "8 TB"}`, `c.json:1:23: size: found the string "8 TB", expected a number of bytes like 65536 or "64KB"`},
		"string for a boolean":           {`{"name": "a", "retry": {"on": "yes"}}`, `c.json:1:31: retry.on: found the string "yes", expected true or false`},
		"list for an object":             {`{"name": "a", "retry": []}`, `c.json:1:24: retry: found a list, expected an object`},
		"object for a list":              {`{"name": "a", "list": {}}`, `c.json:1:23: list: found an object, expected a list`},
		"object for a string":            {`{"name": {}}`, `c.json:1:10: name: found an object, expected a string`},
		"null in a list":                 {`{"name": "a", "colours": [null]}`, `c.json:1:27: colours[0]: found null, expected "red" or "blue"`},
		"wrong enum value in a list":     {`{"name": "a", "colours": ["bleu"]}`, `c.json:1:27: colours[0]: found the string "bleu", expected "red" or "blue"; did you mean "blue"?`},
		"wrong type in a map":            {`{"name": "a", "labels": {"x.y": 1}}`, `c.json:1:33: labels["x.y"]: found the number 1, expected a string`},
		"wrong kind of a Node":           {`{"name": "a", "raw": 1}`, `c.json:1:22: raw: found the number 1, expected a boolean or a string`},
		"no effect":                      {`{"name": "a", "log_path": "x"}`, `c.json:1:27: warning: log_path: log_path is accepted and has no effect`},
		"unsupported":                    {`{"name": "a", "subset": {"x": "y"}}`, `c.json:1:25: subset: subset is not supported yet`},
		"secret":                         {`{"name": "a", "private_key": 123456}`, `c.json:1:30: private_key: found a number, expected a string`},
		"same key, other case":           {`{"name": "a", "Name": "b"}`, `c.json:1:15: Name: duplicate key "Name": it is already defined on line 1`},
		"key and its alias":              {`{"name": "a", "title": "b"}`, `c.json:1:15: title: duplicate key "title": it is already defined on line 1`},
		"not an object":                  {`[]`, `c.json:1:1: found a list, expected an object`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, diags, _ := decode[settings](c.text, false)
			if got := diags.Error(); got != c.want {
				t.Errorf("Decode(%s) reports\n\t%s\nwant\n\t%s", c.text, got, c.want)
			}
		})
	}
}

func TestLenientWarnsAboutUnknownKeys(t *testing.T) {
	_, diags, _ := decode[settings](`{"name": "a", "levle": 1}`, true)
	if diags.Failed() || len(diags.Warnings()) != 1 || diags.Err() != nil {
		t.Errorf("Decode reports %v, want one warning", diags)
	}
}

func TestValidateRunsAfterDecode(t *testing.T) {
	cases := map[string]string{
		`{"from": 1, "to": 2}`:   ``,
		`{"from": 3, "to": 2}`:   `c.json:1:19: to: is below from`,
		`{"from": 3}`:            `c.json:1:1: is below from`,
		`{"from": 3, "to": 200}`: `c.json:1:1: is too wide`,
		`{"from": 3, "to": "x"}`: `c.json:1:19: to: found the string "x", expected an integer`,
	}
	for text, want := range cases {
		_, diags, _ := decode[portRange](text, false)
		if got := diags.Error(); got != want {
			t.Errorf("Decode(%s) reports %q, want %q", text, got, want)
		}
	}
}

func TestDiagnosticsAreSortedAndLimited(t *testing.T) {
	_, diags, _ := decode[settings]("{\"zzz\": 1,\n\"name\": 5,\n\"weight\": \"x\", \"yyy\": 1}", false)
	var lines []int
	for _, d := range diags {
		lines = append(lines, d.Line)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 3}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	text := `{"list": [` + strings.Repeat(`{"x":1},`, 5000) + `], "name": "a"}`
	_, diags, _ = decode[settings](text, false)
	if got := diags[len(diags)-1].Text(); len(diags) != maxDiagnostics+1 || got != "and 4000 more" {
		t.Errorf("%d diagnostics, the last is %q; want %d, and 4000 more", len(diags), got, maxDiagnostics+1)
	}
}

// TestManyWarningsHideNoError verifies that more warnings than a Report keeps neither are an error
// nor drop one.
func TestManyWarningsHideNoError(t *testing.T) {
	var r Report
	for range maxDiagnostics + 5 {
		r.Warnf(Node{}, "a warning")
	}
	diags := r.Diagnostics()
	if got := diags[len(diags)-1].Text(); diags.Failed() || got != "and 5 more" {
		t.Errorf("Failed = %t, the last diagnostic is %q; want false and \"and 5 more\"", diags.Failed(), got)
	}
	r.Errorf(Node{}, "an error")
	if got := r.Diagnostics().Errors(); len(got) != 1 || got[0].Problem != "an error" || r.Errors() != 1 {
		t.Errorf("errors %v, %d counted; want the one that was reported", got, r.Errors())
	}
}

func TestInvalidTagsPanic(t *testing.T) {
	cases := map[string]any{
		"no key tag": struct{ A int }{},
		"two keys": struct {
			A, B int `key:"a"`
		}{},
		"channel": struct {
			A chan int `key:"a"`
		}{},
		"invalid default": struct {
			A int `key:"a" default:"x"`
		}{},
		"invalid min": struct {
			A int `key:"a" min:"x"`
		}{},
		"invalid enum": struct {
			A int `key:"a" enum:"x|y"`
		}{},
		"invalid accept": struct {
			A Node `key:"a" accept:"dog"`
		}{},
		"refers on a number": struct {
			A int `key:"a" refers:"cluster"`
		}{},
	}
	for name, prototype := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Errorf("Keys(%T) returns, want a panic", prototype)
				}
			}()
			Keys(prototype)
		})
	}
}

func TestRedact(t *testing.T) {
	const pem = "-----BEGIN EC PRIVATE KEY-----\\nMHcCAQ\\n-----END EC PRIVATE KEY-----"
	_, _, n := decode[settings](`{
		// a comment with swordfish
		"name": "a<b>", "private_key": "swordfish", "tokens": ["swordfish", "swordfish"], "weight": "${N}",
		"extra": {"anywhere": "`+pem+`", "empty": {}, "list": [1, true, null]}
	}`, false)
	want := `{
  "name": "a<b>",
  "private_key": "[redacted]",
  "tokens": "[redacted]",
  "weight": "${N}",
  "extra": {
    "anywhere": "[redacted]",
    "empty": {},
    "list": [
      1,
      true,
      null
    ]
  }
}
`
	if diff := cmp.Diff(want, string(Redact(n))); diff != "" {
		t.Errorf("Redact differs (-want +got):\n%s", diff)
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"address", "bind_port", "router_config_name", "LB_ROUNDROBIN", "fault", "Http1"}
	cases := map[string]string{
		"adress": "address", "addres": "address", "bindport": "bind_port", "bind_prot": "bind_port",
		"router_name": "", "router_config": "router_config_name", "lb_round_robin": "LB_ROUNDROBIN", "HTTP1": "Http1",
		"faults": "fault", "x": "", "": "", strings.Repeat("a", 100): "",
	}
	for name, want := range cases {
		if got := Suggest(name, known); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestWrapperKey verifies that a list may be the only member of an object; the tag defines its key.
func TestWrapperKey(t *testing.T) {
	type holder struct {
		Items []retry `key:"items" wrapperkey:"all" doc:"A list."`
		Plain []int   `key:"plain" doc:"A list of numbers."`
	}
	for text, want := range map[string]struct {
		items   int
		problem string
	}{
		`{"items": [{}, {}]}`:              {2, ""},
		`{"items": {"all": [{}, {}, {}]}}`: {3, ""},
		`{"items": {}}`:                    {0, ""},
		`{"items": {"al": [{}]}}`:          {0, `unknown key "al"; did you mean "all"?`},
		`{"items": {"all": {}}}`:           {0, "expected a list"},
		`{"plain": {"all": [1]}}`:          {0, "expected a list"},
	} {
		h, diags, _ := decode[holder](text, false)
		report := diags.Error()
		if len(h.Items) != want.items || !strings.Contains(report, want.problem) || want.problem == "" && report != "" {
			t.Errorf("%s: %d elements, %q; want %d, %q", text, len(h.Items), report, want.items, want.problem)
		}
	}
}
