package proxy

import (
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

// TestHostsUseTheirTLSContext verifies that each host of a cluster can have its own CA, no hostname
// check, or plaintext.
func TestHostsUseTheirTLSContext(t *testing.T) {
	first, second := testpki.New(t), testpki.New(t)
	a := tlsOrigin(t, first.Issue(testpki.Spec{}).TLS, "a")
	b := tlsOrigin(t, second.Issue(testpki.Spec{DNS: []string{"somebody.example"}}).TLS, "b")
	c := origin(t, respondText("c"))
	s := setup{routes: routeTo("app"), address: freeAddress(t), clusters: `{"name": "app", "lb_type": "LB_ROUNDROBIN", "hosts": [
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
			t.Fatalf("response %d %q, want 200\n%s", got.StatusCode, got.body, r.log)
		}
		seen[got.body]++
	}
	if len(seen) != 3 {
		t.Errorf("responses came from %v, want all three hosts", seen)
	}

	// Without SkipHostnameCheck, the certificate of the second host does not match.
	checked := *app
	checked.Hosts = checked.Hosts[1:2]
	checked.AlternateTLS = []*config.TLS{{TrustedCA: config.PEM{Text: string(second.PEM)}}}
	changed := *next
	changed.Clusters = []*config.Cluster{&checked}
	r.apply(&changed)
	if got := roundTrip(t, s.address, get("/")); got.StatusCode != 502 {
		t.Errorf("host with another name: response %d %q, want 502", got.StatusCode, got.body)
	}
}
