package document

import (
	"fmt"
	"strings"
	"testing"
)

func TestYAMLSyntaxErrorPositions(t *testing.T) {
	for name, c := range map[string]struct {
		text         string
		line, column int
		problem      string
	}{
		"an item with too little indentation":     {"servers:\n- listeners:\n  - name: a\n    address: b\n  routers:\n  - x: 1\n    y: 2\n\n - z: 3\n  w: 4\n", 9, 2, "did not find expected key"},
		"nested item with too little indentation": {"a:\n  b:\n    - c: 1\n   - d: 2\n", 4, 4, "did not find expected key"},
		"a key with too little indentation":       {"x:\n  - 1\n y: 2\nz: 1\n", 3, 2, "did not find expected key"},
		"a missing brace":                         {"a: 1\nb: {c: 1, d: [2, 3]\ne: 4\nf: 5\n", 2, 4, `the "{" that begins here is not closed`},
		"a missing brace over lines":              {"a: 1\nb: {c: 1,\n  d: 2\ne: 4\nf: 5\n", 2, 4, `the "{" that begins here is not closed`},
		"a missing bracket within braces":         {"a: {x: '}', b: [1, 2}\n", 1, 16, `the "[" that begins here is not closed`},
		"a bracket and a comment":                 {"a: 1 # [\nb: [2\nc: 3\n", 2, 4, `the "[" that begins here is not closed`},
		"an extra bracket":                        {"x: 1\n]\n", 2, 1, "did not find expected key"},
		"a tab":                                   {"a:\n  b: 1\n\tc: 2\nd: 3\n", 3, 1, "tab"},
		"a tab before an item":                    {"a:\n  b:\n\t- 1\n", 3, 1, "cannot start any token"},
		"an invalid character":                    {"x: 1\na: @b\ny: 2\n", 2, 4, "cannot start any token"},
		"a quote that is not closed":              {"a: 1\nb: \"unclosed\nc: 2\n", 2, 4, "unexpected end of stream"},
		"two values":                              {"a: b: c\n", 1, 5, "mapping values are not allowed"},
		"a key with too much indentation":         {"x: 1\n  y: 2\n", 2, 4, "mapping values are not allowed"},
		"a key without a colon":                   {"a: 1\nplain\nb: 2\n", 2, 1, "could not find expected ':'"},
		"an escape":                               {"x: 1\na: \"\\q\"\n", 2, 5, "unknown escape"},
		"an anchor":                               {"x: 1\ny: *nope\n", 2, 4, "unknown anchor 'nope'"},
	} {
		t.Run(name, func(t *testing.T) {
			for shift, prefix := range map[int]string{0: "", 14: strings.Repeat("# a comment {\n", 14)} {
				var r Report
				Parse("a.yaml", []byte(prefix+c.text), Options{}, &r)
				diags := r.Diagnostics()
				if len(diags) != 1 {
					t.Fatalf("diagnostics %v, want exactly one", diags)
				}
				want := fmt.Sprintf("a.yaml:%d:%d: ", c.line+shift, c.column)
				if got := diags[0].Error(); !strings.HasPrefix(got, want) || !strings.Contains(got, c.problem) {
					t.Errorf("with %d lines before it: %s\nwant %s…%s", shift, got, want, c.problem)
				}
			}
		})
	}
}
