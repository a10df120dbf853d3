package dubbo_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
)

func TestInvalidRequests(t *testing.T) {
	env := newTestEnv(t, config.DubboRegistry{})
	changed := func(change func(*dubbo.Request)) dubbo.Request {
		req := request("x")
		change(&req)
		return req
	}
	tests := []struct {
		name  string
		req   dubbo.Request
		field string
	}{
		{"no interface", changed(func(req *dubbo.Request) { req.Service.Interface = "" }), "service.interface"},
		{"interface with a slash", changed(func(req *dubbo.Request) { req.Service.Interface = "a/b" }), "service.interface"},
		{"interface ..", changed(func(req *dubbo.Request) { req.Service.Interface = ".." }), "service.interface"},
		{"interface with a line feed", changed(func(req *dubbo.Request) { req.Service.Interface = "a\nb" }), "service.interface"},
		{"interface too long", changed(func(req *dubbo.Request) { req.Service.Interface = strings.Repeat("x", 2000) }), "service.interface"},
		{"no methods", changed(func(req *dubbo.Request) { req.Service.Methods = nil }), "service.methods"},
		{"method without a name", changed(func(req *dubbo.Request) { req.Service.Methods = []string{"a", ""} }), "service.methods[1]"},
		{"several groups", changed(func(req *dubbo.Request) { req.Service.Group = "a,b" }), "service.group"},
		{"any version", changed(func(req *dubbo.Request) { req.Service.Version = "*" }), "service.version"},
		{"no port", request("x"), "service.port"},
		{"invalid port", changed(func(req *dubbo.Request) { req.Service.Port = "70000" }), "service.port"},
		{"unknown registry type", changed(func(req *dubbo.Request) { req.Registry.Type = "etcd" }), "registry.type"},
		{"address without a type", changed(func(req *dubbo.Request) { req.Registry.Type = "" }), "registry.type"},
		{"no address", changed(func(req *dubbo.Request) { req.Registry.Address = "" }), "registry.addr"},
		{"directory that is not configured", changed(func(req *dubbo.Request) { req.Registry = dubbo.Registry{Type: "memory", Address: "file:/etc"} }), "registry.addr"},
		{"address with a space", changed(func(req *dubbo.Request) { req.Registry.Address = "a b" }), "registry.addr"},
		{"user name too long", changed(func(req *dubbo.Request) { req.Registry.Username = strings.Repeat("x", 2000) }), "registry.username"},
		{"password with a line feed", changed(func(req *dubbo.Request) { req.Registry.Password = "a\nb" }), "registry.password"},
		{"parameter that is a field", changed(func(req *dubbo.Request) { req.Service.Parameters = map[string]string{"group": "g"} }), "service.parameters.group"},
		{"parameter without a name", changed(func(req *dubbo.Request) { req.Service.Parameters = map[string]string{"": "g"} }), "service.parameters"},
		{"parameter with a NUL", changed(func(req *dubbo.Request) { req.Service.Parameters = map[string]string{"a": "\x00"} }), "service.parameters.a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var field *dubbo.FieldError
			if err := env.discovery.Publish(env.Context(), tt.req); !errors.As(err, &field) || field.Field != tt.field {
				t.Errorf("Publish = %v, want a FieldError for %s", err, tt.field)
			}
		})
	}
}

// TestServicesAreBounded verifies that requests beyond the limit fail.
func TestServicesAreBounded(t *testing.T) {
	const maxServices = 1 << 14
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		for i := range maxServices {
			must(env.T, env.discovery.Publish(env.Context(), request(fmt.Sprint("s", i))))
		}
		var field *dubbo.FieldError
		if err := env.discovery.Publish(env.Context(), request("more")); !errors.As(err, &field) || field.Field != "service" {
			t.Errorf("Publish above the limit: %v, want a FieldError for service", err)
		}
		atOtherRegistry := request("more")
		atOtherRegistry.Registry.Address = "h:2"
		if err := env.discovery.Publish(env.Context(), atOtherRegistry); !errors.As(err, &field) || env.fake.opened != 1 {
			t.Errorf("Publish above the limit at another registry: %v, %d sessions opened; want an error and 1", err, env.fake.opened)
		}
		must(env.T, env.discovery.Publish(env.Context(), request("s1"))) // already published
		must(env.T, env.discovery.Unpublish(env.Context(), request("s1")))
		must(env.T, env.discovery.Publish(env.Context(), request("more")))
	})
}

// TestInvalidHostOfEnvironment verifies that an invalid host in the environment is rejected,
// because it becomes part of every URL.
func TestInvalidHostOfEnvironment(t *testing.T) {
	for text, want := range map[string]bool{"10.0.0.7\n": true, "10.0.0.7/x?weight=9": false, "a@10.0.0.7": false} {
		t.Setenv("DUBBO_IP_TO_REGISTRY", text)
		_, err := dubbo.New(dubbo.Options{Config: config.DubboRegistry{Enable: true}, Log: slog.New(slog.DiscardHandler)})
		var field *dubbo.FieldError
		if valid := !errors.As(err, &field); valid != want {
			t.Errorf("%q: %v, want a valid host: %v", text, err, want)
		}
	}
}

func TestDefaultRegistry(t *testing.T) {
	tests := []struct {
		name    string
		c       []config.RegistrySettings
		req     dubbo.Registry
		want    string
		problem string
	}{
		{"nothing configured", nil, dubbo.Registry{}, "memory://", ""},
		{"first configured registry", []config.RegistrySettings{{Type: "fake", Address: "a:1"}, {Type: "memory", Address: "m"}}, dubbo.Registry{}, "fake://a:1", ""},
		{"first configured registry of the type", []config.RegistrySettings{{Type: "fake", Address: "a:1"}, {Type: "memory", Address: "m"}}, dubbo.Registry{Type: "Memory"}, "memory://m", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := defaultConfig()
			c.Registries = tt.c
			inSynctest(t, c, func(env *testEnv) {
				req := request("x")
				req.Registry = tt.req
				must(t, env.discovery.Publish(env.Context(), req))
				if got := env.discovery.Status().Published[0].Registry; got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}
