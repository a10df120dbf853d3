package network

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTokenBucketRate(t *testing.T) {
	rate := AcceptRate{PerSecond: 10, Burst: 3}
	now := time.Unix(0, 0)
	var b tokenBucket
	tokens, totalWait := 0, time.Duration(0)
	for tokens < 103 {
		if d := b.take(now, rate); d > 0 {
			now = now.Add(d)
			totalWait += d
			continue
		}
		tokens++
	}
	if totalWait < 9999*time.Millisecond || totalWait > 10001*time.Millisecond {
		t.Errorf("103 connections at 10/s with a burst of 3 took %v, want 10s", totalWait)
	}
	now = now.Add(time.Hour)
	for range 3 {
		if d := b.take(now, rate); d > 0 {
			t.Errorf("burst after a pause: wait of %v, want none", d)
		}
	}
	if d := b.take(now, rate); d < 99*time.Millisecond || d > 101*time.Millisecond {
		t.Errorf("wait after the burst: %v, want 100ms", d)
	}
	if d := b.take(now, AcceptRate{}); d > 0 {
		t.Errorf("wait without a rate: %v, want 0", d)
	}
	if d := b.take(now, AcceptRate{PerSecond: 0.5}); d > 0 {
		t.Errorf("wait after a change of the rate: %v, want none", d)
	}
	if d := b.take(now, AcceptRate{PerSecond: 0.5}); d < 1999*time.Millisecond || d > 2001*time.Millisecond {
		t.Errorf("wait at 0.5/s: %v, want 2s", d)
	}
}

// fakeListener is a net.Listener that accepts the connections that arrive queues.
type fakeListener struct {
	net.Listener // not called

	conns  chan net.Conn
	closed chan struct{}
}

func newFakeListener(n int) *fakeListener {
	l := &fakeListener{conns: make(chan net.Conn, n), closed: make(chan struct{})}
	for range n {
		l.arrive()
	}
	return l
}

// arrive queues one more connection and returns the client's end.
func (l *fakeListener) arrive() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error { close(l.closed); return nil }

// closeImmediately returns a handler that closes its connections immediately.
func closeImmediately() Handler {
	return handlerFunc(func(context.Context, *Conn) error { return nil })
}

// countingCounter is a ListenerCounter that counts accepted and refused connections.
type countingCounter struct{ accepted, refused atomic.Int64 }

func (c *countingCounter) Accepted()          { c.accepted.Add(1) }
func (c *countingCounter) Refused()           { c.refused.Add(1) }
func (c *countingCounter) AcceptError()       {}
func (c *countingCounter) Closed(CloseReason) {}

func TestAcceptRateQueuesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, counter := newFakeListener(1000), &countingCounter{}
		l := newListener(ListenOptions{AcceptRate: AcceptRate{PerSecond: 10, Burst: 5}, Counter: counter}, ln, closeImmediately())
		serveErr := make(chan error)
		go func() { serveErr <- l.Serve(t.Context()) }()
		for second := range 4 {
			synctest.Wait()
			if want := int64(5 + 10*second); counter.accepted.Load() < want-1 || counter.accepted.Load() > want || counter.refused.Load() > 0 {
				t.Errorf("after %d s: %d connections accepted, %d refused; want %d accepted", second, counter.accepted.Load(), counter.refused.Load(), want)
			}
			<-time.After(time.Second)
		}
		l.SetAcceptRate(AcceptRate{})
		<-time.After(maxRateWait)
		synctest.Wait()
		if n := counter.accepted.Load(); n != 1000 {
			t.Errorf("without a rate: %d of 1000 connections accepted, want all", n)
		}
		l.Stop()
		if err := <-serveErr; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
}

func TestStopEndsRateWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(ListenOptions{AcceptRate: AcceptRate{PerSecond: 0.001, Burst: 1}}, newFakeListener(3), closeImmediately())
		serveErr := make(chan error)
		go func() { serveErr <- l.Serve(t.Context()) }()
		synctest.Wait()
		started := time.Now()
		l.Stop()
		if err := <-serveErr; err != nil || time.Since(started) > 0 {
			t.Errorf("Serve = %v after %v, want nil immediately", err, time.Since(started))
		}
	})
}

func TestPauseAcceptQueuesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limiter ConnLimiter
		ln, counter := newFakeListener(0), &countingCounter{}
		ln.conns = make(chan net.Conn, 8)
		l := newListener(ListenOptions{Limiter: &limiter, Counter: counter}, ln, closeImmediately())
		serveErr := make(chan error)
		go func() { serveErr <- l.Serve(t.Context()) }()
		expect := func(label string, want int64) {
			t.Helper()
			<-time.After(time.Minute)
			synctest.Wait()
			if counter.accepted.Load() != want || counter.refused.Load() != 0 {
				t.Errorf("%s: %d connections accepted, %d refused; want %d accepted", label, counter.accepted.Load(), counter.refused.Load(), want)
			}
		}
		ln.arrive()
		expect("before the pause", 1)
		limiter.PauseAccept()
		limiter.PauseAccept()
		ln.arrive() // Accept was already waiting for this connection when the pause began
		ln.arrive()
		expect("paused", 1)
		if queued := len(ln.conns); queued != 1 {
			t.Errorf("%d connections are queued, want 1", queued)
		}
		limiter.ResumeAccept()
		limiter.ResumeAccept()
		expect("resumed", 3)
		limiter.PauseAccept()
		lastConn := ln.arrive()
		expect("paused again", 3)
		l.Stop()
		if err := <-serveErr; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
		if _, err := lastConn.Read(make([]byte, 1)); err == nil {
			t.Error("Stop did not close a connection that waited for the end of the pause")
		}
	})
}

