package registry_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
)

func TestParseURLsOfJava(t *testing.T) {
	tests := []struct {
		name, text string
		want       registry.URL
	}{
		{
			"provider",
			"dubbo://192.168.1.2:20880/com.example.User?interface=com.example.User&methods=get,set&version=1.0.0",
			registry.URL{Protocol: "dubbo", Host: "192.168.1.2", Port: 20880, Path: "com.example.User", Parameters: registry.ParametersOf(map[string]string{
				"interface": "com.example.User", "methods": "get,set", "version": "1.0.0",
			})},
		},
		{"user and password", "zookeeper://a:b@h:1", registry.URL{Protocol: "zookeeper", Username: "a", Password: "b", Host: "h", Port: 1}},
		{"password with an at sign", "x://a:b@c@h:1", registry.URL{Protocol: "x", Username: "a", Password: "b@c", Host: "h", Port: 1}},
		{"no port", "consumer://10.0.0.1/x", registry.URL{Protocol: "consumer", Host: "10.0.0.1", Path: "x"}},
		{"IPv6 in brackets", "dubbo://[::1]:80/x", registry.URL{Protocol: "dubbo", Host: "::1", Port: 80, Path: "x"}},
		{"IPv6 without port", "consumer://fe80::1/x", registry.URL{Protocol: "consumer", Host: "fe80::1", Path: "x"}},
		{"value with an escape", "a://h?x=1%262", registry.URL{Protocol: "a", Host: "h", Parameters: registry.ParametersOf(map[string]string{"x": "1&2"})}},
		{"value with a literal percent sign", "a://h?x=5%", registry.URL{Protocol: "a", Host: "h", Parameters: registry.ParametersOf(map[string]string{"x": "5%"})}},
		{"version with a plus", "a://h?version=1.0.0+7", registry.URL{Protocol: "a", Host: "h", Parameters: registry.ParametersOf(map[string]string{"version": "1.0.0+7"})}},
		{"parameter without value", "a://h?x&y=", registry.URL{Protocol: "a", Host: "h", Parameters: registry.ParametersOf(map[string]string{"x": "x", "y": ""})}},
		{"rule", "condition://0.0.0.0/x?rule=host = 1 => ", registry.URL{Protocol: "condition", Host: "0.0.0.0", Path: "x", Parameters: registry.ParametersOf(map[string]string{"rule": "host = 1 => "})}},
		{"doubly escaped rule", "condition://0.0.0.0/x?rule=host+%3D+1%2B+%3D%3E+", registry.URL{Protocol: "condition", Host: "0.0.0.0", Path: "x", Parameters: registry.ParametersOf(map[string]string{"rule": "host = 1+ => "})}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := registry.Parse(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			equal := got.Protocol == tt.want.Protocol && got.Username == tt.want.Username && got.Password == tt.want.Password &&
				got.Address() == tt.want.Address() && got.Path == tt.want.Path && got.Parameters.Equal(tt.want.Parameters)
			if !equal {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			decoded, err := registry.ParseEncoded(got.Encoded())
			if err != nil || decoded.String() != got.String() {
				t.Errorf("after encoding and parsing: %v, %v; want %v", decoded, err, got)
			}
		})
	}
}

func TestInvalidURLs(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", "no protocol"},
		{"no protocol", "127.0.0.1:80/x", "no protocol"},
		{"invalid port", "dubbo://h:http/x", "not a valid port"},
		{"port too large", "dubbo://h:65536/x", "not a valid port"},
		{"missing closing bracket", "dubbo://[::1:80/x", "not a valid address"},
		{"parameter without name", "dubbo://h:1/x?=1", "no name"},
		{"too long", "dubbo://h/" + strings.Repeat("x", registry.MaxURL), "65536"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if u, err := registry.Parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want an error with %q", u, err, tt.want)
			}
		})
	}
}

func TestWithCopies(t *testing.T) {
	u, err := registry.Parse("dubbo://h:1/x?a=1&b=2")
	if err != nil {
		t.Fatal(err)
	}
	v := u.With(map[string]string{"a": "", "c": "3"})
	if got, want := v.String(), "dubbo://h:1/x?b=2&c=3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := u.String(), "dubbo://h:1/x?a=1&b=2"; got != want {
		t.Errorf("With changed the URL to %s, want %s", got, want)
	}
}

