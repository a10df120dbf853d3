package upstream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestNoConnectionOutlivesAChangeOfItsTLS: what is open was made as the configuration
// of before said.
func TestNoConnectionOutlivesAChangeOfItsTLS(t *testing.T) {
	with := func(tls *config.TLS, no bool) *config.Cluster {
		c := cluster("web", "a")
		c.TLS, c.Hosts[0].NoTLS = tls, no
		return c
	}
	on, other := &config.TLS{ServerName: "a"}, &config.TLS{ServerName: "b"}
	for _, test := range []struct {
		name          string
		before, after *config.Cluster
		dials         int
	}{
		{"nothing changes", with(on, false), with(&config.TLS{ServerName: "a"}, false), 1},
		{"it is turned on", with(nil, false), with(on, false), 2},
		{"it is turned off", with(on, false), with(nil, false), 2},
		{"it is another", with(on, false), with(other, false), 2},
		{"the host is excepted", with(on, false), with(on, true), 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld()
			s, c := one(t, w, test.before)
			do(t, c)
			apply(t, s, test.after)
			do(t, c)
			if n := len(w.dialed()); n != test.dials {
				t.Errorf("%d connections were opened, want %d", n, test.dials)
			}
		})
	}
}
