package xds

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// TestUpdates verifies that added, changed and removed resources of each type become active while
// requests run, and that no request fails.
func TestUpdates(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host := newControlPlane(t), newHost()
			first, second, third := startOrigin(t, "first"), startOrigin(t, "second"), startOrigin(t, "third")
			startWeft(t, bootstrap(apiType, p.address, host+":9901"), nil)
			c, url := client(t), "http://"+host+":10000"
			p.put(edsCluster("app"), endpointsOf("app", first), httpListener("front", host+":10000", "routes"), routeTable("routes", routeTo("/", "app")))
			p.publish()
			awaitResponse(t, c, url+"/", "first")
			l := startLoad(t, url+"/")
			for _, step := range updateSteps(p, host, second, third) {
				step.apply()
				p.publish()
				eventually(t, func() string {
					for url, want := range step.wantResponses {
						got, err := get(t.Context(), c, url)
						if err != nil {
							got = "unreachable"
						}
						if got != want {
							return fmt.Sprintf("%s: %s responded %q, want %q: %v", step.name, url, got, want, err)
						}
					}
					return ""
				})
				l.awaitMore(10)
			}
			l.stop()
			if nacks := p.nacks(); len(nacks) > 0 {
				t.Errorf("rejected: %v, want none", nacks)
			}
		})
	}
}

// step is a change and its expected result: the response of each URL, or "unreachable".
type step struct {
	name          string
	apply         func()
	wantResponses map[string]string
}

func updateSteps(p *controlPlane, host, second, third string) []step {
	url := func(port int, path string) string { return fmt.Sprintf("http://%s:%d%s", host, port, path) }
	return []step{
		{"changed endpoint", func() { p.put(endpointsOf("app", second)) }, map[string]string{url(10000, "/"): "second"}},
		{"new cluster with a route", func() {
			p.put(edsCluster("more"), endpointsOf("more", third), routeTable("routes", routeTo("/more", "more"), routeTo("/", "app")))
		}, map[string]string{url(10000, "/more"): "third", url(10000, "/"): "second"}},
		{"changed cluster", func() {
			more := edsCluster("app")
			more.ConnectTimeout = durationpb.New(3 * time.Second)
			p.put(more, routeTable("routes", directRoute("/direct", "ok"), routeTo("/more", "more"), routeTo("/", "app")))
		}, map[string]string{url(10000, "/direct"): "ok", url(10000, "/"): "second"}},
		{"changed route and removed cluster", func() {
			p.put(routeTable("routes", routeTo("/", "app")))
			p.removeCluster("more")
		}, map[string]string{url(10000, "/more"): "second"}},
		{"second listener with separate routes", func() {
			p.put(httpListener("side", host+":10001", "others"), routeTable("others", directRoute("/", "side")))
		}, map[string]string{url(10001, "/"): "side", url(10000, "/"): "second"}},
		{"listener with a changed address", func() {
			p.put(httpListener("side", host+":10002", "others"))
		}, map[string]string{url(10002, "/"): "side", url(10001, "/"): "unreachable", url(10000, "/"): "second"}},
		{"removed listener", func() {
			delete(p.listeners, "side")
			delete(p.routes, "others")
		}, map[string]string{url(10002, "/"): "unreachable", url(10000, "/"): "second"}},
	}
}
