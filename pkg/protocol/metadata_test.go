package protocol

import (
	"maps"
	"slices"
	"testing"
)

func TestMetadataHoldsValuesByNamespaceAndKey(t *testing.T) {
	var x Exchange
	m := &x.Metadata
	m.Set("a", "version", "1")
	m.Add("a", "group", "red")
	m.Add("a", "group", "blue")
	m.Set("b", "version", "2")
	m.Set("a", "version", "3")

	for _, tt := range []struct {
		namespace, key string
		want           []string
	}{
		{"a", "version", []string{"3"}},
		{"b", "version", []string{"2"}},
		{"a", "group", []string{"red", "blue"}},
		{"b", "group", nil},
	} {
		if got := slices.Collect(m.Values(tt.namespace, tt.key)); !slices.Equal(got, tt.want) {
			t.Errorf("Values(%s, %s) = %q, want %q", tt.namespace, tt.key, got, tt.want)
		}
		first, ok := m.Lookup(tt.namespace, tt.key)
		if ok != (tt.want != nil) || ok && first != tt.want[0] {
			t.Errorf("Lookup(%s, %s) = %q, %t; want the first of %q", tt.namespace, tt.key, first, ok, tt.want)
		}
	}
	if got, want := maps.Collect(m.All("b")), map[string]string{"version": "2"}; !maps.Equal(got, want) {
		t.Errorf("All(b) = %v, want %v", got, want)
	}
	m.Del("a", "group")
	if _, ok := m.Lookup("a", "group"); ok || m.Len() != 2 {
		t.Errorf("%d values after Del, want 2", m.Len())
	}
}

func TestResetClearsMetadata(t *testing.T) {
	var x Exchange
	x.Metadata.Set(BalancerNamespace, "version", "1")
	x.Reset()
	if n := x.Metadata.Len(); n != 0 {
		t.Errorf("%d values after Reset, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		x.Metadata.Set(BalancerNamespace, "version", "1")
		x.Reset()
	}); n != 0 {
		t.Errorf("metadata of a reused exchange: %v allocations, want 0", n)
	}
}

func TestBalancerNamespaceAlias(t *testing.T) {
	for name, want := range map[string]string{"envoy.lb": BalancerNamespace, "mosn.lb": BalancerNamespace, "other": "other"} {
		if got := Namespace(name); got != want {
			t.Errorf("Namespace(%q) = %q, want %q", name, got, want)
		}
	}
	if MetadataKey("a.b") == MetadataKey("a", "b") {
		t.Error("MetadataKey(\"a.b\") equals MetadataKey(\"a\", \"b\")")
	}
}
