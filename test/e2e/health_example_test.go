package e2e

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// healthExample runs health.json. A host whose /healthz fails gets no requests, a host that fails
// requests is ejected and returns, and health checks detect providers that are down.
func healthExample(t *testing.T) {
	var failingChecks, failingRequests atomic.Bool
	shop := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case name == "2":
			case r.URL.Path == "/healthz" && failingChecks.Load(), r.URL.Path != "/healthz" && failingRequests.Load():
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, name)
		}
	}
	e := loadExample(t, "health.json")
	startUpstreamAt(t, e.address("3151"), shop("1"))
	startUpstreamAt(t, e.address("3152"), shop("2"))
	w := e.run("health.json")
	w.admin = e.address("3147")
	c, url := newClient(t), "http://"+e.address("3145")+"/"
	if got := distinctBodies(t, c, url, 4); got != "1 2" {
		t.Errorf("responses from %q, want 1 2", got)
	}
	failingChecks.Store(true)
	eventually(t, "the shop fails its checks", func() bool { return w.hostState("shop", e.address("3151")).Why == "failing checks" })
	if got := distinctBodies(t, c, url, 10); got != "2" {
		t.Errorf("responses from %q, want 2", got)
	}
	failingChecks.Store(false)
	eventually(t, "the shop gets requests again", func() bool { return distinctBodies(t, c, url, 4) == "1 2" })
	failingRequests.Store(true)
	failed := 0
	for range 30 {
		if sendRequest(t, c, "GET", url, "").status != 200 {
			failed++
		}
	}
	if failed != 5 {
		t.Errorf("%d of 30 requests failed, want 5", failed)
	}
	failingRequests.Store(false)
	eventually(t, "the ejection is over", func() bool { return distinctBodies(t, c, url, 4) == "1 2" })
	if n := w.metric("weft_cluster_ejections_total", `cluster="shop"`); n != 1 {
		t.Errorf("%v ejections, want 1", n)
	}
	eventually(t, "checks of missing providers fail", func() bool {
		return w.metric("weft_cluster_health_check_failures_total", `cluster="items"`) >= 2
	})
	if h := w.hostState("items", e.address("3153")); h.Health != "down" {
		t.Errorf("missing provider is %s, want down", h.Health)
	}
}
