package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/netns"
)

// testNetwork connects a client and an origin through a gateway that can redirect connections:
//
//	client ──── gateway (weft) ──── origin
//
// The origin serves HTTP/1.1 on ports 80 and 8080 and HTTP/2 without TLS on 81. It echoes bytes on
// 20880. Every HTTP response names the address that the origin saw as its client.
type testNetwork struct {
	t                           *testing.T
	clientNS, proxyNS, originNS *netns.Namespace
	clientLink, originLink      *netns.Link
	reached                     sync.Map // port of the origin to true, once a client has connected
}

func newTestNetwork(t *testing.T) *testNetwork {
	t.Helper()
	n := netns.New(t)
	tn := &testNetwork{t: t, clientNS: n.Namespace("client"), proxyNS: n.Namespace("gateway"), originNS: n.Namespace("origin")}
	tn.clientLink, tn.originLink = n.Connect(tn.clientNS, tn.proxyNS), n.Connect(tn.proxyNS, tn.originNS)
	tn.clientLink.Route(tn.clientNS, "0.0.0.0/0")
	tn.clientLink.Route(tn.clientNS, "::/0")
	tn.originLink.Route(tn.originNS, "0.0.0.0/0")
	tn.originLink.Route(tn.originNS, "::/0")
	tn.proxyNS.EnableForwarding()
	tn.serve("80", false)
	tn.serve("81", true)
	tn.serve("8080", false)
	tn.echo("20880")
	return tn
}

func (tn *testNetwork) listen(port string) net.Listener {
	tn.t.Helper()
	l, err := tn.originNS.Listen("tcp", ":"+port)
	if err != nil {
		tn.t.Fatal(err)
	}
	return l
}

// serve starts a server at the origin: of HTTP/2 if http2 is set, otherwise of HTTP/1.1.
func (tn *testNetwork) serve(port string, http2 bool) {
	tn.t.Helper()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tn.reached.Store(port, true)
			_, _ = io.Copy(io.Discard, r.Body)
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			fmt.Fprintf(w, "%s %s saw %s", r.Proto, port, host)
		}),
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(!http2)
	server.Protocols.SetUnencryptedHTTP2(http2)
	l := tn.listen(port)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // returns http.ErrServerClosed
	}()
	tn.t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
}

// echo starts a server at the origin that echoes what it receives.
func (tn *testNetwork) echo(port string) {
	tn.t.Helper()
	l := tn.listen(port)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tn.reached.Store(port, true)
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	tn.t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
}

// clientIn returns a client in a namespace: of HTTP/2 if http2 is set, otherwise of HTTP/1.1.
func clientIn(t *testing.T, ns *netns.Namespace, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: ns.DialContext, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: waitTimeout}
}

// proxyAdmin is the admin address of Weft in the gateway.
const proxyAdmin = "127.0.0.1:9901"

// run starts Weft in the gateway. Words of prefix come before its command.
func (tn *testNetwork) run(c setup, prefix ...string) *weft {
	tn.t.Helper()
	return tn.start(launchOptions{config: c.configWithAdmin(proxyAdmin)}, prefix...)
}

// start starts Weft in the gateway with launch options. Words of prefix come before its command.
func (tn *testNetwork) start(o launchOptions, prefix ...string) *weft {
	tn.t.Helper()
	o.shell = fmt.Sprintf(`exec ip netns exec %s %s "$@"`, tn.proxyNS.Name(), strings.Join(prefix, " "))
	w := launchWeft(tn.t, o)
	w.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: tn.proxyNS.DialContext}, Timeout: waitTimeout}
	w.awaitReady()
	return w
}

// origDstCluster returns a cluster that sends to the original destination.
func origDstCluster(extra object) object {
	return object{"name": "anywhere", "type": "ORIGINAL_DST", "lb_type": "LB_ORIGINAL_DST", "connect_timeout": "2s"}.with(extra)
}

// redirectSetup returns a configuration for redirected connections. Weft forwards bytes to their
// original destination, serves HTTP on ports 80 and 81 of any address, and responds itself on port
// 8080 of localIPs.
func redirectSetup(mode any, cluster object, localIPs ...netip.Addr) setup {
	virtual := object{"bind_port": false}
	s := setup{
		listeners: list{
			tcpListener("catch", "[::]:15001", object{"cluster": "anywhere"}, object{"use_original_dst": mode}),
			networkListener("web", "0.0.0.0:80", object{"type": "proxy", "config": object{
				"downstream_protocol": "Http1,Http2", "router_config_name": "web"}}, virtual),
			networkListener("h2c", "[::]:81", object{"type": "proxy", "config": object{
				"downstream_protocol": "Http2", "router_config_name": "web"}}, virtual),
		},
		tables:   list{routeTable("web", routeTo("/", "anywhere")), routeTable("own", directRoute("/", 200, "response of the gateway"))},
		clusters: list{origDstCluster(cluster)},
	}
	for i, ip := range localIPs {
		s.listeners = append(s.listeners, networkListener(fmt.Sprint("own", i), netip.AddrPortFrom(ip, 8080).String(),
			object{"type": "proxy", "config": object{"downstream_protocol": "Http1", "router_config_name": "own"}}, virtual))
	}
	return s
}

