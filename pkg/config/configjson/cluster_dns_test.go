package configjson

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestResolvConf(t *testing.T) {
	tests := []struct {
		name, text string
		want       config.DNS
	}{
		{"empty file", "", config.DNS{Ndots: 1, Attempts: 1}},
		{"all keywords", "search a.example. b\nnameserver 10.0.0.1\nnameserver fd00::1\noptions ndots:3 timeout:4 attempts:2 rotate\n", config.DNS{
			Resolvers: []string{"10.0.0.1:53", "[fd00::1]:53"}, Search: []string{"a.example", "b"},
			Ndots: 3, Timeout: 4 * time.Second, Attempts: 2,
		}},
		{"last search is used", "search a\ndomain b\n", config.DNS{Search: []string{"b"}, Ndots: 1, Attempts: 1}},
		{"values are bounded", "options ndots:99 timeout:99 attempts:99\n", config.DNS{Ndots: 15, Timeout: 30 * time.Second, Attempts: 5}},
		{"unknown and invalid lines are ignored", "nameserver nohost\nsearch -?-\noptions ndots:x timeout: debug\nsortlist 10.0.0.0\n;nameserver 10.0.0.1\n#\nnameserver\n",
			config.DNS{Ndots: 1, Attempts: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got config.DNS
			parseResolvConf(tt.text, "53", &got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestClusterDNS verifies the two forms of dns_resolvers and the conversion of the DNS keys.
func TestClusterDNS(t *testing.T) {
	parse := func(keys string) config.DNS {
		t.Helper()
		s, diags := Parse("a.json", []byte(`{"servers": [{}], "cluster_manager": {"clusters": [
			{"name": "a", "type": "LOGICAL_DNS", "hosts": [{"address": "a.example:80"}]`+keys+`}]}}`), testCapabilities(), Options{})
		if s == nil {
			t.Fatal(diags)
		}
		if c := s.Clusters[0]; c.Type != config.ClusterLogicalDNS || c.Hosts[0].Address != "a.example:80" {
			t.Errorf("cluster = %+v, want type LOGICAL_DNS and host a.example:80", c)
		}
		return s.Clusters[0].DNS
	}
	defaults := config.DNS{RefreshRate: 5 * time.Second, Family: "AUTO"}
	want := defaults
	if diff := cmp.Diff(want, parse("")); diff != "" {
		t.Errorf("defaults: -want +got:\n%s", diff)
	}
	want.Resolvers = []string{"10.0.0.1:53", "10.0.0.2:54"}
	if diff := cmp.Diff(want, parse(`, "dns_resolvers": ["10.0.0.1", "10.0.0.2:54"]`)); diff != "" {
		t.Errorf("list form: -want +got:\n%s", diff)
	}
	want = config.DNS{
		RefreshRate: time.Minute, RespectTTL: true, FailureBackoffBase: time.Second, FailureBackoffMax: 10 * time.Second, Jitter: 2 * time.Second,
		Family: "ALL", Resolvers: []string{"10.0.0.1:54"}, Search: []string{"x.example"}, Ndots: 2, Timeout: 3 * time.Second, Attempts: 4,
	}
	allKeys := `, "dns_refresh_rate": "1m", "respect_dns_ttl": true, "dns_failure_refresh_rate": {"base_interval": "1s"}, "dns_jitter": "2s",
		"dns_lookup_family": "ALL", "dns_resolvers": {"servers": ["10.0.0.1"], "port": "54", "search": ["x.example."], "ndots": 2, "timeout": 3, "attempts": 4}`
	if diff := cmp.Diff(want, parse(allKeys)); diff != "" {
		t.Errorf("object form: -want +got:\n%s", diff)
	}
	if !want.Equal(&want) || want.Equal(&defaults) {
		t.Error("Equal reports true for different settings")
	}
}

// FuzzResolvConf verifies that every value taken from a resolver file is valid.
func FuzzResolvConf(f *testing.F) {
	f.Add("search a.example b\nnameserver 10.0.0.1\nnameserver fd00::1\noptions ndots:3 timeout:4 attempts:2\n")
	f.Add("nameserver fe80::1%eth0 # zone\ndomain .\noptions ndots:-1 attempts:99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		var d config.DNS
		parseResolvConf(text, "53", &d)
		for _, address := range d.Resolvers {
			if addrPort, err := netip.ParseAddrPort(address); err != nil || addrPort.Port() != 53 {
				t.Errorf("resolver %q, want an IP address and port 53", address)
			}
		}
		for _, domain := range d.Search {
			if !isHostName(domain) {
				t.Errorf("search domain %q, want a host name", domain)
			}
		}
		if d.Ndots < 1 || d.Ndots > 15 || d.Attempts < 1 || d.Attempts > 5 || d.Timeout < 0 || d.Timeout > 30*time.Second {
			t.Errorf("ndots %d, attempts %d, timeout %v; want 1 to 15, 1 to 5, 0 to 30s", d.Ndots, d.Attempts, d.Timeout)
		}
	})
}
