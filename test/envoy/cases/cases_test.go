package cases

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/test/envoy/client"
)

// TestCases verifies that no case gets lost, that IDs are unique, and that the client can send each
// request with its ID.
func TestCases(t *testing.T) {
	const minGroups, minCases = 953, 6902 // raise them with new cases
	groups := All()
	ids := map[string]bool{}
	for _, g := range groups {
		if len(g.Cases) == 0 {
			t.Errorf("%s has no case", g.Name)
		}
		if !slices.Contains(Areas(), g.Area) {
			t.Errorf("%s has the area %q, want one of %q", g.Name, g.Area, Areas())
		}
		for _, c := range g.Cases {
			if ids[c.ID] || c.ID == "" || c.Label == "" {
				t.Errorf("case %q with label %q: want a unique ID and a label", c.ID, c.Label)
			}
			ids[c.ID] = true
			var sent []byte
			for _, p := range c.Parts {
				sent = append(sent, p.Data...)
			}
			if c.Kind == client.Raw && !c.Anonymous && !bytes.Contains(sent, []byte(client.Placeholder)) {
				t.Errorf("%s sends no X-Case, and is not anonymous", c.ID)
			}
		}
	}
	if len(groups) < minGroups || len(ids) < minCases {
		t.Errorf("%d groups with %d cases, want at least %d with %d", len(groups), len(ids), minGroups, minCases)
	}
}

// TestBootstrap verifies that every group is valid YAML, and that its ports are replaced.
func TestBootstrap(t *testing.T) {
	a := &Addresses{Admin: 1, Listeners: map[string]int{}, Logs: "/logs", Dead: 2, Origins: map[string]int{
		"o1": 11, "o2": 12, "o3": 13, "o4": 14, "o5": 15, "o6": 16, "h1": 17, "h2": 18, "t1": 19, "p1": 20, "s1": 21, "s2": 22,
	}}
	groups := All()
	for i, g := range groups {
		a.Listeners[g.Name] = 1000 + i
	}
	text, err := Bootstrap(groups, a)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		StaticResources struct {
			Listeners []struct {
				Address struct {
					SocketAddress struct {
						PortValue int `json:"port_value"`
					} `json:"socket_address"`
				} `json:"address"`
			} `json:"listeners"`
			Clusters []struct {
				Name string `json:"name"`
			} `json:"clusters"`
		} `json:"static_resources"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if n := len(file.StaticResources.Listeners); n != len(groups) {
		t.Errorf("%d listeners, want %d", n, len(groups))
	}
	for i, l := range file.StaticResources.Listeners {
		if got := l.Address.SocketAddress.PortValue; got != 1000+i {
			t.Errorf("listener %d has the port %d, want %d", i, got, 1000+i)
		}
	}
	names := map[string]bool{}
	for _, c := range file.StaticResources.Clusters {
		if names[c.Name] {
			t.Errorf("two clusters have the name %s", c.Name)
		}
		names[c.Name] = true
	}
	if bytes.Contains(text, []byte(`"$`)) {
		t.Errorf("the bootstrap file still contains the name of an origin instead of its port:\n%s", text)
	}
}

func TestNetworkFilters(t *testing.T) {
	text, err := Bootstrap([]*Group{{Name: "x.1", NetworkFilters: `
- name: envoy.filters.network.tcp_proxy
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
    stat_prefix: x
    cluster: t1`}}, &Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte("TcpProxy")) || bytes.Contains(text, []byte("HttpConnectionManager")) {
		t.Errorf("the bootstrap file has another network filter than the group:\n%s", text)
	}
}

func TestBootstrapReportsMalformedYAML(t *testing.T) {
	if _, err := Bootstrap([]*Group{{Name: "x.1", HCM: "a: [b"}}, &Addresses{}); err == nil {
		t.Error("Bootstrap returns no error for a list without an end")
	}
}

func TestIdentify(t *testing.T) {
	for data, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":            "GET / HTTP/1.1\r\nHost: a\r\n" + caseLine + "\r\n",
		"GET / HTTP/1.0\r\n\r\n":                       "GET / HTTP/1.0\r\n" + caseLine + "\r\n",
		"\r\n\r\nGET / HTTP/1.1\r\n\r\n":               "\r\n\r\nGET / HTTP/1.1\r\n" + caseLine + "\r\n",
		"POST / HTTP/1.1\r\nA: b\r\n\r\n0\r\n\r\n":     "POST / HTTP/1.1\r\nA: b\r\n" + caseLine + "\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:":                      "GET / HTTP/1.1\r\nHost:",
		"GET /\r\n\r\n":                                "GET /\r\n\r\n",
		"GET / HTTP/1.1\n\n":                           "GET / HTTP/1.1\n\n",
		"GET / HTTP/1.1\r\nX-Case: {case}\r\n\r\nbody": "GET / HTTP/1.1\r\nX-Case: {case}\r\n\r\nbody",
	} {
		if got := identify(data); got != want {
			t.Errorf("identify(%q) = %q, want %q", data, got, want)
		}
	}
}
