package document

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"
)

// parse reads a document with the environment HOME=/home/weft, EMPTY="" and PORT=9901.
func parse(name, text string) (Node, Diagnostics) {
	env := func(name string) (string, bool) {
		value, set := map[string]string{"HOME": "/home/weft", "EMPTY": "", "PORT": "9901"}[name]
		return value, set
	}
	var r Report
	n := Parse(name, []byte(text), Options{Env: env}, &r)
	return n, r.Diagnostics()
}

// mustParse fails the test on any diagnostic.
func mustParse(t *testing.T, name, text string) Node {
	t.Helper()
	n, diags := parse(name, text)
	if len(diags) > 0 {
		t.Fatalf("want no diagnostics, Parse(%s) reports\n%v", name, diags)
	}
	return n
}

func TestFormatsParseToSameTree(t *testing.T) {
	want := map[string]any{
		"name": "a", "weight": int64(3), "share": 0.25, "on": true, "none": nil,
		"list": []any{int64(1), "zwei", []any{}, map[string]any{}},
		"deep": map[string]any{"a.b": "x y\n\"z\" ä 😀"},
	}
	cases := map[string]string{
		"plain.json": `{"name":"a","weight":3,"share":0.25,"on":true,"none":null,
			"list":[1,"zwei",[],{}],"deep":{"a.b":"x y\n\"z\" ä \ud83d\ude00"}}`,
		"comments.json": `// head
			{"name":"a", /* inline */ "weight":3,"share":25e-2,"on":true,"none":null,
			"list":[1,"zwei",[],{},], // trailing
			"deep":{"\u0061.b":"x y\u000a\"z\" \u00e4 😀",},
			} // end`,
		"block.yaml":  "name: a\nweight: 3\nshare: 0.25\non: true\nnone:\nlist:\n- 1\n- zwei\n- []\n- {}\ndeep:\n  a.b: |-\n    x y\n    \"z\" ä 😀\n",
		"flow.yml":    "{name: 'a', weight: 0x3, share: .25, on: True, none: ~, list: [1, zwei, [], {}], deep: {\"a.b\": \"x y\\n\\\"z\\\" ä 😀\"}}",
		"detected":    `{"name":"a","weight":3,"share":0.25,"on":true,"none":null,"list":[1,"zwei",[],{}],"deep":{"a.b":"x y\n\"z\" ä 😀"}}`,
		"detected2":   "# comment\nname: a\nweight: 3\nshare: 0.25\non: true\nnone: null\nlist: [1, zwei, [], {}]\ndeep: {a.b: \"x y\\n\\\"z\\\" ä 😀\"}\n",
		"merged.yaml": "deep: &d {a.b: \"x y\\n\\\"z\\\" ä 😀\"}\n<<: {name: a, weight: 3, on: true}\nshare: 0.25\nnone: null\nlist: [1, zwei, [], {}]\n",
		"bom.json":    "\ufeff" + `{"name":"a","weight":3,"share":0.25,"on":true,"none":null,"list":[1,"zwei",[],{}],"deep":{"a.b":"x y\n\"z\" ä 😀"}}`,
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			got := mustParse(t, name, text).Value()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Value() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSyntaxErrors(t *testing.T) {
	cases := map[string]struct{ name, text, want string }{
		"empty document":       {"a.json", " // comment\n", `a.json:2:1: the document is empty`},
		"empty yaml":           {"a.yaml", "", `a.yaml:1:1: the document is empty`},
		"missing comma":        {"a.json", "{\"a\": 1\n \"b\": 2}", `a.json:2:2: a comma is missing before this`},
		"extra comma":          {"a.json", `[1,,2]`, `a.json:1:4: unexpected comma: no value precedes it`},
		"missing colon":        {"a.json", `{"a" 1}`, `a.json:1:6: a colon is missing after the key`},
		"missing value":        {"a.json", `{"a": }`, `a.json:1:7: a value is missing after the colon`},
		"unquoted key":         {"a.json", `{a: 1}`, `a.json:1:2: the key a needs double quotes`},
		"unquoted value":       {"a.json", `{"a": debug}`, `a.json:1:7: found debug, expected a value; strings need double quotes`},
		"single quotes":        {"a.json", `{"a": 'x'}`, `a.json:1:7: found '\'', expected a value`},
		"mismatched bracket":   {"a.json", "{\"a\": [1\n}", `a.json:2:1: '}' does not match the '[' of line 1`},
		"open object":          {"a.json", `{"a": 1`, `a.json:1:8: the document ends before the '{' of line 1 is closed`},
		"no value at all":      {"a.json", `{"a":`, `a.json:1:6: the document ends where a value is expected`},
		"ends after key":       {"a.json", `{"a"`, `a.json:1:5: the document ends after a key`},
		"open string":          {"a.json", "{\"a\": \"x\n\"}", `a.json:1:7: the string is not closed on its line`},
		"open string with \\":  {"a.json", `["\n`, `a.json:1:2: the string is not closed`},
		"open comment":         {"a.json", `{} /* x`, `a.json:1:4: the comment is not closed`},
		"trailing text":        {"a.json", `{} {}`, `a.json:1:4: unexpected text after the end of the document`},
		"leading zero":         {"a.json", `[012]`, `a.json:1:2: "012" is not a number`},
		"number with letters":  {"a.json", `[10s]`, `a.json:1:2: "10s" is not a number`},
		"unknown escape":       {"a.json", `["a\d"]`, `a.json:1:4: unknown escape \d: write \\ for a backslash`},
		"unpaired surrogate":   {"a.json", `["\ud83d"]`, `a.json:1:3: unpaired surrogate in a \u escape`},
		"invalid \\u":          {"a.json", `["\u12"]`, `a.json:1:3: \u requires four hexadecimal digits`},
		"tab in a string":      {"a.json", "[\"a\tb\"]", `a.json:1:4: a control character in a string: write \u0009`},
		"not UTF-8":            {"a.json", "[\"a\xff\"]", `a.json:1:4: the byte is not valid UTF-8`},
		"column in characters": {"a.json", `["äöü", x]`, `a.json:1:9: found x, expected a value; strings need double quotes`},
		"duplicate key":        {"a.json", "{\"a\": {\"b\": 1,\n \"b\": 2}}", `a.json:2:2: a.b: duplicate key "b": it is already defined on line 1`},
		"duplicate key in yaml": {"a.yaml", "a:\n  b: 1\n  \"b\": 2\n",
			`a.yaml:3:3: a.b: duplicate key "b": it is already defined on line 2`},
		"unset variable": {"a.json", `{"a": "${NOPE}"}`,
			`a.json:1:7: a: the environment variable NOPE is not set: set it, or add a default with "${NOPE:-…}"`},
		"open variable":        {"a.json", `["${HOME"]`, `a.json:1:2: [0]: "${" has no closing "}": write "$${" for a literal "${"`},
		"invalid variable":     {"a.yaml", `a: "${2,3}"`, `a.yaml:1:4: a: "${2,3}" does not contain a valid environment variable name: write "$${" for a literal "${"`},
		"yaml syntax":          {"a.yaml", "a: [1\nb: 2\n", `a.yaml:1:4: the "[" that begins here is not closed: did not find expected ',' or ']'`},
		"yaml second document": {"a.yaml", "a: 1\n---\nb: 2\n", `a.yaml:2:1: found a second document: a file contains exactly one`},
		"yaml complex key":     {"a.yaml", "? [1]\n: 2\n", `a.yaml:1:3: the key is not a string`},
		"yaml tag":             {"a.yaml", "a: !thing 2\n", `a.yaml:1:4: unknown tag !thing`},
		"yaml infinity":        {"a.yaml", "a: .inf\n", `a.yaml:1:4: ".inf" is not a number`},
		"yaml recursive alias": {"a.yaml", "a: &x [*x]\n", `a.yaml:1:8: the alias *x contains itself`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, diags := parse(c.name, c.text)
			if got := diags.Error(); got != c.want {
				t.Errorf("Parse(%q) reports\n\t%s\nwant\n\t%s", c.text, got, c.want)
			}
		})
	}
}

func TestParseReportsAllErrors(t *testing.T) {
	n, diags := parse("a.json", `{"a": 1 "b": x, c: "${NOPE}", "d": [1,,2], "d": 3}`)
	if len(diags) != 6 {
		t.Errorf("Parse reports %d problems, want 6:\n%v", len(diags), diags)
	}
	if got := n.Get("d").Len(); got != 2 {
		t.Errorf("Len of the list between the mistakes = %d, want 2", got)
	}
}

func TestMaxDepth(t *testing.T) {
	for _, name := range []string{"a.json", "a.yaml"} {
		_, diags := parse(name, strings.Repeat("[", 100_000))
		if !diags.Failed() {
			t.Errorf("Parse(%s) of 100,000 open brackets reports nothing, want an error", name)
		}
	}
}

func TestAliasCopiesAreLimited(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		b.WriteString("a" + strconv.Itoa(i) + ": &a" + strconv.Itoa(i) + " [")
		b.WriteString(strings.Repeat("*a"+strconv.Itoa(i-1)+",", 10) + "]\n")
	}
	_, diags := parse("bomb.yaml", b.String())
	if !diags.Failed() || !strings.Contains(diags.Error(), "aliases expand to more than") {
		t.Errorf("Parse of nested aliases reports %v, want an error about the number of values", diags)
	}
}

