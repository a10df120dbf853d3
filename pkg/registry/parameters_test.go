package registry_test

import (
	"maps"
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
)

func TestParameters(t *testing.T) {
	tests := []struct {
		name   string
		values map[string]string
	}{
		{"none", nil},
		{"one", map[string]string{"a": "1"}},
		{"empty value", map[string]string{"a": ""}},
		{"empty value between others", map[string]string{"a": "1", "b": "", "c": "3"}},
		{"names with common prefixes", map[string]string{"a": "b", "ab": "", "abc": "a"}},
		{"empty name", map[string]string{"": "x", "y": "z"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := registry.ParametersOf(tt.values)
			if got := p.Map(); p.Len() != len(tt.values) || !maps.Equal(got, tt.values) {
				t.Errorf("Len = %d, Map = %v, want %v", p.Len(), got, tt.values)
			}
			previous := ""
			for name := range p.All() {
				if name < previous {
					t.Errorf("%q comes after %q, want the order of names", name, previous)
				}
				previous = name
			}
			for name, want := range tt.values {
				if got, ok := p.Lookup(name); got != want || !ok || p.Get(name) != want {
					t.Errorf("Lookup(%q) = %q, %v; want %q", name, got, ok, want)
				}
			}
			if got, ok := p.Lookup("none"); got != "" || ok {
				t.Errorf("Lookup of a missing parameter = %q, %v; want \"\", false", got, ok)
			}
			if !p.Equal(registry.ParametersOf(maps.Clone(tt.values))) {
				t.Error("Equal = false for equal parameters, want true")
			}
		})
	}
}

// TestParametersNotEqual covers parameters with equal concatenations of names and values.
func TestParametersNotEqual(t *testing.T) {
	list := []registry.Parameters{
		{},
		registry.ParametersOf(map[string]string{"ab": "c"}),
		registry.ParametersOf(map[string]string{"a": "bc"}),
		registry.ParametersOf(map[string]string{"abc": ""}),
		registry.ParametersOf(map[string]string{"a": "b", "c": ""}),
	}
	for i, p := range list {
		for j, q := range list {
			if p.Equal(q) != (i == j) {
				t.Errorf("%v and %v: Equal = %v, want %v", p.Map(), q.Map(), p.Equal(q), i == j)
			}
		}
	}
}

// TestLastParameterWins verifies that the last parameter of a name wins, as in Java's map.
func TestLastParameterWins(t *testing.T) {
	u, err := registry.Parse("dubbo://h/x?b=1&a=1&b=2&a=2&b=3")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := u.String(), "dubbo://h/x?a=2&b=3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkParse(b *testing.B) {
	const text = "dubbo://10.0.0.1:20880/com.example.Number?anyhost=true&application=scale&deprecated=false&dubbo=2.0.2&dynamic=true&generic=false" +
		"&interface=com.example.Number&methods=create,find,remove,update&pid=4711&release=2.7.23&revision=1.0.0&side=provider&timeout=3000&timestamp=1700000000000&version=1.0.0"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
