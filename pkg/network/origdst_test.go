package network

import (
	"context"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// redirectedConn is a connection with the given local address.
type redirectedConn struct {
	net.Conn
	local net.Addr
}

func (c *redirectedConn) LocalAddr() net.Addr  { return c.local }
func (c *redirectedConn) RemoteAddr() net.Addr { return tcpAddr("192.0.2.1:40000") }

func tcpAddr(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }

// boundListener is a scriptedListener with the given address.
type boundListener struct {
	*scriptedListener
	addr net.Addr
}

func (l boundListener) Addr() net.Addr { return l.addr }

// eventRecorder is a ListenerCounter that records events in order.
type eventRecorder struct {
	mu     sync.Mutex
	events []string // guarded by mu
}

func (r *eventRecorder) record(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *eventRecorder) Accepted()          { r.record("accepted") }
func (r *eventRecorder) Refused()           { r.record("refused") }
func (r *eventRecorder) AcceptError()       { r.record("error") }
func (r *eventRecorder) Closed(CloseReason) { r.record("closed") }

func (r *eventRecorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// redirectingListener is a listener that redirects connections by their original destination.
// served receives those that it keeps.
type redirectingListener struct {
	*Listener
	script *scriptedListener
	served chan *Conn
}

func newRedirectingListener(t *testing.T, addr string, counter ListenerCounter) *redirectingListener {
	t.Helper()
	l := &redirectingListener{
		script: &scriptedListener{results: make(chan any, 4), closed: make(chan struct{})},
		served: make(chan *Conn, 4),
	}
	l.Listener = newListener(ListenOptions{Name: "front", Counter: counter}, boundListener{l.script, tcpAddr(addr)}, sendConns(l.served))
	serveUntilEnd(t, l.Listener)
	return l
}

// sendConns returns a handler that sends its connections to dst and returns.
func sendConns(dst chan<- *Conn) Handler {
	return handlerFunc(func(_ context.Context, c *Conn) error {
		dst <- c
		return nil
	})
}

// serveUntilEnd calls l.Serve until the test ends.
func serveUntilEnd(t *testing.T, l *Listener) {
	t.Helper()
	serveErr := make(chan error, 1)
	go func() { serveErr <- l.Serve(t.Context()) }()
	t.Cleanup(func() {
		l.Drain(context.Background())
		if err := <-serveErr; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
}

// arrive makes the listener accept a connection with the given local address, and returns the
// client's end.
func (l *redirectingListener) arrive(t *testing.T, local string) net.Conn {
	t.Helper()
	accepted, peer := net.Pipe()
	t.Cleanup(func() { _ = peer.Close() })
	l.script.results <- &redirectedConn{accepted, tcpAddr(local)}
	return peer
}

// useTProxy makes the listener look up the destination of each connection with lookup.
func (l *redirectingListener) useTProxy(lookup ListenerLookup) {
	l.originalDst.Store(&originalDstConfig{OriginalDstTProxy, lookup})
}

func TestTProxyDestination(t *testing.T) {
	for _, tt := range []struct{ name, listener, local, want string }{
		{"remote address", "0.0.0.0:15001", "198.51.100.7:80", "198.51.100.7:80"},
		{"remote IPv6 address", "[::]:15001", "[2001:db8::7]:80", "[2001:db8::7]:80"},
		{"remote IPv4 address, dual-stack socket", "[::]:15001", "[::ffff:198.51.100.7]:80", "198.51.100.7:80"},
		{"local address, another port", "127.0.0.1:15001", "127.0.0.1:80", "127.0.0.1:80"},
		{"remote address, port of the listener", "127.0.0.1:15001", "198.51.100.7:15001", "198.51.100.7:15001"},
		{"address of the listener", "127.0.0.1:15001", "127.0.0.1:15001", ""},
		{"wildcard listener, port of the listener", "0.0.0.0:15001", "198.51.100.7:15001", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			accepted, _ := net.Pipe()
			c := NewConn(&redirectedConn{accepted, tcpAddr(tt.local)})
			dst, ok := originalDst(OriginalDstTProxy, c, tcpAddr(tt.listener))
			if got := dst.String(); ok && got != tt.want || ok != (tt.want != "") {
				t.Errorf("destination = %v, %v; want %q", dst, ok, tt.want)
			}
		})
	}
}

func TestUnredirectedConnectionIsServed(t *testing.T) {
	served := make(chan *Conn, 1)
	l := listen(t, ListenOptions{}, sendConns(served))
	lookup := func(dst netip.AddrPort) *Listener {
		t.Errorf("lookup for %v, want none", dst)
		return nil
	}
	if err := l.UseOriginalDst(OriginalDstRedirect, lookup); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := <-served
	if dst, ok := c.Addrs().OriginalDst(); ok {
		t.Errorf("OriginalDst = %v of a connection to the listener's address, want none", dst)
	}
	if got := c.LocalAddr().String(); got != l.Addr().String() {
		t.Errorf("LocalAddr = %s, want %s", got, l.Addr())
	}
}

func TestRedirectedConnectionIsTakenOver(t *testing.T) {
	var boundEvents, virtualEvents eventRecorder
	bound := newRedirectingListener(t, "0.0.0.0:15001", &boundEvents)
	got := make(chan *Conn, 1)
	virtual := NewVirtualListener(ListenOptions{Name: "back", Counter: &virtualEvents}, netip.MustParseAddrPort("198.51.100.7:80"), sendConns(got))
	serveUntilEnd(t, virtual)
	bound.useTProxy(func(dst netip.AddrPort) *Listener {
		if dst == netip.MustParseAddrPort("198.51.100.7:80") {
			return virtual
		}
		return nil
	})
	bound.arrive(t, "198.51.100.7:80")
	c := <-got
	if dst, ok := c.Addrs().OriginalDst(); !ok || dst.String() != "198.51.100.7:80" {
		t.Errorf("OriginalDst = %v, %v; want 198.51.100.7:80, true", dst, ok)
	}
	if addr, proxied := c.Addrs().DirectRemote(); proxied || addr.String() != "192.0.2.1:40000" {
		t.Errorf("DirectRemote = %v, %v; want the socket's address and false", addr, proxied)
	}
	peer := bound.arrive(t, "198.51.100.8:80")
	if c := <-bound.served; c.LocalAddr().String() != "198.51.100.8:80" {
		t.Errorf("LocalAddr = %v, want the original destination", c.LocalAddr())
	}
	_, _ = peer.Read(make([]byte, 1)) // EOF: the close has been counted
	virtual.Drain(t.Context())
	bound.Drain(t.Context())
	if got, want := virtualEvents.list(), []string{"accepted", "closed"}; !slices.Equal(got, want) {
		t.Errorf("the virtual listener counted %q, want %q", got, want)
	}
	if got, want := boundEvents.list(), []string{"accepted", "closed"}; !slices.Equal(got, want) {
		t.Errorf("the bound listener counted %q, want %q", got, want)
	}
}

func TestVirtualListenerLimits(t *testing.T) {
	var boundEvents, virtualEvents eventRecorder
	bound := newRedirectingListener(t, "0.0.0.0:15001", &boundEvents)
	virtual := NewVirtualListener(ListenOptions{Name: "back", Counter: &virtualEvents, MaxConnections: 1}, netip.MustParseAddrPort("198.51.100.7:80"), holdHandler)
	serveUntilEnd(t, virtual)
	bound.useTProxy(func(netip.AddrPort) *Listener { return virtual })
	first := bound.arrive(t, "198.51.100.7:80")
	second := bound.arrive(t, "198.51.100.7:80")
	if n, err := second.Read(make([]byte, 1)); err == nil {
		t.Fatalf("the second connection: read %d bytes, want EOF", n)
	}
	if got := virtual.Connections(); got != 1 {
		t.Errorf("Connections = %d, want 1", got)
	}
	_ = first.Close()
	virtual.Drain(t.Context())
	if got, want := virtualEvents.list(), []string{"accepted", "refused", "closed"}; !slices.Equal(got, want) {
		t.Errorf("counted %q, want %q", got, want)
	}
	if got := boundEvents.list(); len(got) > 0 {
		t.Errorf("the bound listener counted %q, want nothing", got)
	}
}

func TestStoppedVirtualListenerIsLookedUpAgain(t *testing.T) {
	var boundEvents eventRecorder
	bound := newRedirectingListener(t, "0.0.0.0:15001", &boundEvents)
	stoppedListener := NewVirtualListener(ListenOptions{}, netip.MustParseAddrPort("198.51.100.7:80"), holdHandler)
	stoppedListener.Stop()
	got := make(chan *Conn, 1)
	nextListener := NewVirtualListener(ListenOptions{}, netip.MustParseAddrPort("198.51.100.7:80"), sendConns(got))
	serveUntilEnd(t, nextListener)
	lookups := 0
	bound.useTProxy(func(netip.AddrPort) *Listener {
		if lookups++; lookups == 1 {
			return stoppedListener
		}
		return nextListener
	})
	bound.arrive(t, "198.51.100.7:80")
	<-got

	// All listeners for the destination have stopped: the bound listener must not serve its
	// connections.
	bound.useTProxy(func(netip.AddrPort) *Listener { return stoppedListener })
	peer := bound.arrive(t, "198.51.100.7:80")
	if n, err := peer.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes, want EOF", n)
	}
	if got, want := boundEvents.list(), []string{"refused"}; !slices.Equal(got, want) {
		t.Errorf("counted %q, want %q", got, want)
	}
}

func TestVirtualListenerHasNoSocket(t *testing.T) {
	v := NewVirtualListener(ListenOptions{Name: "v"}, netip.MustParseAddrPort("198.51.100.7:80"), holdHandler)
	defer v.Stop()
	if got := v.Addr().String(); got != "198.51.100.7:80" {
		t.Errorf("Addr = %s, want 198.51.100.7:80", got)
	}
	if err := v.UseOriginalDst(OriginalDstTProxy, nil); err == nil {
		t.Error("UseOriginalDst(OriginalDstTProxy) of a listener without a socket succeeded")
	}
}

func TestSocketAddressIsNotOriginalDst(t *testing.T) {
	local, _ := net.Pipe()
	c := NewConn(&redirectedConn{local, tcpAddr("127.0.0.1:15001")})
	c.Addrs().SetProxied(tcpAddr("127.0.0.1:15001"), tcpAddr("192.0.2.9:1"))
	if dst, ok := c.Addrs().OriginalDst(); ok {
		t.Errorf("OriginalDst = %v, want none: the proxied address equals the socket's", dst)
	}
	c.Addrs().SetProxied(tcpAddr("[::ffff:198.51.100.7]:80"), tcpAddr("192.0.2.9:1"))
	if dst, ok := c.Addrs().OriginalDst(); !ok || dst.String() != "198.51.100.7:80" {
		t.Errorf("OriginalDst = %v, %v; want the proxied address", dst, ok)
	}
}

// echo is a handler that echoes one read and then parks the connection.
func echo(_ context.Context, c *Conn) error {
	var b *buffer.IoBuffer
	_, err := c.Fill(&b, 16)
	if b != nil {
		defer b.Release()
	}
	if err != nil {
		return err
	}
	c.Requests++
	if _, err = c.Write(b.Bytes()); err != nil || c.Draining() {
		return err
	}
	return ErrPark
}

// parkFirst is a handler that is called before there are bytes, and parks the connection.
func parkFirst(_ context.Context, c *Conn) error {
	c.Handler = handlerFunc(echo)
	return ErrPark
}

// readFirst is a handler that is called before there are bytes, and waits for them itself.
func readFirst(ctx context.Context, c *Conn) error {
	if err := c.SetIdle(true); err != nil {
		return err
	}
	err := c.AwaitReadable()
	_ = c.SetIdle(false)
	if err != nil {
		return err
	}
	c.Handler = handlerFunc(echo)
	return echo(ctx, c)
}

func TestStoppingListenerServesTakenOverConnections(t *testing.T) {
	for _, tt := range []struct {
		name      string
		serve     Handler
		stop      func(*Listener)
		servesNew bool // a connection without an exchange is served
	}{
		{"replaced listener", idleHandler{echo, time.Minute}, (*Listener).StopReplaced, true},
		{"handler parks first", handlerFunc(parkFirst), (*Listener).StopReplaced, true},
		{"handler reads first", handlerFunc(readFirst), (*Listener).StopReplaced, true},
		{"stopped listener", idleHandler{echo, time.Minute}, (*Listener).Stop, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := NewVirtualListener(ListenOptions{}, netip.MustParseAddrPort("198.51.100.7:80"), tt.serve)
			serveUntilEnd(t, v)
			takeOverConn := func() net.Conn {
				local, peer := pair(t)
				if !v.takeOver(local) {
					t.Fatal("takeOver = false, want true")
				}
				for !local.state.load().idle() { // until the connection is parked or its handler waits
					runtime.Gosched()
				}
				return peer
			}
			exchange := func(c net.Conn) error {
				_, err := c.Write([]byte("ping"))
				if err == nil {
					_, err = io.ReadFull(c, make([]byte, 4))
				}
				return err
			}
			usedConn, newConn := takeOverConn(), takeOverConn()
			if err := exchange(usedConn); err != nil {
				t.Fatal(err)
			}
			tt.stop(v)
			if v.takeOver(NewConn(usedConn)) {
				t.Error("takeOver = true for a stopped listener, want false")
			}
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				if forceClosed := v.Drain(context.Background()); forceClosed != 0 {
					t.Errorf("%d connections were force-closed, want 0", forceClosed)
				}
			}()
			if _, err := usedConn.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("an idle connection after its first exchange: %v, want EOF", err)
			}
			v.Connections() // takes the lock: Drain has notified all connections
			if !tt.servesNew {
				<-drained // the handler would serve bytes that arrive before it wakes
			}
			if err := exchange(newConn); (err == nil) != tt.servesNew {
				t.Errorf("first exchange of a connection: %v, want success: %t", err, tt.servesNew)
			}
			<-drained
		})
	}
}
