package resource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestRuntimeTexts verifies the texts with those that /runtime of Envoy 1.40 printed.
func TestRuntimeTexts(t *testing.T) {
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(`{"a": {"b": 2.5, "c": true}, "big": 1000000, "mid": 123456789, "small": 100000, "ten": 10,
		"neg": -1.5, "x": "5", "text": "\u00e9\"<", "empty": "", "pct": {"numerator": 5, "denominator": "HUNDRED"}, "num": {"numerator": 3}}`), s); err != nil {
		t.Fatal(err)
	}
	l, err := ReadLayer("layer", s)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"a.b": "2.5", "a.c": "true", "big": "1e+06", "mid": "1.23457e+08", "small": "100000", "ten": "10", "neg": "-1.5", "x": "5", "text": "\u00e9\"<", "empty": "",
		"pct": "fields {\n  key: \"denominator\"\n  value {\n    string_value: \"HUNDRED\"\n  }\n}\nfields {\n  key: \"numerator\"\n  value {\n    number_value: 5\n  }\n}\n",
		"num": "fields {\n  key: \"numerator\"\n  value {\n    number_value: 3\n  }\n}\n",
	}
	if diff := cmp.Diff(want, l.Texts()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
