package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// udpListener returns a UDP listener.
func udpListener(name, address string, config object) object {
	l := networkListener(name, address, object{"type": "udp_proxy", "config": config})
	l["network"] = "udp"
	return l
}

// freeUDP returns an address with a free UDP port.
func freeUDP(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().String()
}

// udpEcho responds to each datagram with its name, a colon and the datagram.
type udpEcho struct {
	address  string
	conn     *net.UDPConn
	received atomic.Int64
}

func startUDPEcho(t *testing.T, address, name string) *udpEcho {
	t.Helper()
	udpAddr, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUDP("udp", udpAddr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadBuffer(4 << 20) // the kernel may limit the size
	e := &udpEcho{address: conn.LocalAddr().String(), conn: conn}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				continue
			}
			e.received.Add(1)
			_, _ = conn.WriteToUDPAddrPort(append([]byte(name+":"), b[:n]...), from) // the session may have ended
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close() // ends the loop
		<-done
	})
	return e
}

// dialUDP returns a socket that sends datagrams to address.
func dialUDP(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test has ended
	return conn.(*net.UDPConn)
}

// exchangeDatagram sends text and returns the response, or "" if there is none within timeout.
func exchangeDatagram(t *testing.T, conn *net.UDPConn, text string, timeout time.Duration) string {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		return ""
	}
	_ = conn.SetReadDeadline(time.Now().Add(timeout)) // the socket is open
	b := make([]byte, 1<<16)
	n, err := conn.Read(b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// TestUDPMaxSessions verifies that sessions up to max_sessions get responses, that an additional
// session does not, and that ended sessions free their resources.
func TestUDPMaxSessions(t *testing.T) {
	t.Parallel()
	sessions := 10_000
	if testing.Short() {
		sessions = 1000
	}
	app := startUDPEcho(t, "127.0.0.1:0", "a")
	front := freeUDP(t)
	withIdleTimeout := func(timeout string) setup {
		return setup{
			listeners: list{udpListener("front", front, object{"cluster": "app", "max_sessions": sessions, "idle_timeout": timeout})},
			clusters: list{cluster("app", object{"circuit_breakers": list{
				object{"max_connections": 0, "max_requests": 0}, // a session counts as a connection and as a request
			}}, app.address)},
		}
	}
	c := withIdleTimeout("10m")
	w := startWeft(t, c.config())
	before := w.memory()
	goroutines := w.goroutines()
	// Each session has its own source: 50 ports on each of many loopback addresses.
	dst, _ := net.ResolveUDPAddr("udp", front)
	const ports = 50
	var responses atomic.Int64
	var exchanges sync.WaitGroup
	var sockets []*net.UDPConn
	for i := range sessions / ports {
		for p := range ports {
			conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i)), Port: 20_000 + p}, dst)
			if errors.Is(err, os.ErrPermission) || err != nil && i == 0 {
				t.Skip("cannot bind the source address: ", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			sockets = append(sockets, conn)
		}
		batch := sockets[len(sockets)-ports:]
		for _, conn := range batch {
			exchanges.Go(func() {
				for range 3 { // datagrams are lost when kernel buffers are full
					if exchangeDatagram(t, conn, "x", waitTimeout/2) == "a:x" {
						responses.Add(1)
						return
					}
				}
			})
		}
		exchanges.Wait()
	}
	if n := responses.Load(); n != int64(sessions) {
		t.Errorf("%d of %d sources got a response, want all", n, sessions)
	}
	t.Logf("%d sessions take %d bytes of memory each", sessions, (w.memory().anonymous-before.anonymous)/sessions)
	if n := w.metric("weft_udp_sessions_active"); int(n) > sessions {
		t.Errorf("%v sessions are active, want at most max_sessions, %d", n, sessions)
	}
	if now := w.goroutines(); now > goroutines+10 {
		t.Errorf("%d goroutines, %d before, want at most 10 more", now, goroutines)
	}
	extra := dialUDP(t, front)
	eventually(t, "the datagram of an additional session is dropped", func() bool {
		if got := exchangeDatagram(t, extra, "z", 50*time.Millisecond); got != "" {
			t.Fatalf("an additional session got %q, want none", got)
		}
		return w.metric("weft_udp_datagrams_dropped_total", `reason="max_sessions"`) > 0
	})
	for _, conn := range sockets {
		_ = conn.Close() // ends the session
	}
	c.listeners = withIdleTimeout("100ms").listeners
	w.reload(c.config())
	eventually(t, "the sessions end", func() bool {
		return w.metric("weft_udp_sessions_active") == 0 && len(w.descriptors()) < 100
	})
	eventually(t, "the cluster has no session in flight", func() bool {
		return w.metric("weft_cluster_requests_active", `cluster="app"`) == 0
	})
}

