package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ownPorts are the destination ports for which rules redirect connections of the gateway.
const ownPorts = "80,81,8080,20880"

// outboundRules returns rules that redirect connections of processes in the gateway, except those
// of Weft.
func outboundRules() map[string]struct {
	prefix  []string // of the weft command
	cluster object
	apply   func(s *testNetwork)
} {
	// As another user, Weft may read its file, which the test owns, but has no other privilege.
	user := []string{"setpriv", "--reuid=1337", "--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"}
	iptables := func(s *testNetwork, match string) {
		for _, rule := range []string{
			"-t nat -A OUTPUT " + match + " -j RETURN",
			"-t nat -A OUTPUT -p tcp -m multiport --dports " + ownPorts + " -j REDIRECT --to-ports 15001",
		} {
			s.proxyNS.IPtables(rule)
			s.proxyNS.IP6tables(rule)
		}
	}
	nftables := func(s *testNetwork, match string) {
		s.proxyNS.Nftables(`table inet weft {
			chain out {
				type nat hook output priority -100
				` + match + ` return
				tcp dport { ` + ownPorts + ` } redirect to :15001
			}
		}`)
	}
	return map[string]struct {
		prefix  []string
		cluster object
		apply   func(s *testNetwork)
	}{
		"user, iptables": {user, nil, func(s *testNetwork) { iptables(s, "-m owner --uid-owner 1337") }},
		"user, nftables": {user, nil, func(s *testNetwork) { nftables(s, "meta skuid 1337") }},
		"mark, iptables": {nil, object{"mark": 0x77}, func(s *testNetwork) { iptables(s, "-m mark --mark 0x77") }},
		"mark, nftables": {nil, object{"mark": "0x77"}, func(s *testNetwork) { nftables(s, "meta mark 0x77") }},
	}
}

func TestOwnConnectionsAreNotRedirected(t *testing.T) {
	t.Parallel()
	for name, rule := range outboundRules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestNetwork(t)
			rule.apply(s)
			w := s.run(redirectSetup(true, rule.cluster), rule.prefix...)
			c := clientIn(t, s.proxyNS, false)
			for _, ip := range []netip.Addr{s.originLink.B.IPv4, s.originLink.B.IPv6} {
				got := sendRequest(t, c, "GET", "http://"+netip.AddrPortFrom(ip, 80).String()+"/", "")
				if !strings.HasPrefix(got.body, "HTTP/1.1 80 saw ") {
					t.Errorf("to %v: %d %q", ip, got.status, got.body)
				}
			}
			if got := w.metric("weft_listener_connections_accepted_total", `listener="web"`); got != 2 {
				t.Errorf("Weft forwarded %v connections, want 2: one per family", got)
			}
		})
	}
}

func TestRedirectLoopIsClosed(t *testing.T) {
	t.Parallel()
	s := newTestNetwork(t)
	s.proxyNS.IPtables("-t nat -A OUTPUT -p tcp -m multiport --dports " + ownPorts + " -j REDIRECT --to-ports 15001")
	w := s.run(redirectSetup(true, nil))
	address := func(port uint16) string { return netip.AddrPortFrom(s.originLink.B.IPv4, port).String() }
	if got := sendRequest(t, clientIn(t, s.proxyNS, false), "GET", "http://"+address(80)+"/", ""); got.status != http.StatusLoopDetected {
		t.Errorf("request in a redirect loop: %d %q", got.status, got.body)
	}
	c, err := s.proxyNS.Dial("tcp", address(20880))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(waitTimeout))
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("connection in a redirect loop: %d bytes came back", n)
	}
	eventually(t, "the redirect loop is counted", func() bool {
		return w.metric("weft_listener_connections_closed_total", `listener="catch"`, `cause="loop"`) > 0
	})
	if got := w.metric("weft_listener_connections_accepted_total"); got > 40 {
		t.Errorf("%v connections of one request and one connection", got)
	}
	for _, port := range []string{"80", "20880"} {
		if _, reached := s.reached.Load(port); reached {
			t.Errorf("unexpected connection to the origin on port %s", port)
		}
	}
}

func TestVirtualListenersReload(t *testing.T) {
	t.Parallel()
	s := newTestNetwork(t)
	redirectRules()["nftables redirect"].apply(s)
	without, with := redirectSetup(true, nil), redirectSetup(true, nil, s.originLink.B.IPv4)
	w := s.run(without)
	url := "http://" + netip.AddrPortFrom(s.originLink.B.IPv4, 8080).String() + "/"
	listener, through := "response of the gateway", "HTTP/1.1 8080 saw "+s.originLink.A.IPv4.String()

	long, err := s.clientNS.Dial("tcp", netip.AddrPortFrom(s.originLink.B.IPv4, 20880).String())
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	_ = long.SetDeadline(time.Now().Add(4 * waitTimeout))
	still := func() {
		t.Helper()
		back := make([]byte, 4)
		if _, err := io.WriteString(long, "ping"); err != nil {
			t.Fatalf("the connection of the bound listener: %v", err)
		}
		if _, err := io.ReadFull(long, back); err != nil || string(back) != "ping" {
			t.Fatalf("the connection of the bound listener said %q, %v", back, err)
		}
	}
	still()

	// A client connects all the time. One of the two listeners serves each connection.
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		c := &http.Client{Transport: &http.Transport{DialContext: s.clientNS.DialContext, DisableKeepAlives: true}, Timeout: waitTimeout}
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := tryRequest(t.Context(), c, "GET", url, ""); err != nil || got.body != listener && got.body != through {
				t.Errorf("during reloads: %q, %v", got.body, err)
			}
		}
	})
	c := clientIn(t, s.clientNS, false)
	for range 3 {
		w.reload(with.at(proxyAdmin))
		eventually(t, "new connections use the new listener", func() bool {
			c.CloseIdleConnections()
			return sendRequest(t, c, "GET", url, "").body == listener
		})
		still()
		w.reload(without.at(proxyAdmin))
		eventually(t, "the connection of the removed listener has ended", func() bool {
			return sendRequest(t, c, "GET", url, "").body == through
		})
		still()
	}
	close(stop)
	load.Wait()
	if got := w.metric("weft_listener_connections_active", `listener="catch"`); got < 1 {
		t.Errorf("the bound listener has %v connections, want the one that stayed open", got)
	}
}