// redirectRules returns rules that redirect connections through the gateway to its port 15001.
func redirectRules() map[string]struct {
	mode  string
	apply func(tn *testNetwork)
} {
	const ports = "80,81,8080,20880,15001"
	routeToLocal := func(tn *testNetwork) {
		for _, family := range []string{"-4", "-6"} {
			tn.proxyNS.Run("ip", family, "rule", "add", "fwmark", "1", "lookup", "100")
			anyAddress := "0.0.0.0/0"
			if family == "-6" {
				anyAddress = "::/0"
			}
			tn.proxyNS.Run("ip", family, "route", "add", "local", anyAddress, "dev", "lo", "table", "100")
		}
	}
	iptables := func(tn *testNetwork, rule string) {
		tn.proxyNS.IPtables(rule)
		tn.proxyNS.IP6tables(rule)
	}
	return map[string]struct {
		mode  string
		apply func(tn *testNetwork)
	}{
		"iptables REDIRECT": {"redirect", func(tn *testNetwork) {
			iptables(tn, "-t nat -A PREROUTING -i "+tn.clientLink.B.Device+" -p tcp -m multiport --dports "+ports+" -j REDIRECT --to-ports 15001")
		}},
		"iptables TPROXY": {"tproxy", func(tn *testNetwork) {
			iptables(tn, "-t mangle -A PREROUTING -i "+tn.clientLink.B.Device+" -p tcp -m multiport --dports "+ports+" -j TPROXY --on-port 15001 --tproxy-mark 1")
			routeToLocal(tn)
		}},
		"nftables redirect": {"redirect", func(tn *testNetwork) {
			tn.proxyNS.Nftables(`table inet weft { chain in { type nat hook prerouting priority dstnat;
				iifname "` + tn.clientLink.B.Device + `" tcp dport { ` + ports + ` } redirect to :15001
			}
			}`)
		}},
		"nftables tproxy": {"tproxy", func(tn *testNetwork) {
			tn.proxyNS.Nftables(`table inet weft { chain in { type filter hook prerouting priority mangle;
				iifname "` + tn.clientLink.B.Device + `" meta nfproto ipv4 tcp dport { ` + ports + ` } tproxy ip to :15001 meta mark set 1 accept
				iifname "` + tn.clientLink.B.Device + `" meta nfproto ipv6 tcp dport { ` + ports + ` } tproxy ip6 to :15001 meta mark set 1 accept
			}
			}`)
			routeToLocal(tn)
		}},
	}
}

func TestRedirectedConnections(t *testing.T) {
	t.Parallel()
	for name, rule := range redirectRules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := newTestNetwork(t)
			rule.apply(tn)
			w := tn.run(redirectSetup(rule.mode, nil, tn.originLink.B.IPv4, tn.originLink.B.IPv6))
			for family, addrs := range map[string]struct{ origin, gateway, seen netip.Addr }{
				"IPv4": {tn.originLink.B.IPv4, tn.clientLink.B.IPv4, tn.originLink.A.IPv4},
				"IPv6": {tn.originLink.B.IPv6, tn.clientLink.B.IPv6, tn.originLink.A.IPv6},
			} {
				t.Run(family, func(t *testing.T) { tn.checkRedirected(t, addrs.origin, addrs.gateway, addrs.seen) })
			}
			for listener, minimum := range map[string]float64{"web": 2, "h2c": 2, "own0": 1, "own1": 1, "catch": 2} {
				if got := w.metric("weft_listener_connections_accepted_total", `listener="`+listener+`"`); got < minimum {
					t.Errorf("the listener %s served %v connections, want at least %v", listener, got, minimum)
				}
			}
		})
	}
}

// checkRedirected sends traffic from the client to the origin and verifies that the gateway
// redirects it. seen is the address of the gateway that the origin must see. Another address would
// mean that the client has connected directly.
func (tn *testNetwork) checkRedirected(t *testing.T, origin, gateway, seen netip.Addr) {
	url := func(port uint16) string { return "http://" + netip.AddrPortFrom(origin, port).String() + "/" }
	first, second := clientIn(t, tn.clientNS, false), clientIn(t, tn.clientNS, true)
	for _, c := range []struct {
		name, url string
		client    *http.Client
		want      string
	}{
		{"HTTP/1.1 on a wildcard listener", url(80), first, "HTTP/1.1 80 saw " + seen.String()},
		{"HTTP/2 on another port", url(81), second, "HTTP/2.0 81 saw " + seen.String()},
		{"HTTP/1.1 on a listener with the address", url(8080), first, "response of the gateway"},
	} {
		if got := sendRequest(t, c.client, "GET", c.url, ""); got.body != c.want {
			t.Errorf("%s: %d %q, want %q", c.name, got.status, got.body, c.want)
		}
	}
	c, err := tn.clientNS.Dial("tcp", netip.AddrPortFrom(origin, 20880).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(waitTimeout))
	call := invocation{service: "com.shop.Orders", method: "find"}.frame(7)
	if _, err := c.Write(call); err != nil {
		t.Fatal(err)
	}
	echo, err := readDubbo(bufio.NewReader(c))
	if err != nil || string(echo) != string(call) {
		t.Errorf("echo of a Dubbo call over TCP: %q, %v; want the call", echo, err)
	}

	// This connection was not redirected, so it has no original destination.
	direct, err := tn.clientNS.Dial("tcp", netip.AddrPortFrom(gateway, 15001).String())
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	_ = direct.SetDeadline(time.Now().Add(waitTimeout))
	if n, err := direct.Read(make([]byte, 1)); err == nil {
		t.Errorf("a direct connection to the listener read %d bytes, want EOF", n)
	}
}
