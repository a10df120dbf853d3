package e2e

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/frame"
)

func TestHealthRequestsGetLocalReply(t *testing.T) {
	t.Parallel()
	url := filterProxy(t, list{streamFilter("healthcheck", object{"endpoint": "/healthz"})})
	if got := sendRequest(t, newClient(t), "GET", url+"/healthz?verbose", ""); got.status != 200 || got.body != "ok\n" {
		t.Errorf("GET /healthz: %d %q; want 200 \"ok\"", got.status, got.body)
	}
	for method, path := range map[string]string{"GET": "/healthz/db", "POST": "/healthz"} {
		if got := sendRequest(t, newClient(t), method, url+path, ""); !strings.HasPrefix(got.body, method+" "+path+" ") {
			t.Errorf("%s %s: %d %q, want it from the upstream", method, path, got.status, got.body)
		}
	}
}

// TestHeartbeatsGetLocalReply verifies that Weft responds to RPC heartbeats without a
// provider. Files of RPC sidecars have the healthcheck filter for this, but it is not needed.
func TestHeartbeatsGetLocalReply(t *testing.T) {
	t.Parallel()
	for _, p := range frame.All() {
		for name, filters := range map[string]list{
			"with the filter":    {streamFilter("healthcheck", object{"passthrough": false, "cache_time": "360s"})},
			"without the filter": {},
		} {
			t.Run(p.Name()+" "+name, func(t *testing.T) {
				t.Parallel()
				front := freeAddress()
				startWeft(t, setup{
					listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
						"downstream_protocol": p.Name(), "upstream_protocol": p.Name(), "router_config_name": "front"}},
						object{"stream_filters": filters})},
					tables:   list{routeTable("front", routeTo("/", "app"))},
					clusters: list{cluster("app", nil, "127.0.0.1:1")},
				}.config())
				heartbeat(t, front, p)
			})
		}
	}
}

// heartbeat sends two pings on one connection and verifies that each gets a pong.
func heartbeat(t *testing.T, address string, p *frame.Protocol) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := c.Write(p.AppendPing(p.AppendPing(nil, 41), 42)); err != nil {
		t.Fatal(err)
	}
	frames := frameReader{c: c, p: p}
	for want := uint64(41); want <= 42; want++ {
		if got, err := frames.next(); err != nil || got.Kind != frame.Pong || got.ID != want {
			t.Errorf("%s: frame %v with id %d, %v; want a pong with id %d", p.Name(), got.Kind, got.ID, err, want)
		}
	}
}
