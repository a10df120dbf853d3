package udpproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
)

var _ filter.PacketServer = (*Proxy)(nil)

// waitTimeout bounds each wait of a test.
const waitTimeout = 10 * time.Second

// fakeLeaser is a filter.HostLeaser that selects one of the hosts that are up by hash.
type fakeLeaser struct {
	t       *testing.T
	mu      sync.Mutex
	hosts   []*fakeHost // guarded by mu
	trigger panicTrigger
}

type fakeHost struct {
	name, address string
	down          atomic.Bool
	sessions      atomic.Int64
	errors        atomic.Int64
	datagrams     atomic.Int64
	sessionEnded  chan struct{} // receives when a session ends
}

type fakeLease struct {
	*fakeHost
	*panicTrigger
	socket *network.ConnectedUDP
	once   sync.Once
}

func (l *fakeLeaser) Lease(cluster string, hash uint64, current filter.HostLease) (filter.HostLease, error) {
	l.trigger.panicIfArmed("Lease")
	l.mu.Lock()
	defer l.mu.Unlock()
	var up []*fakeHost
	for _, host := range l.hosts {
		if !host.down.Load() {
			up = append(up, host)
		}
	}
	if len(up) == 0 || cluster != "app" {
		return nil, errors.New("no host")
	}
	host := up[hash%uint64(len(up))]
	if lease, ok := current.(*fakeLease); ok && lease.fakeHost == host {
		return current, nil
	}
	socket, err := network.Dialer{}.DialPacket(host.address)
	if err != nil {
		return nil, err
	}
	host.sessions.Add(1)
	return &fakeLease{fakeHost: host, panicTrigger: &l.trigger, socket: socket}, nil
}

func (l *fakeLease) Socket() *network.ConnectedUDP { return l.socket }

func (l *fakeLease) Usable() bool {
	l.panicIfArmed("Usable")
	return !l.down.Load()
}

func (l *fakeLease) Report(err error) {
	l.panicIfArmed("Report")
	if err != nil {
		l.errors.Add(1)
		l.down.Store(true)
		return
	}
	l.datagrams.Add(1)
}

func (l *fakeLease) Release() {
	defer l.panicIfArmed("Release")
	l.once.Do(func() {
		l.socket.Close()
		l.sessions.Add(-1)
		l.sessionEnded <- struct{}{}
	})
}

// addEchoHost adds a host that responds to each datagram with its name, up to 20 bytes of the
// datagram, and its size.
func (l *fakeLeaser) addEchoHost(name string) (stop func()) {
	l.t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	l.hosts = append(l.hosts, &fakeHost{name: name, address: conn.LocalAddr().String(), sessionEnded: make(chan struct{}, 1000)})
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, network.MaxDatagram)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %s %d", name, b[:min(n, 20)], n), from) // the session may have ended
		}
	}()
	stop = sync.OnceFunc(func() {
		_ = conn.Close() // ends the loop
		<-done
	})
	l.t.Cleanup(stop)
	return stop
}

// testProxy is a running proxy with its fake hosts.
type testProxy struct {
	*Proxy
	t        *testing.T
	hosts    *fakeLeaser
	counts   *filter.DatagramCounters
	serveErr chan error
}

func startProxy(t *testing.T, cfg config.UDPProxy, names ...string) *testProxy {
	t.Helper()
	ignored := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignored) })
	p := &testProxy{t: t, hosts: &fakeLeaser{t: t}, counts: new(filter.DatagramCounters), serveErr: make(chan error, 1)}
	for _, name := range names {
		p.hosts.addEchoHost(name)
	}
	socket, err := network.ListenPacket(context.Background(), network.PacketOptions{Name: "l", Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cluster = "app"
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = time.Minute
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 100
	}
	p.Proxy, err = New(Options{Config: cfg, Socket: socket, Hosts: p.hosts, Counts: p.counts, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	go func() { p.serveErr <- p.Serve() }()
	t.Cleanup(func() {
		expired, cancel := context.WithCancel(context.Background())
		cancel()
		p.Drain(expired)
		if err := <-p.serveErr; err != nil {
			t.Error(err)
		}
	})
	return p
}

// newClient returns the socket of a new source.
func (p *testProxy) newClient() *net.UDPConn {
	p.t.Helper()
	conn, err := net.DialUDP("udp", nil, p.socket.Addr().(*net.UDPAddr))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() }) // the test has ended
	return conn
}

func (p *testProxy) sendText(conn *net.UDPConn, text string) {
	p.t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *testProxy) readText(conn *net.UDPConn) string {
	p.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(waitTimeout)) // the socket is open
	b := make([]byte, network.MaxDatagram)
	n, err := conn.Read(b)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b[:n])
}

func (p *testProxy) exchangeText(conn *net.UDPConn, text string) string {
	p.t.Helper()
	p.sendText(conn, text)
	return p.readText(conn)
}

