package xds

import (
	"fmt"
	"testing"
)

// TestRestart has a control plane end, come back with nothing to say, and come back with
// everything: what is in force stays so throughout, and follows again at the end.
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

			p.stop() // it is away
			l.goOn(100)

			p.start() // and back, and knows nothing
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

// reached waits until the control plane that is started now is asked.
func (p *plane) reached() {
	p.t.Helper()
	eventually(p.t, func() string {
		if p.cache.GetStatusInfo("all") == nil {
			return fmt.Sprintf("nobody asks the control plane; %d streams were opened", p.streams())
		}
		return ""
	})
}
