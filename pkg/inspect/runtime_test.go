package inspect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnvoyRuntime(t *testing.T) {
	got := NewEnvoyRuntime([]RuntimeLayer{
		{Name: "s", Values: map[string]string{"a.b": "1", "str": "x", "empty": ""}},
		{Name: "s2", Values: map[string]string{"a.b": "2.5", "str": ""}},
		{Name: "not received"},
	})
	want := EnvoyRuntime{
		Layers: []string{"s", "s2", "not received"},
		Entries: map[string]EnvoyRuntimeEntry{
			"a.b":   {Final: "2.5", Values: []string{"1", "2.5", ""}},
			"str":   {Final: "x", Values: []string{"x", "", ""}},
			"empty": {Values: []string{"", "", ""}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
