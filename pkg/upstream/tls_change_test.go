package upstream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestTLSChangeReplacesConnections verifies that a change of the TLS configuration of a host
// replaces its connections.
func TestTLSChangeReplacesConnections(t *testing.T) {
	withTLS := func(tls *config.TLS, noTLS bool) *config.Cluster {
		c := cluster("web", "a")
		c.TLS, c.Hosts[0].NoTLS = tls, noTLS
		return c
	}
	withIndex := func(i int, alternates ...*config.TLS) *config.Cluster {
		c := withTLS(&config.TLS{ServerName: "a"}, false)
		c.AlternateTLS, c.Hosts[0].TLSIndex = alternates, i
		return c
	}
	enabled, other := &config.TLS{ServerName: "a"}, &config.TLS{ServerName: "b"}
	for _, test := range []struct {
		name          string
		before, after *config.Cluster
		dials         int
	}{
		{"no change", withTLS(enabled, false), withTLS(&config.TLS{ServerName: "a"}, false), 1},
		{"TLS enabled", withTLS(nil, false), withTLS(enabled, false), 2},
		{"TLS disabled", withTLS(enabled, false), withTLS(nil, false), 2},
		{"TLS changed", withTLS(enabled, false), withTLS(other, false), 2},
		{"NoTLS set for the host", withTLS(enabled, false), withTLS(enabled, true), 2},
		{"TLSIndex of the host changed", withIndex(1, enabled, other), withIndex(2, enabled, other), 2},
		{"alternate TLS of the host changed", withIndex(1, enabled), withIndex(1, other), 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeConnector()
			s, c := newTestCluster(t, f, test.before)
			serveOne(t, c)
			apply(t, s, test.after)
			serveOne(t, c)
			if n := len(f.dialed()); n != test.dials {
				t.Errorf("%d connections were opened, want %d", n, test.dials)
			}
		})
	}
}

func TestHostSelectsItsTLS(t *testing.T) {
	first, second, third := &config.TLS{ServerName: "a"}, &config.TLS{ServerName: "b"}, &config.TLS{ServerName: "c"}
	cfg := cluster("web", "a", "b", "c", "d")
	cfg.TLS, cfg.AlternateTLS = first, []*config.TLS{second, third}
	cfg.Hosts[1].TLSIndex, cfg.Hosts[2].TLSIndex, cfg.Hosts[3].NoTLS = 1, 2, true
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	defer s.Close()
	for i, want := range []*config.TLS{first, second, third, nil} {
		if got := c.state.Load().hosts[i].TLS(); got != want {
			t.Errorf("host %d has %v, want %v", i, got, want)
		}
	}
}
