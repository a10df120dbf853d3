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
	at := func(path, value string) string {
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
		{"nothing is asked for", `{}`, true},
		{"its id", `{"node_id": {"exact": "sidecar~a"}}`, true},
		{"another's id", `{"node_id": {"exact": "sidecar~b"}}`, false},
		{"its id in other letters", `{"node_id": {"exact": "SIDECAR~A"}}`, false},
		{"its id whatever letters", `{"node_id": {"exact": "SIDECAR~A", "ignore_case": true}}`, true},
		{"how its id begins", `{"node_id": {"prefix": "side"}}`, true},
		{"how its id ends", `{"node_id": {"suffix": "~a"}}`, true},
		{"a part of its id", `{"node_id": {"contains": "car"}}`, true},
		{"an expression", `{"node_id": {"safe_regex": {"regex": "s.*a"}}}`, true},
		{"an expression for a part", `{"node_id": {"safe_regex": {"regex": "side"}}}`, false},
		{"a number", at("n", `{"double_match": {"exact": 2}}`), true},
		{"a range up to it", at("n", `{"double_match": {"range": {"start": 1, "end": 2}}}`), false},
		{"a range from it", at("n", `{"double_match": {"range": {"start": 2, "end": 3}}}`), true},
		{"a boolean", at("yes", `{"bool_match": true}`), true},
		{"no null", at("n", `{"null_match": {}}`), false},
		{"null", at("nil", `{"null_match": {}}`), true},
		{"a text within", at("in.side", `{"string_match": {"prefix": "Te"}}`), true},
		{"a text that is a number", at("n", `{"string_match": {"prefix": ""}}`), false},
		{"there", at("in.side", `{"present_match": true}`), true},
		{"not there", at("in.other.deep", `{"present_match": true}`), false},
		{"one of a list", at("list", `{"list_match": {"one_of": {"string_match": {"exact": "y"}}}}`), true},
		{"none of a list", at("list", `{"list_match": {"one_of": {"string_match": {"exact": "z"}}}}`), false},
		{"one of two", at("n", `{"or_match": {"value_matchers": [{"bool_match": true}, {"double_match": {"exact": 2}}]}}`), true},
		{"the id but not the metadata", `{"node_id": {"prefix": "s"}, "node_metadatas": [{"path": [{"key": "n"}], "value": {"bool_match": true}}]}`, false},
	} {
		m := &matcherv3.NodeMatcher{}
		if err := protojson.Unmarshal([]byte(c.matcher), m); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got, err := matchesAnyNode([]*matcherv3.NodeMatcher{m}, node); err != nil || got != c.want {
			t.Errorf("%s: isMeant(%s) = %t, %v, want %t", c.name, c.matcher, got, err, c.want)
		}
	}
	for _, bad := range []string{`{"node_id": {}}`, `{"node_id": {"safe_regex": {"regex": "("}}}`, `{"node_metadatas": [{}]}`} {
		m := &matcherv3.NodeMatcher{}
		if err := protojson.Unmarshal([]byte(bad), m); err != nil {
			t.Fatal(err)
		}
		if _, err := matchesAnyNode([]*matcherv3.NodeMatcher{m}, node); err == nil || !strings.HasPrefix(err.Error(), "node_matchers[0].node_") {
			t.Errorf("isMeant(%s): %v, want the field", bad, err)
		}
	}
}
