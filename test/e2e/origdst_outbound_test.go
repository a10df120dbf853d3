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

// redirectedPorts are the destination ports for which rules redirect connections of the gateway.
const redirectedPorts = "80,81,8080,20880"

// outboundRules returns rules that redirect connections of processes in the gateway, except those
// of Weft.
func outboundRules() map[string]struct {
	prefix  []string // of the weft command
	cluster object
	apply   func(tn *testNetwork)
} {
	// As another user, Weft may read its file, which the test owns, but has no other privilege.
	user := []string{"setpriv", "--reuid=1337", "--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"}
	iptables := func(tn *testNetwork, match string) {
		for _, rule := range []string{
			"-t nat -A OUTPUT " + match + " -j RETURN",
			"-t nat -A OUTPUT -p tcp -m multiport --dports " + redirectedPorts + " -j REDIRECT --to-ports 15001",
		} {
			tn.proxyNS.IPtables(rule)
			tn.proxyNS.IP6tables(rule)
		}
	}
	nftables := func(tn *testNetwork, match string) {
		tn.proxyNS.Nftables(`table inet weft {
			chain out {
				type nat hook output priority -100
				` + match + ` return
				tcp dport { ` + redirectedPorts + ` } redirect to :15001
			}
		}`)
	}
	return map[string]struct {
		prefix  []string
		cluster object
		apply   func(tn *testNetwork)
	}{
		"user, iptables": {user, nil, func(tn *testNetwork) { iptables(tn, "-m owner --uid-owner 1337") }},
		"user, nftables": {user, nil, func(tn *testNetwork) { nftables(tn, "meta skuid 1337") }},
		"mark, iptables": {nil, object{"mark": 0x77}, func(tn *testNetwork) { iptables(tn, "-m mark --mark 0x77") }},
		"mark, nftables": {nil, object{"mark": "0x77"}, func(tn *testNetwork) { nftables(tn, "meta mark 0x77") }},
	}
}

func TestOwnConnectionsAreNotRedirected(t *testing.T) {
	t.Parallel()
	for name, rule := range outboundRules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := newTestNetwork(t)
			rule.apply(tn)
			w := tn.run(redirectSetup(true, rule.cluster), rule.prefix...)
			c := clientIn(t, tn.proxyNS, false)
			for _, ip := range []netip.Addr{tn.originLink.B.IPv4, tn.originLink.B.IPv6} {
				got := sendRequest(t, c, "GET", "http://"+netip.AddrPortFrom(ip, 80).String()+"/", "")
				if !strings.HasPrefix(got.body, "HTTP/1.1 80 saw ") {
					t.Errorf("to %v: %d %q, want prefix \"HTTP/1.1 80 saw \"", ip, got.status, got.body)
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
	tn := newTestNetwork(t)
	tn.proxyNS.IPtables("-t nat -A OUTPUT -p tcp -m multiport --dports " + redirectedPorts + " -j REDIRECT --to-ports 15001")
	w := tn.run(redirectSetup(true, nil))
	address := func(port uint16) string { return netip.AddrPortFrom(tn.originLink.B.IPv4, port).String() }
	if got := sendRequest(t, clientIn(t, tn.proxyNS, false), "GET", "http://"+address(80)+"/", ""); got.status != http.StatusLoopDetected {
		t.Errorf("request in a redirect loop: %d %q, want 508", got.status, got.body)
	}
	c, err := tn.proxyNS.Dial("tcp", address(20880))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(waitTimeout))
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("connection in a redirect loop: %d bytes came back, want none", n)
	}
	eventually(t, "the redirect loop is counted", func() bool {
		return w.metric("weft_listener_connections_closed_total", `listener="catch"`, `cause="loop"`) > 0
	})
	if got := w.metric("weft_listener_connections_accepted_total"); got > 40 {
		t.Errorf("one request and one connection caused %v connections, want at most 40", got)
	}
	for _, port := range []string{"80", "20880"} {
		if _, reached := tn.reached.Load(port); reached {
			t.Errorf("unexpected connection to the origin on port %s", port)
		}
	}
}

func TestVirtualListenersReload(t *testing.T) {
	t.Parallel()
	tn := newTestNetwork(t)
	redirectRules()["nftables redirect"].apply(tn)
	withoutLocal, withLocal := redirectSetup(true, nil), redirectSetup(true, nil, tn.originLink.B.IPv4)
	w := tn.run(withoutLocal)
	url := "http://" + netip.AddrPortFrom(tn.originLink.B.IPv4, 8080).String() + "/"
	gatewayBody, originBody := "response of the gateway", "HTTP/1.1 8080 saw "+tn.originLink.A.IPv4.String()

	tunnel, err := tn.clientNS.Dial("tcp", netip.AddrPortFrom(tn.originLink.B.IPv4, 20880).String())
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	_ = tunnel.SetDeadline(time.Now().Add(4 * waitTimeout))
	checkEcho := func() {
		t.Helper()
		echo := make([]byte, 4)
		if _, err := io.WriteString(tunnel, "ping"); err != nil {
			t.Fatalf("the connection of the bound listener: %v", err)
		}
		if _, err := io.ReadFull(tunnel, echo); err != nil || string(echo) != "ping" {
			t.Fatalf("the connection of the bound listener echoed %q, %v; want \"ping\"", echo, err)
		}
	}
	checkEcho()

	// A client connects all the time. One of the two listeners serves each connection.
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		c := &http.Client{Transport: &http.Transport{DialContext: tn.clientNS.DialContext, DisableKeepAlives: true}, Timeout: waitTimeout}
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := tryRequest(t.Context(), c, "GET", url, ""); err != nil || got.body != gatewayBody && got.body != originBody {
				t.Errorf("during reloads: %q, %v; want the response of the gateway or of the origin", got.body, err)
			}
		}
	})
	c := clientIn(t, tn.clientNS, false)
	for range 3 {
		w.reload(withLocal.configWithAdmin(proxyAdmin))
		eventually(t, "new connections use the new listener", func() bool {
			c.CloseIdleConnections()
			return sendRequest(t, c, "GET", url, "").body == gatewayBody
		})
		checkEcho()
		w.reload(withoutLocal.configWithAdmin(proxyAdmin))
		eventually(t, "the connection of the removed listener has ended", func() bool {
			return sendRequest(t, c, "GET", url, "").body == originBody
		})
		checkEcho()
	}
	close(stop)
	load.Wait()
	if got := w.metric("weft_listener_connections_active", `listener="catch"`); got < 1 {
		t.Errorf("the bound listener has %v connections, want the one that stayed open", got)
	}
}

