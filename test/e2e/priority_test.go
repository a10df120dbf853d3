package e2e

import (
	"testing"
)

// TestPrioritiesHaveSeparateLimits verifies that each priority has its own circuit breakers. While
// an upstream holds as many requests as the default priority allows, requests of a route with the
// priority HIGH are served up to their own limit.
func TestPrioritiesHaveSeparateLimits(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]any{
		"list": list{
			object{"max_requests": 2, "max_connections": 3},
			object{"priority": "HIGH", "max_requests": 1},
		},
		"thresholds": object{"thresholds": list{
			object{"priority": "HIGH", "max_requests": 1},
			object{"priority": "DEFAULT", "max_requests": 2, "max_connections": 3},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := startHoldingUpstream(t)
			front := freeAddress()
			w := startWeft(t, setup{
				listeners: list{httpListener("front", front)},
				tables:    list{routeTable("front", routeTo("/high", "app", object{"priority": "HIGH"}), routeTo("/", "app"))},
				clusters:  list{cluster("app", object{"circuit_breakers": limits}, app.address)},
			}.config())
			url := "http://" + front
			first, second := requestInBackground(t, url), requestInBackground(t, url)
			app.await(t)
			app.await(t)
			if got := sendRequest(t, newClient(t), "GET", url, ""); got.status != 503 {
				t.Errorf("additional request of default priority: %d, want 503", got.status)
			}
			high := requestInBackground(t, url+"/high")
			app.await(t)
			if got := sendRequest(t, newClient(t), "GET", url+"/high", ""); got.status != 503 {
				t.Errorf("additional request of high priority: %d, want 503", got.status)
			}
			for _, m := range []struct {
				name, priority, limit string
				want                  float64
			}{
				{"weft_cluster_overflow_total", "default", "requests", 1},
				{"weft_cluster_overflow_total", "high", "requests", 1},
				{"weft_cluster_breaker_open", "default", "requests", 1},
				{"weft_cluster_breaker_open", "default", "connections", 0},
				{"weft_cluster_breaker_open", "high", "requests", 1},
				{"weft_cluster_breaker_remaining", "default", "requests", 0},
			} {
				if got := w.metric(m.name, `priority="`+m.priority+`"`, `limit="`+m.limit+`"`); got != m.want {
					t.Errorf("%s of %s %s is %v, want %v", m.name, m.priority, m.limit, got, m.want)
				}
			}
			open := 0
			for _, b := range w.clusterState("app").Breakers {
				if b.Open && b.Used == b.Most {
					open++
				}
			}
			if open != 2 {
				t.Errorf("/clusters reports %+v, want 2 reached limits", w.clusterState("app").Breakers)
			}
			close(app.release)
			for _, wait := range []func() httpResponse{first, second, high} {
				if got := wait(); got.status != 200 {
					t.Errorf("pending request: %d, want 200", got.status)
				}
			}
			eventually(t, "no limit is in use", func() bool {
				return w.metric("weft_cluster_breaker_remaining", `limit="requests"`) == 3 && w.metric("weft_cluster_breaker_open", `limit="requests"`) == 0
			})
			if n := app.opened.Load(); n != 3 {
				t.Errorf("%d connections were opened, want 3", n)
			}
		})
	}
}