func await(t *testing.T, event string, done func() bool) {
	t.Helper()
	ticker, timeout := time.NewTicker(time.Millisecond), time.After(waitTimeout)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatal("timeout waiting for " + event)
		}
	}
}

func TestEachSourceHasASession(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	first, second := r.newClient(), r.newClient()
	for i := range 3 {
		for _, client := range []*net.UDPConn{first, second} {
			port := client.LocalAddr().String()[len("127.0.0.1:"):]
			want := fmt.Sprintf("a %s%d %d", port, i, len(port)+1)
			if got := r.exchangeText(client, fmt.Sprint(port, i)); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	if n := r.Sessions(); n != 2 || r.hosts.hosts[0].sessions.Load() != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	counts := r.counts
	await(t, "two opened sessions and six counted datagrams in each direction", func() bool { // datagrams are counted after they are sent
		return counts.SessionsOpened.Load() == 2 && counts.In.Load() == 6 && counts.Out.Load() == 6 && counts.InBytes.Load() > 0 && counts.OutBytes.Load() > counts.InBytes.Load()
	})
	if n := r.hosts.hosts[0].datagrams.Load(); n != 6 {
		t.Errorf("the host sent %d datagrams, want 6", n)
	}
}

func TestDatagramsOfAnySizeAreForwarded(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	c := r.newClient()
	for _, size := range []int{0, 1, 1500, 9000, 65_507} {
		if got, want := r.exchangeText(c, string(slices.Repeat([]byte("x"), size))), fmt.Sprint(" ", size); got[len(got)-len(want):] != want {
			t.Errorf("response to %d bytes = %q, want the suffix %q", size, got, want)
		}
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	r := startProxy(t, config.UDPProxy{IdleTimeout: 40 * time.Millisecond}, "a")
	c := r.newClient()
	r.exchangeText(c, "one")
	select {
	case <-r.hosts.hosts[0].sessionEnded:
	case <-time.After(waitTimeout):
		t.Fatal("the session did not end")
	}
	if n := r.Sessions(); n != 0 {
		t.Errorf("%d sessions, want 0", n)
	}
	if got := r.exchangeText(c, "two"); got != "a two 3" { // a new session
		t.Errorf("got %q, want %q", got, "a two 3")
	}
}

func TestSessionsAreBounded(t *testing.T) {
	r := startProxy(t, config.UDPProxy{MaxSessions: 2}, "a")
	first := r.newClient()
	r.exchangeText(first, "1")
	r.exchangeText(r.newClient(), "2")
	r.sendText(r.newClient(), "3")
	if got := r.exchangeText(first, "4"); got != "a 4 1" { // an existing session is served
		t.Errorf("got %q, want %q", got, "a 4 1")
	}
	if n, dropped := r.Sessions(), r.counts.DroppedMaxSessions.Load(); n != 2 || dropped != 1 {
		t.Errorf("%d sessions, %d datagrams dropped, want 2 and 1", n, dropped)
	}
}

func TestSessionMovesWhenHostIsDown(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a", "b")
	c := r.newClient()
	if got := r.exchangeText(c, "1"); got != "a 1 1" {
		t.Fatalf("got %q, want %q", got, "a 1 1")
	}
	r.hosts.hosts[0].down.Store(true)
	if got := r.exchangeText(c, "2"); got != "b 2 1" {
		t.Errorf("got %q, want %q", got, "b 2 1")
	}
	r.hosts.hosts[0].down.Store(false)
	if got := r.exchangeText(c, "3"); got != "b 3 1" { // it stays with a usable host
		t.Errorf("got %q, want %q", got, "b 3 1")
	}
	if r.counts.SessionsMoved.Load() != 1 || r.hosts.hosts[0].sessions.Load() != 0 || r.Sessions() != 1 {
		t.Errorf("the session moved %d times, the previous host has %d sessions, the proxy %d; want 1, 0, 1", r.counts.SessionsMoved.Load(), r.hosts.hosts[0].sessions.Load(), r.Sessions())
	}
}

// TestSessionStaysWithoutOtherHost verifies that a session keeps a host that is marked as down if
// the cluster has no other host, because the mark may be wrong.
func TestSessionStaysWithoutOtherHost(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	c := r.newClient()
	r.exchangeText(c, "1")
	r.hosts.hosts[0].down.Store(true)
	for range 5 {
		if got := r.exchangeText(c, "2"); got != "a 2 1" {
			t.Errorf("got %q, want %q", got, "a 2 1")
		}
	}
	if r.counts.SessionsMoved.Load() != 0 {
		t.Error("the session moved")
	}
	r.sendText(r.newClient(), "3") // a new session gets no host
	r.exchangeText(c, "4")
	if n := r.counts.DroppedNoHost.Load(); n != 1 {
		t.Errorf("%d datagrams without a host, want 1", n)
	}
}

func TestPortUnreachableMovesSession(t *testing.T) {
	r := startProxy(t, config.UDPProxy{})
	stop := r.hosts.addEchoHost("a")
	r.hosts.addEchoHost("b")
	c := r.newClient()
	r.exchangeText(c, "1")
	stop()
	r.sendText(c, "lost") // the kernel receives an ICMP port unreachable
	await(t, "the refused datagram", func() bool { return r.hosts.hosts[0].errors.Load() > 0 })
	if got := r.exchangeText(c, "2"); got != "b 2 1" {
		t.Errorf("got %q, want %q", got, "b 2 1")
	}
}

func TestHashOfSourceIP(t *testing.T) {
	r := startProxy(t, config.UDPProxy{HashSourceIP: true}, "a", "b", "c")
	responses := map[string]bool{}
	for range 10 {
		responses[r.exchangeText(r.newClient(), "x")] = true
	}
	if len(responses) != 1 {
		t.Errorf("one source address used %d hosts, want 1", len(responses))
	}
	for i := range 20 {
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}, r.socket.Addr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		responses[r.exchangeText(conn, "x")] = true
		_ = conn.Close() // the response has arrived
	}
	if len(responses) != 3 {
		t.Errorf("20 source addresses used %d hosts, want 3", len(responses))
	}
}

func TestUpdateConfigAppliesToExistingSessions(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	c := r.newClient()
	r.exchangeText(c, "1")
	r.UpdateConfig(config.UDPProxy{Cluster: "app", IdleTimeout: 30 * time.Millisecond, MaxSessions: 1})
	select {
	case <-r.hosts.hosts[0].sessionEnded:
	case <-time.After(waitTimeout):
		t.Fatal("the shorter timeout has no effect")
	}
	r.UpdateConfig(config.UDPProxy{Cluster: "other", IdleTimeout: time.Minute, MaxSessions: 1})
	r.sendText(c, "2")
	await(t, "a dropped datagram for the other cluster", func() bool { return r.counts.DroppedNoHost.Load() > 0 })
}

func TestDrainRejectsNewSessions(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	c := r.newClient()
	r.exchangeText(c, "1")
	drained := make(chan int)
	go func() { drained <- r.Drain(context.Background()) }()
	for !r.draining.Load() {
		r.exchangeText(c, "before the drain")
	}
	r.sendText(r.newClient(), "new")
	if got := r.exchangeText(c, "2"); got != "a 2 1" {
		t.Errorf("got %q, want %q", got, "a 2 1")
	}
	if n := r.counts.DroppedDraining.Load(); n != 1 {
		t.Errorf("%d dropped datagrams of new sources, want 1", n)
	}
	if forceClosed := <-drained; forceClosed != 0 { // after one second without datagrams
		t.Errorf("%d sessions were force-closed, want 0", forceClosed)
	}
}

func TestDrainDeadlineForceClosesSessions(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	r.exchangeText(r.newClient(), "1")
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	if n := r.Drain(expired); n != 1 {
		t.Errorf("%d sessions were force-closed, want 1", n)
	}
}

// TestDrainWithoutServe verifies that Drain closes the socket of a proxy that never served.
func TestDrainWithoutServe(t *testing.T) {
	socket, err := network.ListenPacket(context.Background(), network.PacketOptions{Name: "l", Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{Socket: socket, Hosts: &fakeLeaser{t: t}, Counts: new(filter.DatagramCounters), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Drain(context.Background()); n != 0 {
		t.Errorf("%d sessions were force-closed, want 0", n)
	}
	if _, _, err := socket.Receive(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Receive on the socket: %v, want %v", err, net.ErrClosed)
	}
}

// addAllocFreeEchoHost adds a host that echoes each datagram without allocating.
func (l *fakeLeaser) addAllocFreeEchoHost() {
	l.t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	l.hosts = append(l.hosts, &fakeHost{name: "echo", address: conn.LocalAddr().String(), sessionEnded: make(chan struct{}, 1000)})
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, network.MaxDatagram)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(b[:n], from) // the session may have ended
		}
	}()
	l.t.Cleanup(func() {
		_ = conn.Close() // ends the loop
		<-done
	})
}

func TestDatagramsDoNotAllocate(t *testing.T) {
	r := startProxy(t, config.UDPProxy{})
	r.hosts.addAllocFreeEchoHost()
	c := r.newClient()
	b := make([]byte, 1500)
	_ = c.SetReadDeadline(time.Now().Add(waitTimeout)) // the socket is open
	exchange := func() {
		if _, err := c.Write(b[:100]); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(b); err != nil || n != 100 {
			t.Fatal(n, err)
		}
	}
	exchange()
	if n := testing.AllocsPerRun(500, exchange); n != 0 {
		t.Errorf("%v allocations for a datagram and its response, want 0", n)
	}
}
