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

// waitTimeout is the timeout of a wait.
const waitTimeout = 10 * time.Second

// fakeLeaser is a filter.HostLeaser over a list. It selects among the hosts that are up, by hash.
type fakeLeaser struct {
	t    *testing.T
	mu   sync.Mutex
	list []*fakeHost // guarded by mu
	fuse panicTrigger
}

type fakeHost struct {
	name, address string
	down          atomic.Bool
	sessions      atomic.Int64
	refusals      atomic.Int64
	datagrams     atomic.Int64
	ended         chan struct{} // receives when a session ends
}

type fakeLease struct {
	*fakeHost
	*panicTrigger
	socket *network.ConnectedUDP
	once   sync.Once
}

func (h *fakeLeaser) Lease(cluster string, hash uint64, now filter.HostLease) (filter.HostLease, error) {
	h.fuse.panicIfArmed("Assign")
	h.mu.Lock()
	defer h.mu.Unlock()
	var up []*fakeHost
	for _, x := range h.list {
		if !x.down.Load() {
			up = append(up, x)
		}
	}
	if len(up) == 0 || cluster != "app" {
		return nil, errors.New("no host")
	}
	x := up[hash%uint64(len(up))]
	if w, ok := now.(*fakeLease); ok && w.fakeHost == x {
		return now, nil
	}
	peer, err := network.Dialer{}.DialPacket(x.address)
	if err != nil {
		return nil, err
	}
	x.sessions.Add(1)
	return &fakeLease{fakeHost: x, panicTrigger: &h.fuse, socket: peer}, nil
}

func (w *fakeLease) Socket() *network.ConnectedUDP { return w.socket }

func (w *fakeLease) Usable() bool {
	w.panicIfArmed("Usable")
	return !w.down.Load()
}

func (w *fakeLease) Report(err error) {
	w.panicIfArmed("Heard")
	if err != nil {
		w.refusals.Add(1)
		w.down.Store(true)
		return
	}
	w.datagrams.Add(1)
}

func (w *fakeLease) Release() {
	defer w.panicIfArmed("End")
	w.once.Do(func() {
		w.socket.Close()
		w.sessions.Add(-1)
		w.ended <- struct{}{}
	})
}

// addEchoHost adds a host that responds to each datagram with its name, up to 20 bytes of the
// datagram, and its size.
func (h *fakeLeaser) addEchoHost(name string) (stop func()) {
	h.t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.list = append(h.list, &fakeHost{name: name, address: conn.LocalAddr().String(), ended: make(chan struct{}, 1000)})
	h.mu.Unlock()
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
	h.t.Cleanup(stop)
	return stop
}

// testProxy is a proxy that serves.
type testProxy struct {
	*Proxy
	t      *testing.T
	hosts  *fakeLeaser
	counts *filter.DatagramCounters
	served chan error
}

func startProxy(t *testing.T, cfg config.UDPProxy, names ...string) *testProxy {
	t.Helper()
	running := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, running) })
	r := &testProxy{t: t, hosts: &fakeLeaser{t: t}, counts: new(filter.DatagramCounters), served: make(chan error, 1)}
	for _, name := range names {
		r.hosts.addEchoHost(name)
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
	r.Proxy, err = New(Options{Config: cfg, Socket: socket, Hosts: r.hosts, Counts: r.counts, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.Serve() }()
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		r.Drain(now)
		if err := <-r.served; err != nil {
			t.Error(err)
		}
	})
	return r
}

// newClient returns the socket of a new source.
func (r *testProxy) newClient() *net.UDPConn {
	r.t.Helper()
	conn, err := net.DialUDP("udp", nil, r.socket.Addr().(*net.UDPAddr))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() }) // the test has ended
	return conn
}

func (r *testProxy) sendText(conn *net.UDPConn, text string) {
	r.t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testProxy) readText(conn *net.UDPConn) string {
	r.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(waitTimeout)) // the socket is open
	b := make([]byte, network.MaxDatagram)
	n, err := conn.Read(b)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b[:n])
}

func (r *testProxy) exchangeText(conn *net.UDPConn, text string) string {
	r.t.Helper()
	r.sendText(conn, text)
	return r.readText(conn)
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(waitTimeout)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("timeout: " + what)
		}
	}
}