// at returns the configuration with this admin address.
func (s setup) at(admin string) object {
	s.admin = admin
	return s.config()
}

func TestVirtualListenerMaxConnections(t *testing.T) {
	t.Parallel()
	s := newTestNetwork(t)
	redirectRules()["iptables REDIRECT"].apply(s)
	c := redirectSetup("redirect", nil, s.originLink.B.IPv4)
	c.listeners[3] = c.listeners[3].(object).with(object{"max_connections": 1})
	w := s.run(c)
	address := netip.AddrPortFrom(s.originLink.B.IPv4, 8080).String()
	for i, want := range []bool{true, false} {
		conn, err := s.clientNS.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(waitTimeout))
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if n, err := conn.Read(make([]byte, 1)); (n == 1) != want {
			t.Errorf("connection %d got %d bytes, %v", i+1, n, err)
		}
	}
	if got := w.metric("weft_listener_connections_refused_total", `listener="own0"`); got != 1 {
		t.Errorf("%v connections rejected, want 1", got)
	}
	if got := w.metric("weft_listener_connections_accepted_total", `listener="catch"`); got != 0 {
		t.Errorf("the bound listener counts %v redirected connections", got)
	}
}

func TestFilterChainsMatchOriginalDestination(t *testing.T) {
	t.Parallel()
	s := newTestNetwork(t)
	redirectRules()["nftables redirect"].apply(s)
	web := func(match object, text string) object {
		return object{"match": match, "filters": list{object{"type": "proxy", "config": object{
			"downstream_protocol": "Http1", "router_config_name": text}}}}
	}
	s.run(setup{
		listeners: list{object{"name": "catch", "address": "[::]:15001", "use_original_dst": true, "filter_chains": list{
			web(object{"destination_port": 8080}, "port"),
			web(object{"destination_port": 80, "prefix_ranges": list{s.originLink.B.IPv4.String() + "/32"}}, "range"),
		}, "default_filter_chain": web(nil, "rest")}},
		tables: list{routeTable("port", directRoute("/", 200, "port")), routeTable("range", directRoute("/", 200, "range")), routeTable("rest", directRoute("/", 200, "rest"))},
	})
	c := clientIn(t, s.clientNS, false)
	for to, want := range map[netip.AddrPort]string{
		netip.AddrPortFrom(s.originLink.B.IPv4, 8080): "port",
		netip.AddrPortFrom(s.originLink.B.IPv6, 8080): "port",
		netip.AddrPortFrom(s.originLink.B.IPv4, 80):   "range",
		netip.AddrPortFrom(s.originLink.B.IPv6, 80):   "rest",
	} {
		if got := sendRequest(t, c, "GET", "http://"+to.String()+"/", ""); got.body != want {
			t.Errorf("a connection to %v used the chain %q, want %q", to, got.body, want)
		}
	}
}

func TestDrainOfVirtualListeners(t *testing.T) {
	t.Parallel()
	s := newTestNetwork(t)
	redirectRules()["nftables redirect"].apply(s)
	log := filepath.Join(t.TempDir(), "access.log")
	c := redirectSetup(true, nil)
	c.listeners[1] = c.listeners[1].(object).with(object{"access_logs": list{object{
		"log_path": log, "log_format": "%downstream_local_address% %upstream_host% %response_code%"}}})
	w := s.run(c)
	to := netip.AddrPortFrom(s.originLink.B.IPv4, 80).String()
	conn, err := s.clientNS.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	client := newRawConn(t, conn)
	half := strings.Repeat("x", 100_000) // more than Weft buffers before it forwards
	client.send(fmt.Sprintf("POST / HTTP/1.1\nHost: x\nContent-Length: %d\n\n%s", 2*len(half), half))
	eventually(t, "the origin has the request", func() bool {
		_, reached := s.reached.Load("80")
		return reached
	})
	w.signal(syscall.SIGTERM)
	eventually(t, "the gateway accepts no more connections", func() bool {
		another, err := s.clientNS.Dial("tcp", to)
		if err == nil {
			_ = another.Close()
		}
		return err != nil
	})
	client.send(half)
	if response, body := client.readResponse("POST"); response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("%s %q, close %v; want 200 and close", response.Status, body, response.Close)
	}
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d", status)
	}
	got, err := os.ReadFile(log)
	if want := to + " " + to + " 200\n"; err != nil || string(got) != want {
		t.Errorf("the access log is %q, %v; want %q", got, err, want)
	}
}
