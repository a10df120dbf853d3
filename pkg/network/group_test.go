package network

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// groupListener is a listener whose connections join group, or no group if group is nil or has
// ended. Each connection echoes every byte until it is drained.
type groupListener struct {
	t         *testing.T
	ln        *Listener
	group     atomic.Pointer[ConnGroup]
	joined    chan *Conn
	neverIdle bool // the handler never calls SetIdle
	address   string
}

// listenGrouped returns a groupListener that serves until the test ends.
func listenGrouped(t *testing.T) *groupListener {
	t.Helper()
	g := &groupListener{t: t, joined: make(chan *Conn)}
	ln, err := Listen(t.Context(), ListenOptions{Name: "test", Network: "tcp", Address: "127.0.0.1:0"}, g)
	if err != nil {
		t.Fatal(err)
	}
	g.ln, g.address = ln, ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- ln.Serve(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ln.Drain(ctx)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *groupListener) ServeConn(_ context.Context, conn *Conn) error {
	if group := g.group.Load(); group != nil {
		group.Join(conn)
	}
	g.joined <- conn
	var b [1]byte
	if g.neverIdle {
		_, err := conn.Read(b[:])
		return err
	}
	for {
		if err := conn.SetIdle(true); err != nil {
			return err
		}
		if _, err := conn.Read(b[:]); err != nil {
			return err
		}
		_ = conn.SetIdle(false)
		conn.Requests++
		if _, err := conn.Write(b[:]); err != nil || conn.Draining() {
			return err
		}
	}
}

// dial opens a connection and returns once it is served.
func (g *groupListener) dial() net.Conn {
	g.t.Helper()
	nc, err := net.Dial("tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = nc.Close() })
	<-g.joined
	return nc
}

// echoes reports whether one more exchange succeeds on nc.
func (g *groupListener) echoes(nc net.Conn) bool {
	g.t.Helper()
	if err := nc.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		g.t.Fatal(err)
	}
	if _, err := nc.Write([]byte{'x'}); err != nil {
		return false
	}
	n, err := nc.Read(make([]byte, 1))
	return n == 1 && err == nil
}

func TestDrainGroupKeepsOtherGroups(t *testing.T) {
	g := listenGrouped(t)
	var groupA, groupB ConnGroup
	g.group.Store(&groupA)
	connA := g.dial()
	g.group.Store(&groupB)
	connB := g.dial()
	g.group.Store(nil)
	ungroupedConn := g.dial()
	if !g.echoes(connA) {
		t.Error("a connection of the group ended before the drain")
	}
	if forceClosed := g.ln.DrainGroup(t.Context(), &groupA); forceClosed != 0 {
		t.Errorf("%d idle connections were force-closed, want 0", forceClosed)
	}
	if n, err := connA.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("a connection of the drained group: read %d bytes, %v; want EOF", n, err)
	}
	g.ln.DrainGroupAfterNext(&groupB)
	if first, second := g.echoes(connB), g.echoes(connB); !first || second {
		t.Errorf("exchanges of an idle connection of the drained group succeeded: %v, %v; want only the next one", first, second)
	}
	for range 2 {
		if !g.echoes(ungroupedConn) {
			t.Error("a connection without a group ended")
		}
	}
}

// TestDrainWaitsForFirstExchange verifies that a new connection ends only after its first exchange,
// because its client does not know of the drain. A silent connection ends shortly before it would
// be force-closed, or earlier if the whole listener drains.
func TestDrainWaitsForFirstExchange(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration // of the drain
		drain   func(ctx context.Context, g *groupListener, group *ConnGroup) int
	}{
		{"group", 2 * time.Second, func(ctx context.Context, g *groupListener, group *ConnGroup) int {
			return g.ln.DrainGroup(ctx, group)
		}},
		{"listener", time.Hour, func(ctx context.Context, g *groupListener, _ *ConnGroup) int { return g.ln.Drain(ctx) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := listenGrouped(t)
			var group ConnGroup
			g.group.Store(&group)
			activeConn, silentConn := g.dial(), g.dial()
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			forceClosed := make(chan int)
			go func() { forceClosed <- tt.drain(ctx, g, &group) }()
			for draining := false; !draining; runtime.Gosched() {
				draining = true
				g.ln.forEachConn(func(c *Conn) { draining = draining && c.Draining() })
			}
			if first, second := g.echoes(activeConn), g.echoes(activeConn); !first || second {
				t.Errorf("exchanges of a new connection succeeded: %v, %v; want only the first", first, second)
			}
			if n := <-forceClosed; n != 0 {
				t.Errorf("%d connections were force-closed, want 0", n)
			}
			if n, err := silentConn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("a silent connection: read %d bytes, %v; want EOF", n, err)
			}
		})
	}
}