func TestEachSourceHasASession(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	one, two := r.newClient(), r.newClient()
	for i := range 3 {
		for _, c := range []*net.UDPConn{one, two} {
			want := fmt.Sprintf("a %s%d %d", c.LocalAddr().String()[10:], i, len(c.LocalAddr().String()[10:])+1)
			if got := r.exchangeText(c, fmt.Sprint(c.LocalAddr().String()[10:], i)); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	if n := r.Sessions(); n != 2 || r.hosts.list[0].sessions.Load() != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	c := r.counts
	await(t, "two sessions opened and six datagrams each way counted", func() bool { // they are after they are sent
		return c.SessionsOpened.Load() == 2 && c.In.Load() == 6 && c.Out.Load() == 6 && c.InBytes.Load() > 0 && c.OutBytes.Load() > c.InBytes.Load()
	})
	if n := r.hosts.list[0].datagrams.Load(); n != 6 {
		t.Errorf("the host sent %d datagrams, want 6", n)
	}
}

func TestDatagramsOfAnySizeAreForwarded(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	c := r.newClient()
	for _, size := range []int{0, 1, 1500, 9000, 65_507} {
		if got, want := r.exchangeText(c, string(slices.Repeat([]byte("x"), size))), fmt.Sprint(" ", size); got[len(got)-len(want):] != want {
			t.Errorf("of %d bytes the host got %q", size, got)
		}
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	r := startProxy(t, config.UDPProxy{IdleTimeout: 40 * time.Millisecond}, "a")
	c := r.newClient()
	r.exchangeText(c, "one")
	select {
	case <-r.hosts.list[0].ended:
	case <-time.After(waitTimeout):
		t.Fatal("the session does not end")
	}
	if n := r.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
	if got := r.exchangeText(c, "two"); got != "a two 3" { // a new session
		t.Errorf("got %q", got)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	r := startProxy(t, config.UDPProxy{MaxSessions: 2}, "a")
	first := r.newClient()
	r.exchangeText(first, "1")
	r.exchangeText(r.newClient(), "2")
	r.sendText(r.newClient(), "3")
	if got := r.exchangeText(first, "4"); got != "a 4 1" { // an existing session is served
		t.Errorf("got %q", got)
	}
	if n, dropped := r.Sessions(), r.counts.DroppedMaxSessions.Load(); n != 2 || dropped != 1 {
		t.Errorf("%d sessions, %d datagrams dropped, want 2 and 1", n, dropped)
	}
}

func TestSessionMovesWhenHostIsDown(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a", "b")
	c := r.newClient()
	if got := r.exchangeText(c, "1"); got != "a 1 1" {
		t.Fatalf("got %q", got)
	}
	r.hosts.list[0].down.Store(true)
	if got := r.exchangeText(c, "2"); got != "b 2 1" {
		t.Errorf("got %q", got)
	}
	r.hosts.list[0].down.Store(false)
	if got := r.exchangeText(c, "3"); got != "b 3 1" { // it stays with a usable host
		t.Errorf("got %q", got)
	}
	if r.counts.SessionsMoved.Load() != 1 || r.hosts.list[0].sessions.Load() != 0 || r.Sessions() != 1 {
		t.Errorf("moved %d times, %d sessions left behind", r.counts.SessionsMoved.Load(), r.hosts.list[0].sessions.Load())
	}
}

// TestSessionStaysWithoutOtherHost verifies that a session keeps a host that is down if there
// is no other host. The health status may be wrong.
func TestSessionStaysWithoutOtherHost(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	c := r.newClient()
	r.exchangeText(c, "1")
	r.hosts.list[0].down.Store(true)
	for range 5 {
		if got := r.exchangeText(c, "2"); got != "a 2 1" {
			t.Errorf("got %q", got)
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
	await(t, "the refusal is heard of", func() bool { return r.hosts.list[0].refusals.Load() > 0 })
	if got := r.exchangeText(c, "2"); got != "b 2 1" {
		t.Errorf("got %q", got)
	}
}

func TestHashOfSourceIP(t *testing.T) {
	r := startProxy(t, config.UDPProxy{HashSourceIP: true}, "a", "b", "c")
	at := map[string]bool{}
	for range 10 {
		at[r.exchangeText(r.newClient(), "x")] = true
	}
	if len(at) != 1 {
		t.Errorf("one address was sent to %d hosts", len(at))
	}
	for i := range 20 {
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}, r.socket.Addr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		at[r.exchangeText(conn, "x")] = true
		_ = conn.Close() // the response has arrived
	}
	if len(at) != 3 {
		t.Errorf("many addresses were sent to %d hosts", len(at))
	}
}

func TestUpdateConfigAppliesToExistingSessions(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	c := r.newClient()
	r.exchangeText(c, "1")
	r.UpdateConfig(config.UDPProxy{Cluster: "app", IdleTimeout: 30 * time.Millisecond, MaxSessions: 1})
	select {
	case <-r.hosts.list[0].ended:
	case <-time.After(waitTimeout):
		t.Fatal("the shorter timeout has no effect")
	}
	r.UpdateConfig(config.UDPProxy{Cluster: "other", IdleTimeout: time.Minute, MaxSessions: 1})
	r.sendText(c, "2")
	await(t, "the other cluster has its effect", func() bool { return r.counts.DroppedNoHost.Load() > 0 })
}

func TestDrainRejectsNewSessions(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	c := r.newClient()
	r.exchangeText(c, "1")
	drained := make(chan int)
	go func() { drained <- r.Drain(context.Background()) }()
	for !r.draining.Load() {
		r.exchangeText(c, "while it begins")
	}
	r.sendText(r.newClient(), "new")
	if got := r.exchangeText(c, "2"); got != "a 2 1" {
		t.Errorf("got %q", got)
	}
	if n := r.counts.DroppedDraining.Load(); n != 1 {
		t.Errorf("%d datagrams of new sources, want 1", n)
	}
	if cut := <-drained; cut != 0 { // after one second without datagrams
		t.Errorf("%d sessions were force-closed", cut)
	}
}

func TestDrainDeadlineForceClosesSessions(t *testing.T) {
	r := startProxy(t, config.UDPProxy{}, "a")
	r.exchangeText(r.newClient(), "1")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if cut := r.Drain(now); cut != 1 {
		t.Errorf("%d sessions were force-closed, want 1", cut)
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
	if cut := p.Drain(context.Background()); cut != 0 {
		t.Errorf("%d sessions were force-closed", cut)
	}
	if _, _, err := socket.Receive(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is open: %v", err)
	}
}

// addAllocFreeEchoHost adds a host that echoes each datagram and allocates nothing.
func (h *fakeLeaser) addAllocFreeEchoHost() {
	h.t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.list = append(h.list, &fakeHost{name: "mute", address: conn.LocalAddr().String(), ended: make(chan struct{}, 1000)})
	h.mu.Unlock()
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
	h.t.Cleanup(func() {
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
	there := func() {
		if _, err := c.Write(b[:100]); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(b); err != nil || n != 100 {
			t.Fatal(n, err)
		}
	}
	there()
	if n := testing.AllocsPerRun(500, there); n != 0 {
		t.Errorf("%v allocations for a datagram there and back, want 0", n)
	}
}