func TestVariablesAreExpanded(t *testing.T) {
	cases := map[string]string{
		`${HOME}`:             `/home/weft`,
		`${HOME}/${HOME}.log`: `/home/weft//home/weft.log`,
		`${NOPE:-x}`:          `x`,
		`${NOPE:-}`:           ``,
		`${EMPTY}`:            ``,
		`${EMPTY:-full}`:      `full`,
		`$${HOME}`:            `${HOME}`,
		`a$${b}c${HOME}`:      `a${b}c/home/weft`,
		`$HOME and $1`:        `$HOME and $1`,
		`^/a$`:                `^/a$`,
	}
	for text, want := range cases {
		for _, name := range []string{"a.json", "a.yaml"} {
			n := mustParse(t, name, `{"v": "`+text+`"}`)
			if got := n.Get("v").Text(); got != want {
				t.Errorf("%s: %q is expanded to %q, want %q", name, text, got, want)
			}
		}
	}
}

func TestPathAndPosition(t *testing.T) {
	n := mustParse(t, "dir/a.json", "{\n  \"servers\": [\n    {},\n    {\"mosn.lb\": {\"Ä\": [0, true]}}\n  ]\n}")
	value := n.Get("servers").Value()
	if value == nil {
		t.Fatal("no servers")
	}
	var last Node
	for server := range n.Get("SERVERS").All() {
		last = server
	}
	list := last.Get("mosn.lb").Get("Ä")
	for element := range list.All() {
		last = element
	}
	if got, want := last.Path(), `servers[1]["mosn.lb"]["Ä"][1]`; got != want {
		t.Errorf("Path() = %s, want %s", got, want)
	}
	if got, want := last.Position(), (Position{"dir/a.json", 4, 27}); got != want {
		t.Errorf("Position() = %v, want %v", got, want)
	}
	if got, want := list.KeyPosition(), (Position{"dir/a.json", 4, 18}); got != want {
		t.Errorf("KeyPosition() = %v, want %v", got, want)
	}
}

