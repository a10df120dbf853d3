package proxy

import (
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

// TestHostsUseTheirTLSContext: each is believed by another authority, one
// whatever its name, and one is spoken to in plaintext.
func TestHostsUseTheirTLSContext(t *testing.T) {
	first, second := testpki.New(t), testpki.New(t)
	a := secureOrigin(t, first.Issue(testpki.Spec{}).TLS, "a")
	b := secureOrigin(t, second.Issue(testpki.Spec{DNS: []string{"somebody.example"}}).TLS, "b")
	c := origin(t, respondText("c"))
	s := setup{routes: to("app"), address: freeAddress(t), clusters: `{"name": "app", "lb_type": "LB_ROUNDROBIN", "hosts": [
		{"address": "` + a + `"}, {"address": "` + b + `"}, {"address": "` + c + `", "tls_disable": true}]}`}
	next := s.snapshot(t)
	app := next.Clusters[0]
	app.TLS = &config.TLS{TrustedCA: config.PEM{Text: string(first.PEM)}}
	app.AlternateTLS = []*config.TLS{{TrustedCA: config.PEM{Text: string(second.PEM)}, SkipHostnameCheck: true}}
	app.Hosts[1].TLSIndex = 1
	r := newRig(t)
	r.apply(next)
	seen := map[string]int{}
	for range 6 {
		got := roundTrip(t, s.address, get("/"))
		if got.StatusCode != 200 {
			t.Fatalf("%d %q\n%s", got.StatusCode, got.body, r.log)
		}
		seen[got.body]++
	}
	if len(seen) != 3 {
		t.Errorf("answers came from %v, want them from all three", seen)
	}

	// Without the word that any name will do, the second host is nobody to believe.
	again := *app
	again.Hosts = again.Hosts[1:2]
	again.AlternateTLS = []*config.TLS{{TrustedCA: config.PEM{Text: string(second.PEM)}}}
	changed := *next
	changed.Clusters = []*config.Cluster{&again}
	r.apply(&changed)
	if got := roundTrip(t, s.address, get("/")); got.StatusCode != 502 {
		t.Errorf("a host of another name answers %d %q, want that it is not believed", got.StatusCode, got.body)
	}
}
