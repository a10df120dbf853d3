package resource

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
)

// TestAnEmptyTreeOfRulesIsRefused: in Envoy it lets nobody pass; it must not become a filter without
// rules, which lets everybody pass.
func TestAnEmptyTreeOfRulesIsRefused(t *testing.T) {
	m := &rbacv3.RBAC{}
	m.ProtoReflect().Mutable(m.ProtoReflect().Descriptor().Fields().ByName("matcher")) // is there, and empty
	_, err := ReadExtension(marshaled(t, &corev3.TypedExtensionConfig{Name: "f", TypedConfig: packed(t, m)}), allKinds())
	if !strings.Contains(errorText(err), "typed_config.matcher: is not supported") {
		t.Errorf("it is refused because of %v", err)
	}
}
