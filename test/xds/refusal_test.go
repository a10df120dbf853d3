package xds

import (
	"strings"
	"testing"

	setmetadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_metadata/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// TestRefusal verifies that Weft rejects a listener with an unknown filter and names the field in
// the NACK, while it applies a valid listener of the same update and keeps the previous version of
// the rejected one.
func TestRefusal(t *testing.T) {
	for _, form := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			p, host := newPlane(t), newHost()
			startWeft(t, bootstrap(form, p.address, host+":9901"), nil)
			c, url := client(t), "http://"+host
			p.put(front("bad", host+":10000", "routes"), tableOf("routes", says("/", "so")))
			p.publish()
			answers(t, c, url+":10000/", "so")
			l := playLoad(t, url+":10000/")

			heard := p.heard()
			p.put(
				front("bad", host+":10000", "routes", &hcmv3.HttpFilter{
					Name: "unknown-filter", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&setmetadatav3.Config{})},
				}),
				front("good", host+":10001", "routes"),
			)
			p.publish()
			a := p.await(heard, func(a answer) bool { return a.refusal != "" })
			if a.kind != "Listener" {
				t.Errorf("a %s was refused, want a Listener", a.kind)
			}
			for _, want := range []string{"bad: ", "filter_chains[0].filters[0].typed_config.http_filters[0]", "unknown-filter"} {
				if !strings.Contains(a.refusal, want) {
					t.Errorf("the refusal is %q, want %q in it", a.refusal, want)
				}
			}
			if strings.Contains(a.refusal, "good: ") {
				t.Errorf("the refusal is %q, want nothing of the good listener", a.refusal)
			}
			answers(t, c, url+":10001/", "so")
			answers(t, c, url+":10000/", "so")

			heard = p.heard()
			p.put(front("bad", host+":10002", "routes"))
			p.publish()
			answers(t, c, url+":10002/", "so")
			p.await(heard, func(a answer) bool { return a == answer{kind: "Listener"} })
			l.cancel() // the address of the load has no listener any more
			l.playing.Wait()
		})
	}
}
