package zookeeper_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/zookeeper"
)

const (
	// brief is the timeout of sessions that expire in a test.
	brief = 2 * time.Second
	// steady is the timeout of sessions that survive a loss, even on a machine that stalls for
	// seconds.
	steady = 15 * time.Second
)

func fastTicks() server.Options { return server.Options{Tick: 200 * time.Millisecond} }

// sessionPair contains two sessions with providers of one service. a connects directly to the server; a
// test may cut off b. Both subscribe to the service.
type sessionPair struct {
	a, b             *testSession
	seenByA, seenByB *registrytest.Subscriber
}

const (
	addressA = "10.0.0.1:1"
	addressB = "10.0.0.2:1"
)

func newSessionPair(t *testing.T, session time.Duration, toA, toB string) *sessionPair {
	t.Helper()
	c := &sessionPair{
		a: open(t, registry.Options{Address: toA, SessionTimeout: session}),
		b: open(t, registry.Options{Address: toB, SessionTimeout: session}),
	}
	s := registry.Service{Interface: user}
	c.seenByA, c.seenByB = c.a.NewSubscriber(s), c.b.NewSubscriber(s)
	c.a.MustRegister(registrytest.Provider(t, user, addressA))
	c.b.MustRegister(registrytest.Provider(t, user, addressB))
	c.seenByA.Await("both", registrytest.At(addressA, addressB))
	c.seenByB.Await("both", registrytest.At(addressA, addressB))
	return c
}

// isDisconnected is the condition that there is no connection.
func isDisconnected(s registry.State) bool { return !s.Connected }

func TestExpiredSessionIsReplaced(t *testing.T) {
	t.Parallel()
	w := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	c := newSessionPair(t, steady, w.server, w.address())
	before := c.b.State()
	w.expire()
	after := c.b.Await("in another session", func(s registry.State) bool { return s.Connected && s.Session != before.Session })
	if after.Sessions != before.Sessions+1 {
		t.Errorf("it counts %d sessions, want %d", after.Sessions, before.Sessions+1)
	}
	dialZK(t, w.server).children("/dubbo/"+user+"/providers", 2)
	c.seenByA.AwaitLatest("both", registrytest.At(addressA, addressB))
	c.seenByB.Never("without the provider of the other", func(v registry.Snapshot) bool {
		return !strings.Contains(v.Providers[0].Address(), addressA)
	})
	c.a.MustUnregister(registrytest.Provider(t, user, addressA))
	c.seenByB.Await("its own, with watches of the new session", registrytest.At(addressB))
}

func TestLostConnectionKeepsSession(t *testing.T) {
	t.Parallel()
	w := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	c := newSessionPair(t, steady, w.server, w.address())
	before := c.b.State().Session
	for range 5 {
		w.closeConn()
		c.b.Await("away", isDisconnected)
		c.b.Await("connected", registrytest.Connected)
	}
	w.reject(true)
	c.b.Await("away", isDisconnected)
	const added = "10.0.0.3:1"
	c.a.MustRegister(registrytest.Provider(t, user, added))
	c.seenByA.Await("three", registrytest.At(addressA, addressB, added))
	c.seenByB.Never("while it was cut off", registrytest.Any)
	w.reject(false)
	c.seenByB.Await("what came meanwhile", registrytest.At(addressA, addressB, added))
	if got := c.b.State().Session; got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	c.seenByA.Never("without the one that was cut off", func(v registry.Snapshot) bool { return len(v.Providers) < 2 })
}

func TestRegistrationsWhileServerUnavailable(t *testing.T) {
	t.Parallel()
	w := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	c := newSessionPair(t, steady, w.server, w.address())
	w.reject(true)
	c.b.Await("away", isDisconnected)
	done := make(chan error, 2)
	const added = "10.0.0.3:1"
	go func() { done <- c.b.Register(t.Context(), registrytest.Provider(t, user, added)) }()
	go func() { done <- c.b.Unregister(t.Context(), registrytest.Provider(t, user, addressB)) }()
	late := c.b.NewSubscriber(registry.Service{Interface: "com.example.Other"})
	late.Never("while it was cut off", registrytest.Any)
	w.reject(false)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	c.seenByA.Await("the one, not the other", registrytest.At(addressA, added))
	late.Await("nothing", registrytest.Empty)
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		forget bool
	}{
		{"with its data", false},
		{"without its data", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := server.Start(t, fastTicks())
			c := newSessionPair(t, brief, s.Address(), s.Address())
			s.Kill()
			c.a.Await("away", isDisconnected)
			c.b.Await("away", isDisconnected)
			if tt.forget {
				s.RemoveData()
			}
			c.seenByB.Never("while there was no server", registrytest.Any)
			s.Restart()
			c.a.Await("connected", registrytest.Connected)
			c.b.Await("connected", registrytest.Connected)
			dialZK(t, s.Address()).children("/dubbo/"+user+"/providers", 2)
			const added = "10.0.0.3:1"
			c.a.MustRegister(registrytest.Provider(t, user, added))
			c.seenByB.Await("all, and what came since", registrytest.At(addressA, addressB, added))
		})
	}
}

