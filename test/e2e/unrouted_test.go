package e2e

import "testing"

// TestFiltersRunWithoutRoute verifies that filters apply to calls of a service that has no virtual
// host.
func TestFiltersRunWithoutRoute(t *testing.T) {
	t.Parallel()
	const dubboDenied = 70
	for name, test := range map[string]struct {
		filter any
		want   []byte
	}{
		"rbac":            {streamFilter("rbac", object{"rules": object{"policies": object{}}}), []byte{dubboDenied}},
		"local_ratelimit": {streamFilter("local_ratelimit", object{"token_bucket": object{"max_tokens": 1, "fill_interval": "1h"}}), []byte{dubboNotFound, dubboExhausted}},
		"fault":           {streamFilter("fault", object{"abort": object{"status": 503, "percentage": 100}, "headers": list{object{"name": "service", "value": "org.example.Bank"}}}), []byte{dubboErred}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := rpcFilterProxy(t, list{test.filter}, map[string]*provider{"shop": startProvider(t, "shop", nil)}, routeTo("/", "shop"))
			client := newConsumer(t, address)
			for n, want := range test.want {
				if got := client.call(invocation{service: "org.example.Bank", method: "pay"}); got.status != want {
					t.Errorf("call %d: %d %q, want %d", n+1, got.status, got.text, want)
				}
			}
		})
	}
}
