package zookeeper_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/zookeeper"
)

const (
	// shortSession is the timeout of sessions that expire in a test.
	shortSession = 2 * time.Second
	// longSession is the timeout of sessions that survive a loss, even on a machine that stalls for
	// seconds.
	longSession = 15 * time.Second
)

func fastTicks() server.Options { return server.Options{Tick: 200 * time.Millisecond} }

// sessionPair contains two sessions with providers of one service. a connects directly to the
// server; a test may disconnect b. Both subscribe to the service.
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
	pair := &sessionPair{
		a: open(t, registry.Options{Address: toA, SessionTimeout: session}),
		b: open(t, registry.Options{Address: toB, SessionTimeout: session}),
	}
	s := registry.Service{Interface: user}
	pair.seenByA, pair.seenByB = pair.a.NewSubscriber(s), pair.b.NewSubscriber(s)
	pair.a.MustRegister(registrytest.Provider(t, user, addressA))
	pair.b.MustRegister(registrytest.Provider(t, user, addressB))
	pair.seenByA.Await("both providers", registrytest.At(addressA, addressB))
	pair.seenByB.Await("both providers", registrytest.At(addressA, addressB))
	return pair
}

// isDisconnected is the condition that there is no connection.
func isDisconnected(s registry.State) bool { return !s.Connected }

func TestExpiredSessionIsReplaced(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	pair := newSessionPair(t, longSession, proxy.server, proxy.address())
	before := pair.b.State()
	proxy.expire()
	after := pair.b.Await("another session", func(s registry.State) bool { return s.Connected && s.SessionID != before.SessionID })
	if after.SessionCount != before.SessionCount+1 {
		t.Errorf("%d sessions, want %d", after.SessionCount, before.SessionCount+1)
	}
	dialZK(t, proxy.server).children("/dubbo/"+user+"/providers", 2)
	pair.seenByA.AwaitLatest("both providers", registrytest.At(addressA, addressB))
	pair.seenByB.Never("without the provider of the other session", func(v registry.Snapshot) bool {
		return !strings.Contains(v.Providers[0].Address(), addressA)
	})
	pair.a.MustUnregister(registrytest.Provider(t, user, addressA))
	pair.seenByB.Await("only its provider, by a watch of the new session", registrytest.At(addressB))
}

// TestExpireAfterRejectedSession verifies that expire ends the last session, although the server
// has rejected a client that wanted to resume an older one.
func TestExpireAfterRejectedSession(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	session := open(t, registry.Options{Address: proxy.address(), SessionTimeout: longSession})
	before := session.Await("connected", registrytest.Connected)
	unknown := slices.Concat([]byte{0, 0, 0, 0, 0, 0, 0x27, 0x10}, []byte("unknown!"), []byte{0, 0, 0, 16}, make([]byte, 16))
	responses, err := call(proxy.address(), resumeRequest(unknown))
	if err != nil || sessionOf(responses[0]) != 0 {
		t.Fatalf("the response to an unknown session is %x, %v; want session 0", responses, err)
	}
	proxy.expire()
	session.Await("another session", func(s registry.State) bool { return s.Connected && s.SessionID != before.SessionID })
}

func TestLostConnectionKeepsSession(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	pair := newSessionPair(t, longSession, proxy.server, proxy.address())
	before := pair.b.State().SessionID
	for range 5 {
		proxy.closeConns()
		pair.b.Await("disconnected", isDisconnected)
		pair.b.Await("connected", registrytest.Connected)
	}
	proxy.reject(true)
	pair.b.Await("disconnected", isDisconnected)
	const added = "10.0.0.3:1"
	pair.a.MustRegister(registrytest.Provider(t, user, added))
	pair.seenByA.Await("three providers", registrytest.At(addressA, addressB, added))
	pair.seenByB.Never("while it was disconnected", registrytest.Any)
	proxy.reject(false)
	pair.seenByB.Await("the providers registered meanwhile", registrytest.At(addressA, addressB, added))
	// The comparison after the reconnect finds at most one of these changes, the watch both.
	pair.a.MustUnregister(registrytest.Provider(t, user, added))
	pair.seenByB.Await("the end of a provider", registrytest.At(addressA, addressB))
	pair.a.MustRegister(registrytest.Provider(t, user, added))
	pair.seenByB.Await("the provider again", registrytest.At(addressA, addressB, added))
	if got := pair.b.State().SessionID; got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	pair.seenByA.Never("without the provider of the disconnected session", func(v registry.Snapshot) bool { return len(v.Providers) < 2 })
}

func TestRegistrationsWhileServerUnavailable(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	pair := newSessionPair(t, longSession, proxy.server, proxy.address())
	proxy.reject(true)
	pair.b.Await("disconnected", isDisconnected)
	done := make(chan error, 2)
	const added = "10.0.0.3:1"
	go func() { done <- pair.b.Register(t.Context(), registrytest.Provider(t, user, added)) }()
	go func() { done <- pair.b.Unregister(t.Context(), registrytest.Provider(t, user, addressB)) }()
	newSub := pair.b.NewSubscriber(registry.Service{Interface: "com.example.Other"})
	newSub.Never("while it was disconnected", registrytest.Any)
	proxy.reject(false)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	pair.seenByA.Await("the new provider instead of the unregistered one", registrytest.At(addressA, added))
	newSub.Await("no providers", registrytest.Empty)
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		removeData bool
	}{
		{"with its data", false},
		{"without its data", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := server.Start(t, fastTicks())
			pair := newSessionPair(t, shortSession, s.Address(), s.Address())
			s.Kill()
			pair.a.Await("disconnected", isDisconnected)
			pair.b.Await("disconnected", isDisconnected)
			if tt.removeData {
				s.RemoveData()
			}
			pair.seenByB.Never("while the server was down", registrytest.Any)
			s.Restart()
			pair.a.Await("connected", registrytest.Connected)
			pair.b.Await("connected", registrytest.Connected)
			dialZK(t, s.Address()).children("/dubbo/"+user+"/providers", 2)
			const added = "10.0.0.3:1"
			pair.a.MustRegister(registrytest.Provider(t, user, added))
			pair.seenByB.Await("all providers, including the new one", registrytest.At(addressA, addressB, added))
		})
	}
}