// configWithAdmin returns the configuration with this admin address.
func (s setup) configWithAdmin(admin string) object {
	s.admin = admin
	return s.config()
}

func TestVirtualListenerMaxConnections(t *testing.T) {
	t.Parallel()
	tn := newTestNetwork(t)
	redirectRules()["iptables REDIRECT"].apply(tn)
	c := redirectSetup("redirect", nil, tn.originLink.B.IPv4)
	c.listeners[3] = c.listeners[3].(object).with(object{"max_connections": 1})
	w := tn.run(c)
	address := netip.AddrPortFrom(tn.originLink.B.IPv4, 8080).String()
	for i, want := range []bool{true, false} {
		conn, err := tn.clientNS.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(waitTimeout))
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if n, err := conn.Read(make([]byte, 1)); (n == 1) != want {
			t.Errorf("connection %d got %d bytes, %v, want a byte: %v", i+1, n, err, want)
		}
	}
	if got := w.metric("weft_listener_connections_refused_total", `listener="own0"`); got != 1 {
		t.Errorf("%v connections refused, want 1", got)
	}
	if got := w.metric("weft_listener_connections_accepted_total", `listener="catch"`); got != 0 {
		t.Errorf("the bound listener counts %v redirected connections, want 0", got)
	}
}

func TestFilterChainsMatchOriginalDestination(t *testing.T) {
	t.Parallel()
	tn := newTestNetwork(t)
	redirectRules()["nftables redirect"].apply(tn)
	chain := func(match object, text string) object {
		return object{"match": match, "filters": list{object{"type": "proxy", "config": object{
			"downstream_protocol": "Http1", "router_config_name": text}}}}
	}
	tn.run(setup{
		listeners: list{object{"name": "catch", "address": "[::]:15001", "use_original_dst": true, "filter_chains": list{
			chain(object{"destination_port": 8080}, "port"),
			chain(object{"destination_port": 80, "prefix_ranges": list{tn.originLink.B.IPv4.String() + "/32"}}, "range"),
		}, "default_filter_chain": chain(nil, "rest")}},
		tables: list{routeTable("port", directRoute("/", 200, "port")), routeTable("range", directRoute("/", 200, "range")), routeTable("rest", directRoute("/", 200, "rest"))},
	})
	c := clientIn(t, tn.clientNS, false)
	for dst, want := range map[netip.AddrPort]string{
		netip.AddrPortFrom(tn.originLink.B.IPv4, 8080): "port",
		netip.AddrPortFrom(tn.originLink.B.IPv6, 8080): "port",
		netip.AddrPortFrom(tn.originLink.B.IPv4, 80):   "range",
		netip.AddrPortFrom(tn.originLink.B.IPv6, 80):   "rest",
	} {
		if got := sendRequest(t, c, "GET", "http://"+dst.String()+"/", ""); got.body != want {
			t.Errorf("a connection to %v used the chain %q, want %q", dst, got.body, want)
		}
	}
}

func TestDrainOfVirtualListeners(t *testing.T) {
	t.Parallel()
	tn := newTestNetwork(t)
	redirectRules()["nftables redirect"].apply(tn)
	log := filepath.Join(t.TempDir(), "access.log")
	c := redirectSetup(true, nil)
	c.listeners[1] = c.listeners[1].(object).with(object{"access_logs": list{object{
		"log_path": log, "log_format": "%downstream_local_address% %upstream_host% %response_code%"}}})
	w := tn.run(c)
	dst := netip.AddrPortFrom(tn.originLink.B.IPv4, 80).String()
	conn, err := tn.clientNS.Dial("tcp", dst)
	if err != nil {
		t.Fatal(err)
	}
	client := newRawConn(t, conn)
	part := strings.Repeat("x", 100_000) // more than Weft buffers before it forwards
	client.send(fmt.Sprintf("POST / HTTP/1.1\nHost: x\nContent-Length: %d\n\n%s", 2*len(part), part))
	eventually(t, "the origin has the request", func() bool {
		_, reached := tn.reached.Load("80")
		return reached
	})
	w.signal(syscall.SIGTERM)
	eventually(t, "the gateway accepts no more connections", func() bool {
		c2, err := tn.clientNS.Dial("tcp", dst)
		if err == nil {
			_ = c2.Close()
		}
		return err != nil
	})
	client.send(part)
	if response, body := client.readResponse("POST"); response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("%s %q, close %v; want 200 and close", response.Status, body, response.Close)
	}
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	got, err := os.ReadFile(log)
	if want := dst + " " + dst + " 200\n"; err != nil || string(got) != want {
		t.Errorf("the access log is %q, %v; want %q", got, err, want)
	}
}
