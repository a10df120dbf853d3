package e2e

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// notes returns a handler that sends the path and the body of each request to copies.
func notes(copies chan<- string) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return // the receiver of copies reports the failure
		}
		if isCall(r) {
			content = content[len(message("")):]
		}
		copies <- r.URL.Path + " " + string(content)
	}
}

// mirror verifies that copies use the protocol of the client unless the filter sets another one.
// Each trial with a copy waits for it, so that an unexpected copy of an earlier trial is detected.
func (p *pair) mirror() feature {
	copied := func(want string, times int) func(t *testing.T, _ []answer) {
		return func(t *testing.T, _ []answer) {
			for range times {
				select {
				case got := <-p.copies:
					if got != want {
						t.Errorf("the copy is %q, want %q", got, want)
					}
				case <-time.After(patience):
					t.Fatalf("no copy after %v, want %q", patience, want)
				}
			}
		}
	}
	policy := func(prefix string, policy object) object {
		return to(prefix, "app").with(object{"request_mirror_policies": policy})
	}
	return feature{
		name:    "mirror",
		filters: list{filterOf("mirror", object{"cluster": "shadow", "max_body_size": 16})},
		routes: []object{
			own("/none", "mirror", object{}),
			own("/twice", "mirror", object{"cluster": "far-shadow", "upstream_protocol": p.up, "amplification": 2}),
			policy("/never", object{"cluster": "shadow", "percent": 0}),
			policy("/policy", object{"cluster": "shadow", "percent": 100}),
		},
		clusters: list{cluster("shadow", nil, p.shadow[0]), cluster("far-shadow", nil, p.shadow[1])},
		trials: []trial{
			{name: "a request", path: "/a", status: 200, code: "0", want: map[string]string{"X-App": "app"}, judge: copied("/a ", 1)},
			{name: "with content", method: "POST", path: "/a", content: "kept", status: 200, code: "0", body: "kept", judge: copied("/a kept", 1)},
			{name: "a route without", method: "POST", path: "/none", content: "kept", status: 200, code: "0", body: "kept"},
			{name: "too much content", method: "POST", path: "/large", content: "more than 16 bytes", status: 200, code: "0", body: "more than 16 bytes"},
			{name: "twice", path: "/twice", status: 200, code: "0", judge: copied("/twice ", 2)},
			{name: "a policy of none", path: "/never", status: 200, code: "0"},
			{name: "a policy of all", path: "/policy", status: 200, code: "0", judge: copied("/policy ", 1)},
		},
	}
}