func TestServerFrozenBeyondSessionTimeout(t *testing.T) {
	t.Parallel()
	s := server.Start(t, fastTicks())
	c := newSessionPair(t, brief, s.Address(), s.Address())
	before := c.a.State().Sessions
	s.Pause()
	t.Cleanup(s.Resume)
	c.a.Await("away", isDisconnected)
	c.b.Await("away", isDisconnected)
	<-time.After(brief)
	c.seenByB.Never("while the server stood still", registrytest.Any)
	s.Resume()
	after := c.a.Await("connected", registrytest.Connected)
	if after.Sessions == before {
		t.Errorf("it is the session of before, which has ended: %+v", after)
	}
	c.b.Await("connected", registrytest.Connected)
	dialZK(t, s.Address()).children("/dubbo/"+user+"/providers", 2)
	const added = "10.0.0.3:1"
	c.a.MustRegister(registrytest.Provider(t, user, added))
	c.seenByB.Await("all, and what came since", registrytest.At(addressA, addressB, added))
}

// TestNodesOfAbandonedSessionAreRemoved verifies that znodes of an abandoned session are
// removed, because the server may keep that session much longer.
func TestNodesOfAbandonedSessionAreRemoved(t *testing.T) {
	t.Parallel()
	w := startProxy(t, server.Start(t, server.Options{Tick: time.Minute}).Address()) // it keeps sessions for two minutes
	c := newSessionPair(t, brief, w.server, w.address())
	before := c.b.State().Sessions
	w.reject(true)
	c.b.Await("away", isDisconnected)
	done := make(chan error, 1)
	go func() { done <- c.b.Unregister(t.Context(), registrytest.Provider(t, user, addressB)) }()
	<-time.After(2 * brief)
	c.seenByA.Never("while the other was cut off", registrytest.Any)
	w.reject(false)
	if after := c.b.Await("connected", registrytest.Connected); after.Sessions == before {
		t.Errorf("it is the session of before, which was given up: %+v", after)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	c.seenByA.Await("one", registrytest.At(addressA))
}

func TestOneOfThreeServersIsKilled(t *testing.T) {
	t.Parallel()
	e := server.StartEnsemble(t, server.Options{Tick: time.Second})
	c := newSessionPair(t, steady, e.Address(), e.Address())
	before := c.a.State().Session
	e.Leader().Kill()
	const added = "10.0.0.3:1"
	c.a.MustRegister(registrytest.Provider(t, user, added))
	c.seenByB.Await("all", registrytest.At(addressA, addressB, added))
	c.seenByB.Never("of less", func(v registry.Snapshot) bool { return len(v.Providers) < 2 })
	if got := c.a.State().Session; got != before {
		t.Logf("the session is %s, was %s: the election took longer than it lasts", got, before)
	}
}

func TestFrozenServerFailover(t *testing.T) {
	t.Parallel()
	e := server.StartEnsemble(t, server.Options{Tick: time.Second})
	for _, s := range e.Servers {
		if s.Mode() == "follower" {
			s.Pause()
			t.Cleanup(s.Resume)
			break
		}
	}
	// The library shuffles the servers: this may be the first one.
	begin := time.Now()
	c := newSessionPair(t, brief, e.Address(), e.Address())
	t.Logf("two sessions after %v", time.Since(begin))
	c.a.MustUnregister(registrytest.Provider(t, user, addressA))
	c.seenByB.Await("the other", registrytest.At(addressB))
}

// TestOversizedRequest covers a request for which the server closes the
// connection every time.
func TestOversizedRequest(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Options{Tick: time.Second, MaxBuffer: 4 << 10})
	c := newSessionPair(t, brief, s.Address(), s.Address())
	large := registrytest.Provider(t, user, "10.0.0.3:1", "padding="+strings.Repeat("x", 8<<10))
	if err := c.a.Register(t.Context(), large); err == nil || !strings.Contains(err.Error(), "lost 3 times during the request") {
		t.Errorf("got %v, want it to say that connections were lost during the request", err)
	}
	if err := c.a.Unregister(t.Context(), large); err == nil {
		t.Error("Unregister returns no error although the server could not respond")
	}
	const added = "10.0.0.4:1"
	c.a.MustRegister(registrytest.Provider(t, user, added))
	c.seenByB.Await("what is small", registrytest.At(addressA, addressB, added))
}

func TestDataLargerThanUsual(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Options{MaxBuffer: 8 << 20})
	p := open(t, registry.Options{Address: s.Address()})
	const size = 1 << 20 // with its head it exceeds the limit of Java's clients
	judge := dialZK(t, s.Address())
	judge.put("/dubbo/metadata/shop/abc", strings.Repeat("x", size))
	got, err := p.Metadata(t.Context(), "shop", "abc")
	if err != nil || len(got) != size {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, size)
	}
}

func TestServerIsNotZooKeeper(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) // the client may have disconnected
			_ = conn.Close()
		}
	}()
	p := open(t, registry.Options{Address: l.Addr().String()})
	p.Await("told", func(s registry.State) bool { return strings.Contains(s.LastError, "not a ZooKeeper server") })
	_ = l.Close() // ends accepting
	<-ended
}
