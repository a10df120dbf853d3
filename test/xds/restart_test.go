package xds

import (
	"fmt"
	"testing"
)

// TestRestart verifies that the active configuration does not change while a control plane is down,
// comes back without resources and flaps, and that Weft follows it again when it has resources.
func TestRestart(t *testing.T) {
	for _, form := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			p, host := newPlane(t), newHost()
			first, second := origin(t, "first"), origin(t, "second")
			startWeft(t, bootstrap(form, p.address, host+":9901"), nil)
			c, url := client(t), "http://"+host+":10000"
			p.put(edsCluster("app"), endpointsOf("app", first), front("front", host+":10000", "routes"), tableOf("routes", to("/", "app")))
			p.publish()
			answers(t, c, url+"/", "first")
			l := playLoad(t, url+"/")

			p.stop() // the control plane is down
			l.goOn(100)

			p.start() // it is back, without resources
			p.reached()
			l.goOn(100)
			answers(t, c, url+"/", "first")

			for range 3 { // it flaps
				p.stop()
				p.start()
				p.publish()
				p.reached()
			}
			p.put(endpointsOf("app", second))
			p.publish()
			answers(t, c, url+"/", "second")
			l.end()
			if all := p.refusals(); len(all) > 0 {
				t.Errorf("refused: %v", all)
			}
		})
	}
}

// reached waits until the restarted control plane has received a request.
func (p *plane) reached() {
	p.t.Helper()
	eventually(p.t, func() string {
		if p.cache.GetStatusInfo("all") == nil {
			return fmt.Sprintf("nobody asks the control plane; %d streams were opened", p.streams())
		}
		return ""
	})
}