func TestAbsentNode(t *testing.T) {
	var absent Node
	if got := absent.Key(); got != "" {
		t.Errorf("Key() = %q, want an empty string", got)
	}
	if got := absent.Position(); got != (Position{}) {
		t.Errorf("Position() = %v, want the zero Position", got)
	}
	if got := absent.KeyPosition(); got != (Position{}) {
		t.Errorf("KeyPosition() = %v, want the zero Position", got)
	}
}

// TestKeyPosition verifies that the position of a key is the position of its first character or
// quote, whether or not the document contains the key literally.
func TestKeyPosition(t *testing.T) {
	for _, c := range []struct{ file, text string }{
		{"a.json", `{   "key": 1}`}, {"a.json", `{   "k\u0065y": 1}`}, {"a.json", `{   "\u006bey": 1}`},
		{"a.yaml", `{   key: 1}`}, {"a.yaml", `{   "key": 1}`}, {"a.yaml", `{   'key': 1}`}, {"a.yaml", `{   "k\u0065y": 1}`},
	} {
		n := mustParse(t, c.file, c.text).Get("key")
		if got, want := n.KeyPosition(), (Position{c.file, 1, 5}); got != want {
			t.Errorf("%s: KeyPosition() of %s = %v, want %v", c.file, c.text, got, want)
		}
	}
}

