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
	for _, form := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			p, host := newPlane(t), newHost()
			first, second, third := origin(t, "first"), origin(t, "second"), origin(t, "third")
			startWeft(t, bootstrap(form, p.address, host+":9901"), nil)
			c, url := client(t), "http://"+host+":10000"
			p.put(edsCluster("app"), endpointsOf("app", first), front("front", host+":10000", "routes"), tableOf("routes", to("/", "app")))
			p.publish()
			answers(t, c, url+"/", "first")
			l := playLoad(t, url+"/")
			for _, step := range steps(p, host, second, third) {
				step.do()
				p.publish()
				eventually(t, func() string {
					for url, want := range step.then {
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
				l.goOn(10)
			}
			l.end()
			if all := p.refusals(); len(all) > 0 {
				t.Errorf("refused: %v", all)
			}
		})
	}
}

// step is a change and its expected result: the response of each URL, or "nothing" if it is
// unreachable.
type step struct {
	name string
	do   func()
	then map[string]string
}

func steps(p *plane, host, second, third string) []step {
	at := func(port int, path string) string { return fmt.Sprintf("http://%s:%d%s", host, port, path) }
	return []step{
		{"another endpoint", func() { p.put(endpointsOf("app", second)) }, map[string]string{at(10000, "/"): "second"}},
		{"a cluster and a route to it", func() {
			p.put(edsCluster("more"), endpointsOf("more", third), tableOf("routes", to("/more", "more"), to("/", "app")))
		}, map[string]string{at(10000, "/more"): "third", at(10000, "/"): "second"}},
		{"a cluster that is another", func() {
			more := edsCluster("app")
			more.ConnectTimeout = durationpb.New(3 * time.Second)
			p.put(more, tableOf("routes", says("/said", "so"), to("/more", "more"), to("/", "app")))
		}, map[string]string{at(10000, "/said"): "so", at(10000, "/"): "second"}},
		{"a route that is another, and a cluster removed", func() {
			p.put(tableOf("routes", to("/", "app")))
			p.removeCluster("more")
		}, map[string]string{at(10000, "/more"): "second"}},
		{"a second listener with routes of its own", func() {
			p.put(front("side", host+":10001", "others"), tableOf("others", says("/", "beside")))
		}, map[string]string{at(10001, "/"): "beside", at(10000, "/"): "second"}},
		{"a listener that moves", func() {
			p.put(front("side", host+":10002", "others"))
		}, map[string]string{at(10002, "/"): "beside", at(10001, "/"): "nothing", at(10000, "/"): "second"}},
		{"a listener removed", func() {
			delete(p.listeners, "side")
			delete(p.routes, "others")
		}, map[string]string{at(10002, "/"): "nothing", at(10000, "/"): "second"}},
	}
}
