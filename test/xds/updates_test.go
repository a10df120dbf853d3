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
	for _, form := range apiTypes() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			p, host := newControlPlane(t), newHost()
			first, second, third := startOrigin(t, "first"), startOrigin(t, "second"), startOrigin(t, "third")
			startWeft(t, bootstrap(form, p.address, host+":9901"), nil)
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
							got = "nothing"
						}
						if got != want {
							return fmt.Sprintf("%s: %s says %q, want %q: %v", step.name, url, got, want, err)
						}
					}
					return ""
				})
				l.awaitMore(10)
			}
			l.stop()
			if all := p.nacks(); len(all) > 0 {
				t.Errorf("rejected: %v", all)
			}
		})
	}
}

// step is a change and its expected result: the response of each URL, or "nothing" if it is
// unreachable.
type step struct {
	name          string
	apply         func()
	wantResponses map[string]string
}

func updateSteps(p *controlPlane, host, second, third string) []step {
	at := func(port int, path string) string { return fmt.Sprintf("http://%s:%d%s", host, port, path) }
	return []step{
		{"another endpoint", func() { p.put(endpointsOf("app", second)) }, map[string]string{at(10000, "/"): "second"}},
		{"a cluster and a route to it", func() {
			p.put(edsCluster("more"), endpointsOf("more", third), routeTable("routes", routeTo("/more", "more"), routeTo("/", "app")))
		}, map[string]string{at(10000, "/more"): "third", at(10000, "/"): "second"}},
		{"a cluster that is another", func() {
			more := edsCluster("app")
			more.ConnectTimeout = durationpb.New(3 * time.Second)
			p.put(more, routeTable("routes", directRoute("/said", "so"), routeTo("/more", "more"), routeTo("/", "app")))
		}, map[string]string{at(10000, "/said"): "so", at(10000, "/"): "second"}},
		{"a route that is another, and a cluster removed", func() {
			p.put(routeTable("routes", routeTo("/", "app")))
			p.removeCluster("more")
		}, map[string]string{at(10000, "/more"): "second"}},
		{"a second listener with separate routes", func() {
			p.put(httpListener("side", host+":10001", "others"), routeTable("others", directRoute("/", "beside")))
		}, map[string]string{at(10001, "/"): "beside", at(10000, "/"): "second"}},
		{"a listener that moves", func() {
			p.put(httpListener("side", host+":10002", "others"))
		}, map[string]string{at(10002, "/"): "beside", at(10001, "/"): "nothing", at(10000, "/"): "second"}},
		{"a listener removed", func() {
			delete(p.listeners, "side")
			delete(p.routes, "others")
		}, map[string]string{at(10002, "/"): "nothing", at(10000, "/"): "second"}},
	}
}