func TestIsDisabled(t *testing.T) {
	cases := map[string]bool{
		`null`: true, `false`: true, `0`: true, `0.0`: true, `""`: true, `"0s"`: true, `{}`: true, `[]`: true,
		`{"enable": false, "x": 1}`: true, `{"status": false, "ca": "x"}`: true, `{"a": {"b": []}, "c": 0}`: true, `[{}]`: true,
		`true`: false, `1`: false, `"x"`: false, `{"a": {"b": [1]}}`: false, `{"enable": true}`: false, `[{"x": "y"}]`: false,
	}
	for text, want := range cases {
		if got := mustParse(t, "a.json", text).IsDisabled(); got != want {
			t.Errorf("IsDisabled(%s) = %v, want %v", text, got, want)
		}
	}
	if !(Node{}).IsDisabled() {
		t.Error("IsDisabled() of an absent node = false, want true")
	}
}

// FuzzParseJSON compares the accepted documents and their values with hujson and encoding/json.
func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a": [1, 2.5e-3, true, null, "x\u00e4\ud83d\ude00"], /* c */ "b": {"c": {},},} // end`,
		`[01]`, `{"a":1,"a":2}`, `["\ud83d"]`, "\"\xff\"", `{a: b}`, `{"a" 1 "b"}`, `[,]`, `"${HOME}"`, `-`, `1.`, `{"a":`, `/`,
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Report
		n := Parse("fuzz.json", data, Options{}, &r)
		if bytes.Contains(data, []byte("${")) || bytes.HasPrefix(data, []byte("\ufeff")) {
			return // hujson does not support these
		}
		standard, err := hujson.Standardize(append(bytes.Clone(data), '\n')) // a trailing line comment needs a newline
		if r.Errors() == 0 && err != nil {
			t.Fatalf("Parse accepts %q, want an error as from hujson: %v", data, err)
		}
		if r.Errors() > 0 {
			if err == nil && !isIntendedRejection(r.Diagnostics()) {
				t.Fatalf("Parse(%q) reports %v, want nothing as from hujson", data, r.Diagnostics())
			}
			return
		}
		var want any
		d := json.NewDecoder(bytes.NewReader(standard))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("encoding/json rejects %q: %v", standard, err)
		}
		if diff := cmp.Diff(numbers(want), n.Value()); diff != "" {
			t.Fatalf("Value() of %q differs (-want +got):\n%s", data, diff)
		}
	})
}

// isIntendedRejection reports whether all diagnostics are about problems that hujson does not
// check.
func isIntendedRejection(diags Diagnostics) bool {
	for _, d := range diags {
		text := d.Error()
		if !strings.Contains(text, "duplicate key") && !strings.Contains(text, "UTF-8") &&
			!strings.Contains(text, "surrogate") && !strings.Contains(text, "levels of nesting") {
			return false
		}
	}
	return true
}

// numbers converts the numbers of encoding/json to those of Value.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return parseNumber(string(v))
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = numbers(v[key])
		}
	}
	return v
}

// FuzzParseYAML verifies that any input gives a tree or a diagnostic, and that the tree can be
// walked.
func FuzzParseYAML(f *testing.F) {
	for _, seed := range []string{
		"a: &x {b: 1}\nc: *x\n<<: *x\n", "- 1\n- [a, b]\n", "a: |\n  x\n  y\n", "? a\n: b\n", "a: !!int x", "a: ${X:-1}", "\t", "%", "a: 'it''s'",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Report
		n := Parse("fuzz.yaml", data, Options{}, &r)
		if n.d == nil && r.Errors() == 0 {
			t.Fatalf("Parse(%q) returns no tree and reports nothing, want one of them", data)
		}
		if n.d == nil {
			return
		}
		walkTree(t, n)
		if r.Errors() == 0 {
			var second Report
			printed := Redact(n)
			m := Parse("fuzz.json", printed, Options{Format: JSON}, &second)
			if second.Errors() > 0 {
				if strings.Contains(string(printed), "${") {
					return
				}
				t.Fatalf("Redact of %q = %q, want valid JSON: %v", data, printed, second.Diagnostics())
			}
			walkTree(t, m)
		}
	})
}

func walkTree(t *testing.T, n Node) {
	t.Helper()
	if p := n.Position(); p.Line < 1 || p.Column < 1 {
		t.Fatalf("Position() = %v, want a line and a column", p)
	}
	if n.Kind() == Number {
		if f, err := strconv.ParseFloat(n.Text(), 64); err != nil && !math.IsInf(f, 0) {
			t.Fatalf("Text() of a number = %q, want a number", n.Text())
		}
	}
	if n.Kind() == String && !utf8.ValidString(n.Text()) {
		t.Fatalf("Text() of a string = %q, want valid UTF-8", n.Text())
	}
	for member := range n.All() {
		walkTree(t, member)
	}
}
