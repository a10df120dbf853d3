package xds

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// TestFlood verifies that 200 updates per second for a minute (10 seconds with -short) of
// endpoints, routes, clusters and a listener fail no request, that Weft accepts every update, and
// that the last update is active at the end.
func TestFlood(t *testing.T) {
	duration := time.Minute
	if testing.Short() {
		duration = 10 * time.Second
	}
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host := newControlPlane(t), newHost()
			origins := []string{startOrigin(t, "first"), startOrigin(t, "second"), startOrigin(t, "third")}
			startWeft(t, bootstrap(apiType, p.address, host+":9901"), nil)
			c, url := client(t), "http://"+host+":10000"
			p.put(edsCluster("app"), endpointsOf("app", origins...), httpListener("front", host+":10000", "routes"), routeTable("routes", routeTo("/", "app")))
			p.publish()
			eventually(t, func() string {
				if got, err := get(t.Context(), c, url+"/"); err != nil || got[0] == '4' || got[0] == '5' {
					return fmt.Sprintf("%q, %v", got, err)
				}
				return ""
			})
			l := startLoad(t, url+"/", url+"/more")
			n := publishOnSchedule(p, origins, host, duration)
			l.stop()
			awaitResponse(t, c, url+"/last", fmt.Sprint(n/4))
			if nacks := p.nacks(); len(nacks) > 0 {
				t.Errorf("%d updates were rejected, the first: %v", len(nacks), nacks[0])
			}
			rate := float64(n) / duration.Seconds()
			t.Logf("%d updates, %.0f per second; %d ACKs and NACKs", n, rate, p.ackCount())
			if rate < 190 {
				t.Skipf("this machine is too busy: only %.0f updates per second", rate)
			}
		})
	}
}

// publishOnSchedule publishes updates at a fixed rate and returns their number. It publishes late
// updates immediately.
func publishOnSchedule(p *controlPlane, origins []string, host string, duration time.Duration) int {
	p.t.Helper()
	const interval = time.Second / 200
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	end := time.After(duration)
	for n := 0; ; n++ {
		timer.Reset(time.Until(start.Add(time.Duration(n) * interval)))
		select {
		case <-timer.C:
		case <-end:
			p.put(routeTable("routes", directRoute("/last", fmt.Sprint(n/4)), routeTo("/", "app")))
			p.publish()
			return n
		}
		switch n % 4 {
		case 0, 2:
			p.put(endpointsOf("app", origins[n/2%3], origins[(n/2+1)%3]))
		case 1:
			p.put(routeTable("routes", directRoute("/last", fmt.Sprint(n/4)), routeTo("/", "app")))
		case 3:
			if n%20 == 3 { // ten times per second
				l := httpListener("front", host+":10000", "routes")
				l.ListenerFiltersTimeout = durationpb.New(time.Duration(10+n%7) * time.Second)
				p.put(l)
				break
			}
			app := edsCluster("app")
			app.ConnectTimeout = durationpb.New(time.Duration(5+n%5) * time.Second)
			p.put(app)
		}
		p.publish()
	}
}