// TestStringIsReadableByJava covers values that identify services. Java unescapes the whole URL,
// but not its values.
func TestStringIsReadableByJava(t *testing.T) {
	u := registry.URL{Protocol: "dubbo", Host: "h", Port: 1, Path: "x", Parameters: registry.ParametersOf(map[string]string{"version": "1.0.0+7", "group": "grün"})}
	decoded, err := url.QueryUnescape(u.Encoded())
	if want := "dubbo://h:1/x?group=grün&version=1.0.0+7"; err != nil || decoded != want {
		t.Errorf("Java reads %q, %v; want %q", decoded, err, want)
	}
}

func TestCategories(t *testing.T) {
	for text, want := range map[string]string{
		"dubbo://h/x":                     registry.Providers,
		"consumer://h/x":                  registry.Consumers,
		"consumer://h/x?category=abc":     "abc",
		"override://h/x":                  registry.Configurators,
		"condition://h/x":                 registry.Routers,
		"override://h/x?category=routers": registry.Routers,
	} {
		u, err := registry.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := u.Category(); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestAccepts(t *testing.T) {
	tests := []struct {
		name      string
		requested registry.Service
		provider  string
		want      bool
	}{
		{"same interface", registry.Service{Interface: "x"}, "dubbo://h/x", true},
		{"another interface", registry.Service{Interface: "x"}, "dubbo://h/y", false},
		{"the interface, not the path", registry.Service{Interface: "x"}, "dubbo://h/p/x?interface=x", true},
		{"another group", registry.Service{Interface: "x", Group: "f"}, "dubbo://h/x?group=g", false},
		{"no group", registry.Service{Interface: "x", Group: "f"}, "dubbo://h/x", false},
		{"group, none requested", registry.Service{Interface: "x"}, "dubbo://h/x?group=g", true},
		{"any group", registry.Service{Interface: "x", Group: "*"}, "dubbo://h/x?group=g", true},
		{"one of the groups", registry.Service{Interface: "x", Group: "f,g"}, "dubbo://h/x?group=g", true},
		{"none of the groups", registry.Service{Interface: "x", Group: "f,gg"}, "dubbo://h/x?group=g", false},
		{"another version", registry.Service{Interface: "x", Version: "1"}, "dubbo://h/x?version=2", false},
		{"no version", registry.Service{Interface: "x", Version: "1"}, "dubbo://h/x", false},
		{"version, none requested", registry.Service{Interface: "x"}, "dubbo://h/x?version=2", true},
		{"rule with a version, none requested", registry.Service{Interface: "x"}, "condition://0.0.0.0/x?category=routers&version=2", false},
		{"configurator with a version, none requested", registry.Service{Interface: "x"}, "override://0.0.0.0/x?category=configurators&version=2", true},
		{"configurator of another version", registry.Service{Interface: "x", Version: "1"}, "override://0.0.0.0/x?category=configurators&version=2", false},
		{"rule with a group, none requested", registry.Service{Interface: "x"}, "condition://0.0.0.0/x?group=g", false},
		{"rule with a group and version", registry.Service{Interface: "x", Group: "g", Version: "2"}, "override://0.0.0.0/x?group=g&version=2", true},
		{"version, 0.0.0 requested", registry.Service{Interface: "x", Version: "0.0.0"}, "dubbo://h/x?version=2", true},
		{"any version", registry.Service{Interface: "x", Version: "*"}, "dubbo://h/x?version=2", true},
		{"version 0.0.0, none requested", registry.Service{Interface: "x"}, "dubbo://h/x?version=0.0.0", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, err := registry.Parse(tt.provider)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.requested.Accepts(u); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestServiceKeys(t *testing.T) {
	for want, s := range map[string]registry.Service{
		"x":     {Interface: "x"},
		"g/x":   {Interface: "x", Group: "g"},
		"x:1":   {Interface: "x", Version: "1"},
		"g/x:1": {Interface: "x", Group: "g", Version: "1"},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("dubbo://a:b@[::1]:80/x/y?a=1&b=%25")
	f.Add("override://0.0.0.0/x?rule=a => b")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := registry.Parse(text)
		if err != nil {
			return
		}
		_ = u.Service()
		_ = u.Category()
		if len(u.String()) > registry.MaxURL { // escapes may lengthen the URL
			return
		}
		reparsed, err := registry.Parse(u.String())
		if err != nil {
			t.Fatalf("%q was written as %q, which does not parse: %v", text, u, err)
		}
		if reparsed.String() != u.String() {
			t.Fatalf("%q was written as %q, then as %q", text, u, reparsed)
		}
	})
}
