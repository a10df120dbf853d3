package e2e

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// recordRequests returns a handler that sends the path and the body of each request to copies.
func recordRequests(copies chan<- string) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the receiver of copies reports the failure
		}
		if isCall(r) {
			body = body[len(message("")):]
		}
		copies <- r.URL.Path + " " + string(body)
	}
}

// mirror verifies that copies use the protocol of the client unless the filter sets another one.
// Each case with a copy waits for it, so that an unexpected copy of an earlier case is detected.
func (p *protocolPair) mirror() feature {
	awaitCopies := func(want string, times int) func(t *testing.T, _ []httpResponse) {
		return func(t *testing.T, _ []httpResponse) {
			for range times {
				select {
				case got := <-p.copies:
					if got != want {
						t.Errorf("the copy is %q, want %q", got, want)
					}
				case <-time.After(waitTimeout):
					t.Fatalf("no copy after %v, want %q", waitTimeout, want)
				}
			}
		}
	}
	policy := func(prefix string, policy object) object {
		return routeTo(prefix, "app").with(object{"request_mirror_policies": policy})
	}
	return feature{
		name:    "mirror",
		filters: list{streamFilter("mirror", object{"cluster": "shadow", "max_body_size": 16})},
		routes: []object{
			routeWithFilter("/none", "mirror", object{}),
			routeWithFilter("/twice", "mirror", object{"cluster": "second-shadow", "upstream_protocol": p.upstream, "amplification": 2}),
			policy("/never", object{"cluster": "shadow", "percent": 0}),
			policy("/policy", object{"cluster": "shadow", "percent": 100}),
		},
		clusters: list{cluster("shadow", nil, p.shadow[0]), cluster("second-shadow", nil, p.shadow[1])},
		cases: []requestCase{
			{name: "without body", path: "/a", status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}, check: awaitCopies("/a ", 1)},
			{name: "with body", method: "POST", path: "/a", requestBody: "kept", status: 200, code: "0", body: "kept", check: awaitCopies("/a kept", 1)},
			{name: "route without the filter", method: "POST", path: "/none", requestBody: "kept", status: 200, code: "0", body: "kept"},
			{name: "body too large", method: "POST", path: "/large", requestBody: "more than 16 bytes", status: 200, code: "0", body: "more than 16 bytes"},
			{name: "amplification 2", path: "/twice", status: 200, code: "0", check: awaitCopies("/twice ", 2)},
			{name: "0 percent", path: "/never", status: 200, code: "0"},
			{name: "100 percent", path: "/policy", status: 200, code: "0", check: awaitCopies("/policy ", 1)},
		},
	}
}