func TestConnLimiterRejectsFraction(t *testing.T) {
	var limiter ConnLimiter
	for fraction, want := range map[float64][2]uint64{0: {0, 0}, 0.25: {2000, 3000}, 1: {10_000, 10_000}, 7: {10_000, 10_000}, -1: {0, 0}} {
		limiter.SetRejectFraction(fraction)
		before, refused := limiter.Refused(), uint64(0)
		for range 10_000 {
			if limiter.acquire() {
				limiter.release()
			} else {
				refused++
			}
		}
		if refused < want[0] || refused > want[1] || limiter.Refused()-before != refused {
			t.Errorf("reject fraction %v: %d of 10,000 refused, %d counted; want %d to %d refused, all counted", fraction, refused, limiter.Refused()-before, want[0], want[1])
		}
		if limiter.Active() != 0 {
			t.Errorf("Active = %d, want 0", limiter.Active())
		}
	}
}

// TestConnLimiterIsShared verifies that two listeners share a limit of one connection.
func TestConnLimiterIsShared(t *testing.T) {
	var limiter ConnLimiter
	limiter.SetLimit(1)
	firstListener, secondListener := listen(t, ListenOptions{Limiter: &limiter}, holdHandler), listen(t, ListenOptions{Limiter: &limiter}, holdHandler)
	dial := func(l *Listener) net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		return c
	}
	firstConn := dial(firstListener)
	waitUntil(t, "the first connection is open", func() bool { return limiter.Active() == 1 })
	if _, err := dial(secondListener).Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a connection of the other listener: %v, want EOF", err)
	}
	_ = firstConn.Close()
	waitUntil(t, "the first connection has ended", func() bool { return limiter.Active() == 0 })
	secondConn := dial(secondListener)
	waitUntil(t, "the second connection is open", func() bool { return limiter.Active() == 1 })
	if secondListener.Connections() != 1 {
		t.Errorf("Connections = %d, want 1", secondListener.Connections())
	}
	_ = secondConn.Close()
}

// waitUntil waits until condition returns true. It fails the test after 5 s.
func waitUntil(t *testing.T, label string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		if condition() {
			return
		}
		<-tick.C
	}
	t.Fatalf("timeout waiting until %s", label)
}

// parkingHandler is a handler whose connections are parked until they have bytes.
type parkingHandler struct{ handlerFunc }

func (parkingHandler) IdleTimeout() time.Duration { return 0 }

func TestCloseIdle(t *testing.T) {
	requests, reasons := make(chan struct{}), make(chan CloseReason, 4)
	unblock := make(chan struct{})
	l := listen(t, ListenOptions{Counter: closeRecorder{reasons}}, parkingHandler{func(_ context.Context, c *Conn) error {
		var b [1]byte
		if _, err := c.Read(b[:]); err != nil {
			return err
		}
		requests <- struct{}{}
		if b[0] == 'b' {
			<-unblock
		}
		return ErrPark
	}})
	var clients []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	send := func(i int, text string) {
		if _, err := clients[i].Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		<-requests
	}
	awaitParked := func(want int) {
		t.Helper()
		waitUntil(t, "connections are parked", func() bool {
			n := 0
			l.forEachConn(func(c *Conn) {
				if c.state.load()&stateParked != 0 {
					n++
				}
			})
			return n == want
		})
	}
	now := time.Unix(0, 0)
	closeIdle := func(elapsed time.Duration, want int) {
		t.Helper()
		now = now.Add(elapsed)
		if n := l.CloseIdle(now, time.Second); n != want {
			t.Errorf("CloseIdle = %d, want %d", n, want)
		}
	}
	awaitParked(2)
	closeIdle(0, 0)
	closeIdle(900*time.Millisecond, 0)
	send(0, "x") // restarts the idle time of client 0
	awaitParked(2)
	closeIdle(100*time.Millisecond, 1)
	if reason := <-reasons; reason != ClosedOverload {
		t.Errorf("close reason %v, want %v", reason, ClosedOverload)
	}
	send(0, "b")
	closeIdle(10*time.Second, 0) // a busy connection stays
	unblock <- struct{}{}
	awaitParked(1)
	closeIdle(0, 0)
	l.ResetIdleTracking()
	closeIdle(10*time.Second, 0)
	closeIdle(time.Second, 1)
	<-reasons
}

// closeRecorder is a ListenerCounter that sends close reasons to a channel.
type closeRecorder struct{ reasons chan CloseReason }

func (closeRecorder) Accepted()                   {}
func (closeRecorder) Refused()                    {}
func (closeRecorder) AcceptError()                {}
func (c closeRecorder) Closed(reason CloseReason) { c.reasons <- reason }

func TestShedEndsAfterExchange(t *testing.T) {
	c := NewConn(nil)
	c.Shed()
	if !c.Draining() {
		t.Error("Draining = false after Shed, want true")
	}
	if c.ListenerDraining() {
		t.Error("ListenerDraining = true after Shed, want false")
	}
	c.CloseReason = ClosedDrained
	if got := c.state.load().closeReason(c.CloseReason); got != ClosedOverload {
		t.Errorf("close reason %v, want %v", got, ClosedOverload)
	}
	c.CloseReason = ClosedByPeer
	if got := c.state.load().closeReason(c.CloseReason); got != ClosedByPeer {
		t.Errorf("close reason %v, want %v, which the handler set", got, ClosedByPeer)
	}
}
