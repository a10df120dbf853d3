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
	r := newRig(t, config.DubboRegistry{})
	with := func(change func(*dubbo.Request)) dubbo.Request {
		q := request("x")
		change(&q)
		return q
	}
	tests := []struct {
		name  string
		q     dubbo.Request
		field string
	}{
		{"no interface", with(func(q *dubbo.Request) { q.Service.Interface = "" }), "service.interface"},
		{"an interface that is a path", with(func(q *dubbo.Request) { q.Service.Interface = "a/b" }), "service.interface"},
		{"an interface that is the folder above", with(func(q *dubbo.Request) { q.Service.Interface = ".." }), "service.interface"},
		{"an interface with a line feed", with(func(q *dubbo.Request) { q.Service.Interface = "a\nb" }), "service.interface"},
		{"an interface that is too long", with(func(q *dubbo.Request) { q.Service.Interface = strings.Repeat("x", 2000) }), "service.interface"},
		{"no methods", with(func(q *dubbo.Request) { q.Service.Methods = nil }), "service.methods"},
		{"a method without name", with(func(q *dubbo.Request) { q.Service.Methods = []string{"a", ""} }), "service.methods[1]"},
		{"several groups", with(func(q *dubbo.Request) { q.Service.Group = "a,b" }), "service.group"},
		{"any version", with(func(q *dubbo.Request) { q.Service.Version = "*" }), "service.version"},
		{"no port at all", request("x"), "service.port"},
		{"invalid port", with(func(q *dubbo.Request) { q.Service.Port = "70000" }), "service.port"},
		{"an unknown registry", with(func(q *dubbo.Request) { q.Registry.Type = "etcd" }), "registry.type"},
		{"no type", with(func(q *dubbo.Request) { q.Registry.Type = "" }), "registry.type"},
		{"no address", with(func(q *dubbo.Request) { q.Registry.Address = "" }), "registry.addr"},
		{"a folder that is not configured", with(func(q *dubbo.Request) { q.Registry = dubbo.Registry{Type: "memory", Address: "file:/etc"} }), "registry.addr"},
		{"an address with a space", with(func(q *dubbo.Request) { q.Registry.Address = "a b" }), "registry.addr"},
		{"a parameter that is a field", with(func(q *dubbo.Request) { q.Service.Parameters = map[string]string{"group": "g"} }), "service.parameters.group"},
		{"a parameter without name", with(func(q *dubbo.Request) { q.Service.Parameters = map[string]string{"": "g"} }), "service.parameters"},
		{"a parameter with a NUL", with(func(q *dubbo.Request) { q.Service.Parameters = map[string]string{"a": "\x00"} }), "service.parameters.a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var field *dubbo.FieldError
			if err := r.discovery.Publish(r.Context(), tt.q); !errors.As(err, &field) || field.Field != tt.field {
				t.Errorf("got %v, want a mistake in %s", err, tt.field)
			}
		})
	}
}

// TestServicesAreBounded verifies that requests beyond the limit fail.
func TestServicesAreBounded(t *testing.T) {
	const most = 1 << 14
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		for i := range most {
			must(r.T, r.discovery.Publish(r.Context(), request(fmt.Sprint("s", i))))
		}
		var field *dubbo.FieldError
		if err := r.discovery.Publish(r.Context(), request("more")); !errors.As(err, &field) || field.Field != "service" {
			t.Errorf("one more: %v, want a mistake in service", err)
		}
		elsewhere := request("more")
		elsewhere.Registry.Address = "h:2"
		if err := r.discovery.Publish(r.Context(), elsewhere); !errors.As(err, &field) || r.fake.opened != 1 {
			t.Errorf("one more at another registry: %v, and %d sessions were opened, want an error and 1", err, r.fake.opened)
		}
		must(r.T, r.discovery.Publish(r.Context(), request("s1"))) // already published
		must(r.T, r.discovery.Unpublish(r.Context(), request("s1")))
		must(r.T, r.discovery.Publish(r.Context(), request("more")))
	})
}

// TestInvalidHostOfEnvironment verifies that an invalid host in the environment is
// rejected, because it becomes part of every URL.
func TestInvalidHostOfEnvironment(t *testing.T) {
	for text, want := range map[string]bool{"10.0.0.7\n": true, "10.0.0.7/x?weight=9": false, "a@10.0.0.7": false} {
		t.Setenv("DUBBO_IP_TO_REGISTRY", text)
		_, err := dubbo.New(dubbo.Options{Config: config.DubboRegistry{Enable: true}, Log: slog.New(slog.DiscardHandler)})
		var field *dubbo.FieldError
		if is := !errors.As(err, &field); is != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDefaultRegistry(t *testing.T) {
	tests := []struct {
		name    string
		c       []config.RegistrySettings
		q       dubbo.Registry
		want    string
		problem string
	}{
		{"nothing said, nothing configured", nil, dubbo.Registry{}, "memory://", ""},
		{"the first that is configured", []config.RegistrySettings{{Type: "fake", Address: "a:1"}, {Type: "memory", Address: "m"}}, dubbo.Registry{}, "fake://a:1", ""},
		{"the first of the type", []config.RegistrySettings{{Type: "fake", Address: "a:1"}, {Type: "memory", Address: "m"}}, dubbo.Registry{Type: "Memory"}, "memory://m", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := defaultConfig()
			c.Registries = tt.c
			inSynctest(t, c, func(r *testEnv) {
				q := request("x")
				q.Registry = tt.q
				must(t, r.discovery.Publish(r.Context(), q))
				if got := r.discovery.Status().Published[0].Registry; got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}
