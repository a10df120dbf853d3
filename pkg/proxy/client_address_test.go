package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestClientAddressInFiltersAndVariables verifies that rbac's remote_ip and variables use the
// address that trusted proxies report, for each request of a connection.
func TestClientAddressInFiltersAndVariables(t *testing.T) {
	app := origin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("x-client")+" "+r.Header.Get("x-forwarded-for")) // the client reports a failed write
	})
	const rbacFilter = `{"type": "rbac", "config": {"rules": {"action": "DENY", "policies": {"one": {
		"permissions": [{"any": true}], "principals": [{"remote_ip": {"address_prefix": "203.0.113.66", "prefix_len": 32}}]}}}}}`
	routes := `{"match": {"prefix": "/"}, "route": {"cluster_name": "app", "request_headers_to_add": [
		{"header": {"key": "x-client", "value": "%downstream_remote_ip% %downstream_remote_address%"}}]}}`
	for _, test := range []struct {
		name, proxy  string
		forwardedFor []string // X-Forwarded-For, one per request; "": no header
		want         []string
	}{
		{"no trusted proxy", `{"x_forwarded": "append"}`, []string{"203.0.113.66"}, []string{"127.0.0.1 HERE 203.0.113.66, 127.0.0.1"}},
		{
			"one trusted proxy", `{"x_forwarded": "append", "xff_num_trusted_hops": 1}`,
			[]string{"203.0.113.66, 203.0.113.9", "203.0.113.66", "", "unknown"},
			[]string{"203.0.113.9 203.0.113.9:0 203.0.113.66, 203.0.113.9, 127.0.0.1", "403", "127.0.0.1 HERE 127.0.0.1", "127.0.0.1 HERE unknown, 127.0.0.1"},
		},
		{
			"direct peer is also trusted", `{"use_remote_address": false, "xff_num_trusted_hops": 1}`,
			[]string{"203.0.113.9, 203.0.113.66", "203.0.113.66, 203.0.113.9", "2001:db8::1, 203.0.113.9"},
			[]string{"203.0.113.9 203.0.113.9:0 203.0.113.9, 203.0.113.66", "403", "2001:db8::1 [2001:db8::1]:0 2001:db8::1, 203.0.113.9"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, address := setup{filters: rbacFilter, routes: routes, clusters: cluster("app", app), proxy: `"extend_config": ` + test.proxy}.run(t)
			c := dialClient(t, address)
			localAddr := c.LocalAddr().String()
			for i, value := range test.forwardedFor {
				head := "GET / HTTP/1.1\r\nHost: a\r\n"
				if value != "" {
					head += "X-Forwarded-For: " + value + "\r\n"
				}
				resp := c.roundTrip(head + "\r\n")
				got := resp.body
				if resp.StatusCode != 200 {
					got = resp.Status[:3]
				}
				if want := strings.Replace(test.want[i], "HERE", localAddr, 1); got != want {
					t.Errorf("X-Forwarded-For %q: %q, want %q", value, got, want)
				}
			}
		})
	}
}
