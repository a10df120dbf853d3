package xds

import (
	"fmt"
	"testing"
)

// TestControlPlaneRestart verifies that the active configuration does not change while a control
// plane is down, comes back without resources and flaps, and that Weft follows it again when it has
// resources.
func TestControlPlaneRestart(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host := newControlPlane(t), newHost()
			first, second := startOrigin(t, "first"), startOrigin(t, "second")
			startWeft(t, bootstrap(apiType, p.address, host+":9901"), nil)
			c, url := client(t), "http://"+host+":10000"
			p.put(edsCluster("app"), endpointsOf("app", first), httpListener("front", host+":10000", "routes"), routeTable("routes", routeTo("/", "app")))
			p.publish()
			awaitResponse(t, c, url+"/", "first")
			l := startLoad(t, url+"/")

			p.stop() // the control plane is down
			l.awaitMore(100)

			p.start() // the control plane is back, without resources
			p.awaitReconnect()
			l.awaitMore(100)
			awaitResponse(t, c, url+"/", "first")

			for range 3 { // the control plane flaps
				p.stop()
				p.start()
				p.publish()
				p.awaitReconnect()
			}
			p.put(endpointsOf("app", second))
			p.publish()
			awaitResponse(t, c, url+"/", "second")
			l.stop()
			if nacks := p.nacks(); len(nacks) > 0 {
				t.Errorf("rejected: %v, want none", nacks)
			}
		})
	}
}

// awaitReconnect waits until the restarted control plane has received a request.
func (p *controlPlane) awaitReconnect() {
	p.t.Helper()
	eventually(p.t, func() string {
		if p.cache.GetStatusInfo("all") == nil {
			return fmt.Sprintf("no request at the control plane; %d streams opened", p.streams())
		}
		return ""
	})
}
