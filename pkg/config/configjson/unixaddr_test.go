package configjson

import (
	"fmt"
	"strings"
	"testing"
)

// TestListenerAddress verifies which network and address a listener gets.
func TestListenerAddress(t *testing.T) {
	for _, test := range []struct{ network, address, want string }{ // want: network and address, or a part of the error
		{"", "127.0.0.1:80", "tcp 127.0.0.1:80"},
		{"", "/run/web", "unix /run/web"},
		{"", "run/web", "unix run/web"},
		{"", "@web", "unix @web"},
		{"", "unix:/run/web", "unix /run/web"},
		{"", "unix:///run/web", "unix /run/web"},
		{"", "unix:localhost:80", "unix ./localhost:80"},
		{"", "unix://localhost:80", "expected unix:///absolute/path"},
		{"", "web.sock", "expected ip:port"},
		{"unix", "web.sock", "unix ./web.sock"},
		{"unix", "127.0.0.1:80", "expected the path of a unix socket"},
		{"unix", "./127.0.0.1:80", "unix ./127.0.0.1:80"},
		{"unix", "", "expected the path of a unix socket"},
		{"tcp", "/run/web", `found the unix socket "/run/web", expected ip:port for the network "tcp"`},
		{"tcp", "unix:/run/web", `found the unix socket "/run/web"`},
		{"udp", "/run/web", `found the unix socket "/run/web"`},
	} {
		network := ""
		if test.network != "" {
			network = fmt.Sprintf(`"network": %q, `, test.network)
		}
		s, diags := Parse("a.json", fmt.Appendf(nil, `{"servers": [{"listeners": [{%s"address": %q, "filter_chains": [{"filters": [
			{"type": "tcp_proxy", "config": {"cluster": "c"}}]}]}]}], "cluster_manager": {"clusters": [{"name": "c"}]}}`, network, test.address), testCapabilities(), Options{})
		got := fmt.Sprint(diags)
		if s != nil {
			got = s.Listeners[0].Network + " " + s.Listeners[0].Address
		}
		if got != test.want && (s != nil || !strings.Contains(got, test.want)) {
			t.Errorf("network %q, address %q: got %s, want %s", test.network, test.address, got, test.want)
		}
	}
}

// TestDialAddressOfUnixSocket verifies that no unix: URL of a host is dialed over TCP.
func TestDialAddressOfUnixSocket(t *testing.T) {
	for text, want := range map[string]string{ // "": rejected
		"/run/web":            "/run/web",
		"../web":              "../web",
		"@web":                "@web",
		"unix:web.sock":       "./web.sock",
		"unix:///run/web":     "/run/web",
		"unix:localhost:80":   "./localhost:80",
		"unix:127.0.0.1:80":   "./127.0.0.1:80",
		"unix://localhost:80": "",
		"unix:":               "",
	} {
		address, isName, err := parseDialAddress(text)
		if address != want || isName || (err != nil) != (want == "") {
			t.Errorf("parseDialAddress(%q) = %q, %v, %v, want %q", text, address, isName, err, want)
		}
	}
}
