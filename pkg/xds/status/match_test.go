package status

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

func TestNodeMatchers(t *testing.T) {
	node := &corev3.Node{}
	if err := protojson.Unmarshal([]byte(`{"id": "sidecar~a", "metadata": {"n": 2, "yes": true, "nil": null, "in": {"side": "Text"}, "list": ["x", "y"]}}`), node); err != nil {
		t.Fatal(err)
	}
	metadataMatcher := func(path, value string) string {
		var segments []string
		for key := range strings.SplitSeq(path, ".") {
			segments = append(segments, `{"key": "`+key+`"}`)
		}
		return `{"node_metadatas": [{"path": [` + strings.Join(segments, ",") + `], "value": ` + value + `}]}`
	}
	for _, c := range []struct {
		name, matcher string
		want          bool
	}{
		{"empty matcher", `{}`, true},
		{"exact id", `{"node_id": {"exact": "sidecar~a"}}`, true},
		{"other id", `{"node_id": {"exact": "sidecar~b"}}`, false},
		{"id in other case", `{"node_id": {"exact": "SIDECAR~A"}}`, false},
		{"id with ignore_case", `{"node_id": {"exact": "SIDECAR~A", "ignore_case": true}}`, true},
		{"id prefix", `{"node_id": {"prefix": "side"}}`, true},
		{"id suffix", `{"node_id": {"suffix": "~a"}}`, true},
		{"id contains", `{"node_id": {"contains": "car"}}`, true},
		{"id regex", `{"node_id": {"safe_regex": {"regex": "s.*a"}}}`, true},
		{"regex for a part of the id", `{"node_id": {"safe_regex": {"regex": "side"}}}`, false},
		{"suffix, contains and prefix with ignore_case", `{"node_id": {"suffix": "R~A", "ignore_case": true}, "node_metadatas": [` +
			`{"path": [{"key": "in"}, {"key": "side"}], "value": {"string_match": {"contains": "EX", "ignore_case": true}}},` +
			`{"path": [{"key": "in"}, {"key": "side"}], "value": {"string_match": {"prefix": "TE", "ignore_case": true}}}]}`, true},
		{"number", metadataMatcher("n", `{"double_match": {"exact": 2}}`), true},
		{"range that ends at the number", metadataMatcher("n", `{"double_match": {"range": {"start": 1, "end": 2}}}`), false},
		{"range that starts at the number", metadataMatcher("n", `{"double_match": {"range": {"start": 2, "end": 3}}}`), true},
		{"boolean", metadataMatcher("yes", `{"bool_match": true}`), true},
		{"null matcher for a number", metadataMatcher("n", `{"null_match": {}}`), false},
		{"null", metadataMatcher("nil", `{"null_match": {}}`), true},
		{"nested string", metadataMatcher("in.side", `{"string_match": {"prefix": "Te"}}`), true},
		{"string matcher for a number", metadataMatcher("n", `{"string_match": {"prefix": ""}}`), false},
		{"present path", metadataMatcher("in.side", `{"present_match": true}`), true},
		{"absent path", metadataMatcher("in.other.deep", `{"present_match": true}`), false},
		{"list with a match", metadataMatcher("list", `{"list_match": {"one_of": {"string_match": {"exact": "y"}}}}`), true},
		{"list without a match", metadataMatcher("list", `{"list_match": {"one_of": {"string_match": {"exact": "z"}}}}`), false},
		{"or_match", metadataMatcher("n", `{"or_match": {"value_matchers": [{"bool_match": true}, {"double_match": {"exact": 2}}]}}`), true},
		{"id matches, metadata does not", `{"node_id": {"prefix": "s"}, "node_metadatas": [{"path": [{"key": "n"}], "value": {"bool_match": true}}]}`, false},
	} {
		m := &matcherv3.NodeMatcher{}
		if err := protojson.Unmarshal([]byte(c.matcher), m); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got, err := matchesAnyNode([]*matcherv3.NodeMatcher{m}, node); err != nil || got != c.want {
			t.Errorf("%s: matchesAnyNode(%s) = %t, %v, want %t", c.name, c.matcher, got, err, c.want)
		}
	}
	for _, invalid := range []string{`{"node_id": {}}`, `{"node_id": {"safe_regex": {"regex": "("}}}`, `{"node_metadatas": [{}]}`} {
		m := &matcherv3.NodeMatcher{}
		if err := protojson.Unmarshal([]byte(invalid), m); err != nil {
			t.Fatal(err)
		}
		if _, err := matchesAnyNode([]*matcherv3.NodeMatcher{m}, node); err == nil || !strings.HasPrefix(err.Error(), "node_matchers[0].node_") {
			t.Errorf("matchesAnyNode(%s): %v, want an error with the field", invalid, err)
		}
	}
}