//arch:clock a real server ends sessions after real time
func TestServerFrozenBeyondSessionTimeout(t *testing.T) {
	t.Parallel()
	s := server.Start(t, fastTicks())
	pair := newSessionPair(t, shortSession, s.Address(), s.Address())
	before := pair.a.State().SessionCount
	s.Pause()
	t.Cleanup(s.Resume)
	pair.a.Await("disconnected", isDisconnected)
	pair.b.Await("disconnected", isDisconnected)
	time.Sleep(shortSession)
	pair.seenByB.Never("while the server was paused", registrytest.Any)
	s.Resume()
	after := pair.a.Await("connected", registrytest.Connected)
	if after.SessionCount == before {
		t.Errorf("the session was not replaced although it had expired: %+v", after)
	}
	pair.b.Await("connected", registrytest.Connected)
	dialZK(t, s.Address()).children("/dubbo/"+user+"/providers", 2)
	const added = "10.0.0.3:1"
	pair.a.MustRegister(registrytest.Provider(t, user, added))
	pair.seenByB.Await("all providers, including the new one", registrytest.At(addressA, addressB, added))
}

// TestNodesOfAbandonedSessionAreRemoved verifies that znodes of an abandoned session are
// removed, because the server may keep that session much longer.
//
//arch:clock the client gives up its session after real time, which no event reports
func TestNodesOfAbandonedSessionAreRemoved(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, server.Start(t, server.Options{Tick: time.Minute}).Address()) // the server keeps sessions for two minutes
	pair := newSessionPair(t, shortSession, proxy.server, proxy.address())
	before := pair.b.State().SessionCount
	proxy.reject(true)
	pair.b.Await("disconnected", isDisconnected)
	done := make(chan error, 1)
	go func() { done <- pair.b.Unregister(t.Context(), registrytest.Provider(t, user, addressB)) }()
	time.Sleep(2 * shortSession)
	pair.seenByA.Never("while the other session was disconnected", registrytest.Any)
	proxy.reject(false)
	if after := pair.b.Await("connected", registrytest.Connected); after.SessionCount == before {
		t.Errorf("the session was not replaced although it was abandoned: %+v", after)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	pair.seenByA.Await("one provider", registrytest.At(addressA))
}

func TestLeaderFailover(t *testing.T) {
	t.Parallel()
	e := server.StartEnsemble(t, server.Options{Tick: time.Second})
	pair := newSessionPair(t, longSession, e.Address(), e.Address())
	before := pair.a.State().SessionID
	e.Leader().Kill()
	const added = "10.0.0.3:1"
	pair.a.MustRegister(registrytest.Provider(t, user, added))
	pair.seenByB.Await("all providers", registrytest.At(addressA, addressB, added))
	pair.seenByB.Never("with fewer than two providers", func(v registry.Snapshot) bool { return len(v.Providers) < 2 })
	if got := pair.a.State().SessionID; got != before {
		t.Logf("the session is %s, was %s: the election took longer than the session timeout", got, before)
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
	// The library shuffles the servers: the paused server may be the first.
	start := time.Now()
	pair := newSessionPair(t, shortSession, e.Address(), e.Address())
	t.Logf("two sessions after %v", time.Since(start))
	pair.a.MustUnregister(registrytest.Provider(t, user, addressA))
	pair.seenByB.Await("the other provider", registrytest.At(addressB))
}

// TestOversizedRequest covers a request for which the server closes the connection every time.
func TestOversizedRequest(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Options{Tick: time.Second, MaxBuffer: 4 << 10})
	pair := newSessionPair(t, shortSession, s.Address(), s.Address())
	large := registrytest.Provider(t, user, "10.0.0.3:1", "padding="+strings.Repeat("x", 8<<10))
	if err := pair.a.Register(t.Context(), large); err == nil || !strings.Contains(err.Error(), "lost 3 times during the request") {
		t.Errorf("Register = %v, want an error about lost connections", err)
	}
	if err := pair.a.Unregister(t.Context(), large); err == nil {
		t.Error("Unregister = nil although the server could not respond")
	}
	const added = "10.0.0.4:1"
	pair.a.MustRegister(registrytest.Provider(t, user, added))
	pair.seenByB.Await("the small providers", registrytest.At(addressA, addressB, added))
}

func TestLargeMetadata(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Options{MaxBuffer: 8 << 20})
	session := open(t, registry.Options{Address: s.Address()})
	const size = 1 << 20 // with its header it exceeds the limit of Java's clients
	admin := dialZK(t, s.Address())
	admin.put("/dubbo/metadata/shop/abc", strings.Repeat("x", size))
	got, err := session.Metadata(t.Context(), "shop", "abc")
	if err != nil || len(got) != size {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, size)
	}
}

func TestServerIsNotZooKeeper(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) // the client may have disconnected
			_ = conn.Close()
		}
	}()
	session := open(t, registry.Options{Address: ln.Addr().String()})
	session.Await("an error about the server", func(s registry.State) bool { return strings.Contains(s.LastError, "not a ZooKeeper server") })
	_ = ln.Close() // ends accepting
	<-ended
}
