package xds

import (
	"strings"
	"testing"

	setmetadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_metadata/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// TestRejectedListenerIsNACKed verifies that Weft rejects a listener with an unknown filter and
// names the field in the NACK, while it applies a valid listener of the same update and keeps the
// previous version of the rejected one.
func TestRejectedListenerIsNACKed(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host := newControlPlane(t), newHost()
			startWeft(t, bootstrap(apiType, p.address, host+":9901"), nil)
			c, url := client(t), "http://"+host
			p.put(httpListener("bad", host+":10000", "routes"), routeTable("routes", directRoute("/", "ok")))
			p.publish()
			awaitResponse(t, c, url+":10000/", "ok")
			l := startLoad(t, url+":10000/")

			ackCount := p.ackCount()
			p.put(
				httpListener("bad", host+":10000", "routes", &hcmv3.HttpFilter{
					Name: "unknown-filter", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: mustAny(&setmetadatav3.Config{})},
				}),
				httpListener("good", host+":10001", "routes"),
			)
			p.publish()
			a := p.await(ackCount, func(a ack) bool { return a.nackDetail != "" })
			if a.typeName != "Listener" {
				t.Errorf("rejected a %s, want a Listener", a.typeName)
			}
			for _, want := range []string{"bad: ", "filter_chains[0].filters[0].typed_config.http_filters[0]", "unknown-filter"} {
				if !strings.Contains(a.nackDetail, want) {
					t.Errorf("the NACK is %q, want %q in it", a.nackDetail, want)
				}
			}
			if strings.Contains(a.nackDetail, "good: ") {
				t.Errorf("the NACK is %q, want nothing about the good listener", a.nackDetail)
			}
			awaitResponse(t, c, url+":10001/", "ok")
			awaitResponse(t, c, url+":10000/", "ok")

			ackCount = p.ackCount()
			p.put(httpListener("bad", host+":10002", "routes"))
			p.publish()
			awaitResponse(t, c, url+":10002/", "ok")
			p.await(ackCount, func(a ack) bool { return a == ack{typeName: "Listener"} })
			l.cancel() // the address of the load has no listener any more
			l.senders.Wait()
		})
	}
}
