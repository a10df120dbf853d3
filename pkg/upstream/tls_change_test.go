package upstream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestTLSChangeReplacesConnections verifies that a change of the TLS configuration of a host
// replaces its connections.
func TestTLSChangeReplacesConnections(t *testing.T) {
	with := func(tls *config.TLS, no bool) *config.Cluster {
		c := cluster("web", "a")
		c.TLS, c.Hosts[0].NoTLS = tls, no
		return c
	}
	which := func(i int, more ...*config.TLS) *config.Cluster {
		c := with(&config.TLS{ServerName: "a"}, false)
		c.AlternateTLS, c.Hosts[0].TLSIndex = more, i
		return c
	}
	on, other := &config.TLS{ServerName: "a"}, &config.TLS{ServerName: "b"}
	for _, test := range []struct {
		name          string
		before, after *config.Cluster
		dials         int
	}{
		{"no change", with(on, false), with(&config.TLS{ServerName: "a"}, false), 1},
		{"TLS enabled", with(nil, false), with(on, false), 2},
		{"TLS disabled", with(on, false), with(nil, false), 2},
		{"TLS changed", with(on, false), with(other, false), 2},
		{"NoTLS set for the host", with(on, false), with(on, true), 2},
		{"TLSIndex of the host changed", which(1, on, other), which(2, on, other), 2},
		{"alternate TLS of the host changed", which(1, on), which(1, other), 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newFakeConnector()
			s, c := newTestCluster(t, w, test.before)
			serveOne(t, c)
			apply(t, s, test.after)
			serveOne(t, c)
			if n := len(w.dialed()); n != test.dials {
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
