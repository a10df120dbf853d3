package nacos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/registry"
)

func TestURLRoundTrip(t *testing.T) {
	for _, text := range []string{
		"dubbo://10.0.0.1:20880/com.example.User?interface=com.example.User&methods=a,b&version=1.0.0",
		"consumer://10.0.0.1/com.example.User?category=consumers&interface=com.example.User",
		"override://0.0.0.0/com.example.User?category=configurators&interface=com.example.User&timeout=5",
		"tri://[::1]:50051/com.example.User?interface=com.example.User",
	} {
		u, err := registry.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		i := instance{IP: u.Host, Port: int64(u.Port)}
		if err := json.Unmarshal([]byte(metadataOf(u, minConsumerSessionTimeout)), &i.Metadata); err != nil {
			t.Fatal(err)
		}
		if got, ok := i.url(); !ok || got.String() != u.String() {
			t.Errorf("%s was decoded as %s", u, got)
		}
	}
}

// TestMetadataOf verifies the metadata that Dubbo 2.7 and 3 register in addition to the URL's
// parameters.
func TestMetadataOf(t *testing.T) {
	u, err := registry.Parse("dubbo://10.0.0.1:20880/p/com.example.User?interface=com.example.User")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(metadataOf(u, 0)), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"category": "providers", "interface": "com.example.User", "path": "p/com.example.User", "protocol": "dubbo"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestServiceName(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"dubbo://h:1/a.B", "providers:a.B::"},
		{"dubbo://h:1/a.B?group=g", "providers:a.B::g"},
		{"dubbo://h:1/a.B?version=1&group=g", "providers:a.B:1:g"},
		{"consumer://h/a.B?version=1", "consumers:a.B:1:"},
		{"dubbo://h:1/a.B$C?group=$", "providers:a.B___C::___"},
		{"dubbo://h:1/a.B?group=g:h", ""},
		{"dubbo://h:1/", ""},
	} {
		u, err := registry.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := serviceName(u); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("serviceName(%s) = %q, %v; want %q", tt.url, got, err, tt.want)
		}
	}
}

func TestMayContain(t *testing.T) {
	names := []string{"providers:a.B::", "providers:a.B:1:g", "providers:a.B:1:h", "providers:a.B:0.0.0:", "providers:a.B", "providers:a.B:1", "routers:a.B:1:", "routers:a.B::", "providers:a.B$C::", "providers:a.B___C::"}
	for _, tt := range []struct {
		requested registry.Service
		want      []string
	}{
		{registry.Service{Interface: "a.B"}, []string{
			"providers:a.B::", "providers:a.B:1:g", "providers:a.B:1:h", "providers:a.B:0.0.0:", "providers:a.B", "providers:a.B:1", "routers:a.B::",
		}},
		{registry.Service{Interface: "a.B", Group: "*", Version: "1"}, []string{"providers:a.B:1:g", "providers:a.B:1:h", "providers:a.B", "providers:a.B:1", "routers:a.B:1:"}},
		{registry.Service{Interface: "a.B", Group: "g", Version: "1"}, []string{"providers:a.B:1:g", "providers:a.B", "providers:a.B:1"}},
		{registry.Service{Interface: "a.B$C"}, []string{"providers:a.B", "providers:a.B:1", "providers:a.B$C::", "providers:a.B___C::"}},
	} {
		got := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !mayContain(name, tt.requested) })
		if !slices.Equal(got, tt.want) {
			t.Errorf("service names for %s = %q, want %q", tt.requested, got, tt.want)
		}
	}
}

