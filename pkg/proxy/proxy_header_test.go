package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

const proxyProtocolFront = `"listener_filters": [{"type": "proxy_protocol", "config": {}}], "listener_filters_timeout": "10s"`

func TestProxyProtocolSetsClientAddress(t *testing.T) {
	forwardedFor := make(chan string, 1)
	app := origin(t, func(_ http.ResponseWriter, r *http.Request) { forwardedFor <- r.Header.Get("X-Forwarded-For") })
	_, address := setup{
		listener: proxyProtocolFront, proxy: `"extend_config": {"x_forwarded": "set"}`, routes: routeTo("app"), clusters: cluster("app", app),
	}.run(t)
	c := dialClient(t, address)
	c.send("PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n")
	for range 2 { // the connection is idle between the requests
		c.roundTrip(get("/"))
		if got := <-forwardedFor; got != "2001:db8::1" {
			t.Errorf("X-Forwarded-For = %q, want the address in the PROXY header", got)
		}
	}
}

func TestMissingProxyProtocolHeaderIsCounted(t *testing.T) {
	r, address := setup{listener: proxyProtocolFront, routes: directRoute("hello")}.run(t)
	c := dialClient(t, address)
	c.send(get("/"))
	if !c.ended() {
		t.Error("the connection was served")
	}
	r.await(1, "weft_listener_connections_closed_total", "front", "proxy_protocol")
}

func TestProxyProtocolChangeDrainsConnections(t *testing.T) {
	newListener := func(p *config.ProxyProtocol) *config.Listener {
		l := setup{routes: directRoute("x")}.snapshot(t).Listeners[0]
		l.ProxyProtocol = p
		return l
	}
	newProxyProtocol := func() *config.ProxyProtocol {
		return &config.ProxyProtocol{Timeout: time.Second, DisallowedVersions: []int{1}}
	}
	for _, test := range []struct {
		name          string
		before, after *config.ProxyProtocol
		want          bool
	}{
		{"unchanged", newProxyProtocol(), newProxyProtocol(), true},
		{"added", nil, newProxyProtocol(), false},
		{"changed", newProxyProtocol(), &config.ProxyProtocol{Timeout: time.Second}, false},
	} {
		a, b := newListener(test.before), newListener(test.after)
		if got := sameEngine(a, b, a.FilterChains[0], b.FilterChains[0]); got != test.want {
			t.Errorf("%s: sameEngine = %t, want %t", test.name, got, test.want)
		}
	}
}

// firstLineServer responds to each connection with the first line that it receives.
func firstLineServer(t *testing.T) (address string) {
	t.Helper()
	return serveEach(t, func(nc net.Conn) {
		line, _ := bufio.NewReader(nc).ReadString('\n')
		_, _ = io.WriteString(nc, line)
	})
}

func TestProxyProtocolHeaderIsSentToHosts(t *testing.T) {
	r := newRig(t)
	r.apply(parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0", `+proxyProtocolFront+`,
		"filter_chains": [{"filters": [{"type": "tcp_proxy", "config": {"cluster": "app"}}]}]}]}],
		"cluster_manager": {"clusters": [{"name": "app", "proxy_protocol": "V1", "hosts": [{"address": "`+firstLineServer(t)+`"}]}]}}`))
	for name, test := range map[string]struct{ input, want string }{
		"proxied address":       {"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nx", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"},
		"direct remote address": {"PROXY UNKNOWN\r\nx", "PROXY TCP4 127.0.0.1 127.0.0.1 "},
	} {
		c := dialClient(t, r.address("front"))
		c.send(test.input)
		if got, err := io.ReadAll(c); !strings.HasPrefix(string(got), test.want) || err != nil {
			t.Errorf("%s: the host received %q, %v; want %q", name, got, err, test.want)
		}
	}
}
