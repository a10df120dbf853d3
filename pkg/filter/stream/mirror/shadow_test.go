package mirror

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestShadowHostAndForwardedFor verifies that copies have the same authority and X-Forwarded-For as
// in Envoy.
func TestShadowHostAndForwardedFor(t *testing.T) {
	for _, test := range []struct{ settings, host, fields, want string }{
		{`{"cluster": "shadow", "shadow_host_suffix": true}`, "shop.test", "", "POST shop.test-shadow/buy?n=1 X-A:1"},
		{`{"cluster": "shadow", "shadow_host_suffix": true}`, "shop.test:99", "", "POST shop.test-shadow:99/buy?n=1 X-A:1"},
		{`{"cluster": "shadow", "shadow_host_suffix": true}`, "[::1]", "", "POST [::1]-shadow/buy?n=1 X-A:1"},
		{`{"cluster": "shadow"}`, "shop.test", "", "POST shop.test/buy?n=1 X-A:1"},
		{`{"cluster": "shadow", "append_x_forwarded_for": true}`, "shop.test", "", "POST shop.test/buy?n=1 X-A:1 X-Forwarded-For:192.0.2.2"},
		{`{"cluster": "shadow", "append_x_forwarded_for": true}`, "shop.test", "1.2.3.4", "POST shop.test/buy?n=1 X-A:1 x-forwarded-for:1.2.3.4,192.0.2.2"},
		{`{"cluster": "shadow", "append_x_forwarded_for": true}`, "shop.test", "1.2.3.4, 192.0.2.2", "POST shop.test/buy?n=1 X-A:1 x-forwarded-for:1.2.3.4, 192.0.2.2"},
	} {
		x := newPOST("", true)
		x.Request.Body, x.Request.Authority = nil, test.host
		x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.2"}
		if test.fields != "" {
			x.Request.Header.Add("x-forwarded-for", test.fields)
		}
		cluster := new(fakeCluster)
		serveAndWait(t, filtertest.Settings(test.settings), cluster, 1, x)
		if got := strings.Join(cluster.copies, ";"); !slices.Equal(cluster.copies, []string{test.want}) {
			t.Errorf("%s, host %s: %q, want %q", test.settings, test.host, got, test.want)
		}
	}
}