func TestParseRoot(t *testing.T) {
	for _, tt := range []struct {
		root string
		want location
	}{
		{"", location{"", "DEFAULT_GROUP"}},
		{"public/g", location{"", "g"}},
		{"/g", location{"", "g"}},
		{"n", location{"n", "DEFAULT_GROUP"}},
		{"n/", location{"n", "DEFAULT_GROUP"}},
		{"n/g", location{"n", "g"}},
	} {
		if got, err := parseRoot(tt.root); got != tt.want || err != nil {
			t.Errorf("parseRoot(%q) = %v, %v; want %v", tt.root, got, err, tt.want)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for _, tt := range []struct {
		address string
		useTLS  bool
		want    []string
	}{
		{"a", false, []string{"http://a:8848/nacos"}},
		{"a:1, b:2", false, []string{"http://a:1/nacos", "http://b:2/nacos"}},
		{"[::1]:1/x/y/", true, []string{"https://[::1]:1/x/y"}},
		{"a/", false, []string{"http://a:8848"}},
	} {
		if got, err := parseAddress(tt.address, tt.useTLS); !slices.Equal(got, tt.want) || err != nil {
			t.Errorf("parseAddress(%q) = %q, %v; want %q", tt.address, got, err, tt.want)
		}
	}
}

// FuzzResponses decodes arbitrary responses. It verifies that nothing panics, that a decoded
// instance is usable, and that it survives encoding.
func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		`{"hosts":[{"instanceId":"10.0.0.2#1","ip":"10.0.0.2","port":20880,"weight":0.5,"healthy":true,"enabled":false,"metadata":{"protocol":"dubbo","weight":"7"}}]}`,
		`{"hosts":[{"ip":"::1","port":-1},{"ip":"","port":1},{"ip":"a","port":1,"weight":1e300,"metadata":{"protocol":"x","weight":"NaN"}}]}`,
		`{"count":1,"doms":["providers:a.B::"]}`,
		`{"code":20404}`,
		`{"accessToken":"x","tokenTtl":18000}`,
		"x%02dubbo%01y%02dubbo%02tenant%01",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if raw, err := rawHosts(body); err == nil {
			instances, _ := parseHosts(raw) // the error names the first invalid instance
			for _, i := range instances {
				u, ok := i.url()
				if !ok {
					continue
				}
				decoded := instance{IP: i.IP, Port: i.Port}
				if err := json.Unmarshal([]byte(metadataOf(u, 0)), &decoded.Metadata); err != nil {
					t.Fatal(err)
				}
				second, _ := decoded.url()
				if _, explicit := u.Parameters.Lookup(registry.ParameterCategory); !explicit && u.Category() == registry.Providers && !u.Parameters.Equal(second.Parameters) {
					t.Errorf("%v was decoded again as %v", u.Parameters, second.Parameters)
				}
			}
		}
		for _, d := range []func() error{
			func() error { _, _, err := parseNames(body); return err },
			func() error { _, err := parseHeartbeat(body); return err },
		} {
			if err := d(); err == nil && !json.Valid(body) {
				t.Errorf("%q was decoded without an error", body)
			}
		}
		if token, lifetime, err := parseToken(body); err == nil && (token == "" || lifetime <= 0) {
			t.Errorf("%q has the token %q for %v, want a token with a positive lifetime, or an error", body, token, lifetime)
		}
		if changed, err := parseChanged(body); err == nil {
			for _, d := range changed {
				if len(d.id)+len(d.group) > len(body) {
					t.Errorf("%q was decoded as %v", body, d)
				}
			}
		}
	})
}

func TestReadMapping(t *testing.T) {
	for text, want := range map[string][]string{"": nil, "shop": {"shop"}, " a , b,,a": {"a", "b"}} {
		if got := readMapping(text); !slices.Equal(got, want) {
			t.Errorf("readMapping(%q) = %q, want %q", text, got, want)
		}
	}
	var mapping strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&mapping, "a%d,", i)
	}
	if got := readMapping(mapping.String()); len(got) != registry.MaxApplications || got[registry.MaxApplications-1] != fmt.Sprint("a", registry.MaxApplications-1) {
		t.Errorf("of 100,000 applications %d were returned, want the first %d", len(got), registry.MaxApplications)
	}
}