// TestUDPSessionsMoveToHealthyHost verifies that a session moves to another host when its host
// dies or is removed.
func TestUDPSessionsMoveToHealthyHost(t *testing.T) {
	t.Parallel()
	front := freeUDP(t)
	hosts := map[string]*udpEcho{}
	var addresses []string
	for _, name := range []string{"a", "b", "c"} {
		e := startUDPEcho(t, "127.0.0.1:0", name)
		hosts[name] = e
		addresses = append(addresses, e.address)
	}
	c := setup{
		listeners: list{udpListener("front", front, object{"cluster": "app"})},
		clusters:  list{cluster("app", object{"lb_type": "LB_ROUNDROBIN"}, addresses...)},
	}
	w := startWeft(t, c.config())
	conn := dialUDP(t, front)
	first := exchangeDatagram(t, conn, "1", waitTimeout)
	if first == "" {
		t.Fatal("no response")
	}
	name := first[:1]
	if got := exchangeDatagram(t, conn, "2", waitTimeout); got != name+":2" {
		t.Errorf("the second response is %q after %q, want a response of the same host", got, first)
	}
	_ = hosts[name].conn.Close() // the host dies
	exchangeDatagram(t, conn, "lost", 100*time.Millisecond)
	second := exchangeDatagram(t, conn, "3", waitTimeout)
	if second == "" || second[:1] == name || second[1:] != ":3" {
		t.Fatalf("after the host died: %q, want \":3\" of another host", second)
	}
	if n := w.metric("weft_udp_sessions_moved_total"); n != 1 {
		t.Errorf("the session moved %v times, want 1", n)
	}
	remaining := []string{}
	for other, e := range hosts {
		if other != second[:1] && other != name {
			remaining = append(remaining, e.address)
		}
	}
	next := c
	next.clusters = list{cluster("app", object{"lb_type": "LB_ROUNDROBIN"}, remaining...)}
	w.reload(next.config())
	eventually(t, "the session moved to the remaining host", func() bool {
		got := exchangeDatagram(t, conn, "4", time.Second)
		return got != "" && got[:1] != second[:1] && got[:1] != name
	})
	if n := w.metric("weft_udp_sessions_active"); n != 1 {
		t.Errorf("%v sessions, want 1", n)
	}
}

// TestReloadLosesNoDatagrams verifies that no datagram is lost while the configuration changes.
func TestReloadLosesNoDatagrams(t *testing.T) {
	t.Parallel()
	first, second := startUDPEcho(t, "127.0.0.1:0", "a"), startUDPEcho(t, "127.0.0.1:0", "b")
	front, extra := freeUDP(t), freeUDP(t)
	with := func(i int) setup {
		s := setup{
			listeners: list{udpListener("front", front, object{"cluster": fmt.Sprint("app", i%2), "idle_timeout": fmt.Sprint(10+i, "s")})},
			clusters:  list{cluster("app0", nil, first.address), cluster("app1", nil, second.address)},
		}
		if i%3 == 0 { // present in every third configuration
			s.listeners = append(s.listeners, udpListener("extra", extra, object{"cluster": "app0"}))
		}
		return s
	}
	w := startWeft(t, with(0).config())
	ctx, stop := context.WithCancel(t.Context())
	var lost, served atomic.Int64
	var clients sync.WaitGroup
	for i := range 4 {
		s := dialUDP(t, front)
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				text := fmt.Sprint(i, ".", n)
				if got := exchangeDatagram(t, s, text, 2*time.Second); len(got) < 2 || got[2:] != text {
					lost.Add(1)
					t.Logf("sent %q, got %q", text, got)
					continue
				}
				served.Add(1)
			}
		})
	}
	for i := 1; i <= 12; i++ {
		w.reload(with(i).config())
		before := served.Load()
		eventually(t, "datagrams continue", func() bool { return served.Load() > before+50 })
		if i%3 == 0 {
			if got := exchangeDatagram(t, dialUDP(t, extra), "x", waitTimeout); got != "a:x" {
				t.Errorf("response of the added listener: %q, want \"a:x\"", got)
			}
		}
	}
	stop()
	clients.Wait()
	if n := lost.Load(); n != 0 {
		t.Errorf("%d of %d datagrams were lost, want 0", n, n+served.Load())
	}
	if first.received.Load() == 0 || second.received.Load() == 0 {
		t.Error("one of the clusters got no datagram")
	}
}

