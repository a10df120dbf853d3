package registry_test

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
)

func TestWithApplication(t *testing.T) {
	tests := []struct {
		mapping, want string
		changed       bool
	}{
		{"", "shop", true},
		{"shop", "shop", false},
		{"a, shop ,b", "a, shop ,b", false},
		{"shopping", "shopping,shop", true},
		{"b,,a,", "b,a,shop", true},
	}
	for _, tt := range tests {
		if got, changed := registry.WithApplication(tt.mapping, "shop"); got != tt.want || changed != tt.changed {
			t.Errorf("WithApplication(%q) = %q, %t, want %q, %t", tt.mapping, got, changed, tt.want, tt.changed)
		}
	}
}

func TestCheckRejectsInvalidRegistrations(t *testing.T) {
	valid := registry.InstanceRegistration{Instance: registry.Instance{Application: "a", Host: "::1", Port: 1}, Revision: "r"}
	if err := valid.Check(); err != nil {
		t.Fatal(err)
	}
	if got := valid.Instance.Name() + " " + valid.Instance.Address(); got != "::1:1 [::1]:1" {
		t.Errorf("name and address = %q, want ::1:1 [::1]:1", got)
	}
	for name, invalidate := range map[string]func(*registry.InstanceRegistration){
		"no application":   func(a *registry.InstanceRegistration) { a.Instance.Application = "" },
		"two applications": func(a *registry.InstanceRegistration) { a.Instance.Application = "a,b" },
		"no host":          func(a *registry.InstanceRegistration) { a.Instance.Host = "" },
		"no port":          func(a *registry.InstanceRegistration) { a.Instance.Port = 0 },
		"no revision":      func(a *registry.InstanceRegistration) { a.Revision = "" },
	} {
		invalid := valid
		invalidate(&invalid)
		if invalid.Check() == nil {
			t.Errorf("%s: Check = nil, want an error", name)
		}
	}
}