func TestJoinEndedGroupFails(t *testing.T) {
	server, peer := net.Pipe()
	defer peer.Close()
	conn := NewConn(server)
	var openGroup, endedGroup ConnGroup
	endedGroup.end()
	if open, ended := openGroup.Join(conn), endedGroup.Join(conn); !open || ended || conn.group.Load() != &openGroup {
		t.Errorf("Join of the open group = %v, then of the ended one = %v, still in the open group: %v; want true, false, true", open, ended, conn.group.Load() == &openGroup)
	}
	groupEmpty := openGroup.end()
	select {
	case <-groupEmpty:
		t.Error("the channel of end was closed, but the group has a connection")
	default:
	}
	leaveGroup(conn)
	<-groupEmpty
}

// TestJoinedConnectionIsDrained verifies that a connection that joins a group concurrently with its
// drain is drained.
func TestJoinedConnectionIsDrained(t *testing.T) {
	l := newListener(ListenOptions{}, nil, nil)
	for range 5000 {
		server, peer := net.Pipe()
		conn := NewConn(server)
		l.conns = map[*Conn]struct{}{conn: {}}
		var g ConnGroup
		var wg sync.WaitGroup
		joined := false
		wg.Go(func() { joined = g.Join(conn) })
		wg.Go(func() { l.DrainGroupAfterNext(&g) })
		wg.Wait()
		if joined && !conn.Draining() {
			t.Fatal("a connection joined the group and is not drained")
		}
		_ = peer.Close()
	}
}

// TestSetHandlerAssignsGroup verifies that a group has exactly the connections that were accepted
// before its handler was replaced.
func TestSetHandlerAssignsGroup(t *testing.T) {
	g := listenGrouped(t)
	var groupA, groupB ConnGroup
	g.ln.SetHandler(g, &groupA)
	connA := g.dial()
	g.ln.SetHandler(g, &groupB)
	connB := g.dial()
	if !g.echoes(connA) {
		t.Error("a connection ended before the drain")
	}
	g.ln.DrainGroup(t.Context(), &groupA)
	if g.echoes(connA) {
		t.Error("a connection of the drained group did not end")
	}
	if !g.echoes(connB) {
		t.Error("a connection of another group ended")
	}
	g.ln.SetHandler(g, nil)
	if ungroupedConn := g.dial(); groupB.size != 1 || !g.echoes(ungroupedConn) {
		t.Errorf("connection without a group: the previous group has %d connections, want 1", groupB.size)
	}
}

// TestEndedGroupFallsThroughToNextHandler verifies that a connection accepted while the handler is
// replaced gets the new handler and its group.
func TestEndedGroupFallsThroughToNextHandler(t *testing.T) {
	server, peer := net.Pipe()
	defer peer.Close()
	conn := NewConn(server)
	l := newListener(ListenOptions{}, nil, nil)
	var endedGroup, nextGroup ConnGroup
	l.SetHandler(nil, &endedGroup)
	endedGroup.end()
	nextHandler := &groupListener{}
	var replacing atomic.Bool
	go func() {
		replacing.Store(true)
		l.SetHandler(nextHandler, &nextGroup)
	}()
	if h := l.handlerFor(conn); h != Handler(nextHandler) || conn.group.Load() != &nextGroup || !replacing.Load() {
		t.Errorf("served by %v, in the group %p; want the new handler and its group", h, conn.group.Load())
	}
}

// TestDrainGroupForceClosesAtDeadline verifies that DrainGroup force-closes a connection that never
// ends.
func TestDrainGroupForceClosesAtDeadline(t *testing.T) {
	g := listenGrouped(t)
	g.neverIdle = true
	var group ConnGroup
	g.group.Store(&group)
	nc := g.dial()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if forceClosed := g.ln.DrainGroup(ctx, &group); forceClosed != 1 {
		t.Errorf("%d connections were force-closed, want 1", forceClosed)
	}
	if _, err := nc.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}