// TestUDPDrain verifies that a session still gets its response during a drain, and that the
// process exits soon afterwards.
func TestUDPDrain(t *testing.T) {
	t.Parallel()
	requests, release := make(chan struct{}, 1), make(chan struct{})
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		b := make([]byte, 100)
		_, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		requests <- struct{}{}
		<-release
		_, _ = conn.WriteTo([]byte("late"), from) // the test checks whether the datagram arrives
	}()
	front := freeUDP(t)
	w := startWeft(t, setup{
		server:    object{"graceful_timeout": "1m"},
		listeners: list{udpListener("front", front, object{"cluster": "app"})},
		clusters:  list{cluster("app", nil, conn.LocalAddr().String())},
	}.config())
	s := dialUDP(t, front)
	if _, err := s.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	<-requests
	started := time.Now()
	w.signal(sigterm)
	eventually(t, "the drain has started", func() bool { return w.metric("weft_draining") == 1 })
	close(release)
	b := make([]byte, 100)
	_ = s.SetReadDeadline(time.Now().Add(waitTimeout)) // the socket is open
	if n, err := s.Read(b); err != nil || string(b[:n]) != "late" {
		t.Errorf("while draining: %q, %v; want \"late\"", b[:n], err)
	}
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	if elapsed := time.Since(started); elapsed > 20*time.Second {
		t.Errorf("the drain took %v, want at most 20s", elapsed)
	}
}

// udpProxyExample runs udp_proxy.json with DNS queries over UDP and TCP. One server responds to all
// UDP queries of one source address.
func udpProxyExample(t *testing.T) {
	e := loadExample(t, "udp_proxy.json")
	for _, host := range []string{"3351", "3352"} {
		response := func(w dns.ResponseWriter, query *dns.Msg) {
			resp := new(dns.Msg).SetReply(query)
			record, err := dns.NewRR(query.Question[0].Name + " 60 IN TXT \"" + host + "\"")
			if err != nil {
				panic(err)
			}
			resp.Answer = append(resp.Answer, record)
			_ = w.WriteMsg(resp) // without a response the query fails
		}
		for _, network := range []string{"udp", "tcp"} {
			started := make(chan struct{})
			server := &dns.Server{Addr: e.address(host), Net: network, Handler: dns.HandlerFunc(response), NotifyStartedFunc: func() { close(started) }}
			ended := make(chan error, 1)
			go func() { ended <- server.ListenAndServe() }()
			select {
			case <-started:
			case err := <-ended:
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = server.Shutdown() // fails only if the server was not started
				<-ended
			})
		}
	}
	w := e.run("udp_proxy.json")
	w.admin = e.address("34932")
	seen := map[string]int{}
	for _, network := range []string{"udp", "udp", "udp", "udp", "udp", "tcp"} {
		c := &dns.Client{Net: network, Timeout: waitTimeout}
		resp, _, err := c.Exchange(new(dns.Msg).SetQuestion("name.example.", dns.TypeTXT), e.address("3345"))
		if err != nil || len(resp.Answer) != 1 {
			t.Fatalf("%s: %v, %v; want one record", network, resp, err)
		}
		if network == "udp" {
			seen[resp.Answer[0].(*dns.TXT).Txt[0]]++
		}
	}
	if len(seen) != 1 {
		t.Errorf("one source got responses from %v, want one host", seen)
	}
	eventually(t, "five responses are counted", func() bool { // Weft counts a response after it has sent the response
		return w.metric("weft_udp_datagrams_total", `direction="out"`) == 5
	})
}
