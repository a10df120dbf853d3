package upstream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// originalDstCluster returns a cluster of type ORIGINAL_DST.
func originalDstCluster(change ...func(*config.Cluster)) *config.Cluster {
	c := cluster("anywhere")
	c.Type, c.LBPolicy = config.ClusterOriginalDst, config.LBOriginalDst
	c.OriginalDst.CleanupInterval = config.DefaultCleanupInterval
	for _, f := range change {
		f(c)
	}
	return c
}

// exchangeTo returns a GET on a connection whose original destination is addr, or that was not
// redirected if addr is "".
func exchangeTo(addr string) *protocol.Exchange {
	x := newExchange()
	x.Meta.Conn = &protocol.ConnMeta{Remote: netip.MustParseAddrPort("192.0.2.1:40000"), Local: netip.MustParseAddrPort("127.0.0.1:15001")}
	if addr != "" {
		x.Meta.Conn.Local, x.Meta.Conn.Redirected = netip.MustParseAddrPort(addr), true
	}
	return x
}

// servedDestination serves x to its end and returns the name of the host that responded.
func servedDestination(t *testing.T, c *Cluster, x *protocol.Exchange) string {
	t.Helper()
	if err := c.Serve(context.Background(), x); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	finish(x)
	return x.Record.Host().Name()
}

func TestOriginalDstOfRequests(t *testing.T) {
	byHeader := func(c *config.Cluster) { c.OriginalDst.Header = "x-dst" }
	byPort := func(c *config.Cluster) { c.OriginalDst.Port = 8080 }
	for _, tt := range []struct {
		name       string
		change     func(*config.Cluster)
		connection string
		header     string
		want       string
		reason     protocol.Reason
	}{
		{"destination of the connection", nil, "198.51.100.7:80", "", "198.51.100.7:80", 0},
		{"IPv6 destination", nil, "[2001:db8::7]:80", "", "[2001:db8::7]:80", 0},
		{"not redirected", nil, "", "", "", protocol.NoDestination},
		{"header ignored by default", nil, "198.51.100.7:80", "198.51.100.8:80", "198.51.100.7:80", 0},
		{"header", byHeader, "198.51.100.7:80", "198.51.100.8:81", "198.51.100.8:81", 0},
		{"header, not redirected", byHeader, "", "[2001:db8::8]:81", "[2001:db8::8]:81", 0},
		{"IPv4-mapped IPv6 address", byHeader, "", "[::ffff:198.51.100.8]:81", "198.51.100.8:81", 0},
		{"header absent", byHeader, "198.51.100.7:80", "", "198.51.100.7:80", 0},
		{"neither header nor redirected", byHeader, "", "", "", protocol.NoDestination},
		{"host name", byHeader, "198.51.100.7:80", "shop:80", "", protocol.MalformedDestination},
		{"no port", byHeader, "198.51.100.7:80", "198.51.100.8", "", protocol.MalformedDestination},
		{"port 0", byHeader, "198.51.100.7:80", "198.51.100.8:0", "", protocol.MalformedDestination},
		{"unspecified address", byHeader, "198.51.100.7:80", "0.0.0.0:80", "", protocol.MalformedDestination},
		{"multicast address", byHeader, "198.51.100.7:80", "224.0.0.1:80", "", protocol.MalformedDestination},
		{"address with a zone", byHeader, "198.51.100.7:80", "[fe80::1%lo]:80", "", protocol.MalformedDestination},
		{"two addresses", byHeader, "198.51.100.7:80", "198.51.100.8:80, 198.51.100.9:80", "", protocol.MalformedDestination},
		{"empty header", byHeader, "198.51.100.7:80", " ", "", protocol.MalformedDestination},
		{"port override", byPort, "198.51.100.7:80", "", "198.51.100.7:8080", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := originalDstCluster()
			if tt.change != nil {
				tt.change(cfg)
			}
			s, c := newTestCluster(t, newFakeConnector(), cfg)
			x := exchangeTo(tt.connection)
			if tt.header != "" {
				x.Request.Header.Add("x-dst", tt.header)
			}
			err := c.Serve(context.Background(), x)
			if protocol.ReasonOf(err) != tt.reason {
				t.Fatalf("Serve = %v, want %v", err, tt.reason)
			}
			if err == nil {
				finish(x)
				if got := x.Record.Host().Name(); got != tt.want {
					t.Errorf("sent to %s, want %s", got, tt.want)
				}
			}
			if d := s.Describe()[0]; d.InFlight != 0 {
				t.Errorf("%d exchanges in flight after the test, want 0", d.InFlight)
			}
		})
	}
}

func TestUnreachableDestinationIsTriedOnce(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, originalDstCluster())
	f.set(f.refuses, "198.51.100.7:80", true)
	x := exchangeTo("198.51.100.7:80")
	if err := c.Serve(context.Background(), x); protocol.ReasonOf(err) != protocol.ConnectFailure {
		t.Errorf("Serve = %v, want a connect failure", err)
	}
	wantList(t, "dialed", f.dialed(), "198.51.100.7:80")
	wantCounts(t, s, 0, 0, 0)

	// The next exchange tries the destination again despite its health, because there is no other
	// host.
	f.set(f.refuses, "198.51.100.7:80", false)
	if got := servedDestination(t, c, exchangeTo("198.51.100.7:80")); got != "198.51.100.7:80" {
		t.Errorf("sent to %s, want 198.51.100.7:80", got)
	}
}

// TestEachExchangeHasOneDestination verifies that a retry cannot use another destination.
func TestEachExchangeHasOneDestination(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), originalDstCluster())
	servedDestination(t, c, exchangeTo("198.51.100.7:80"))
	servedDestination(t, c, exchangeTo("198.51.100.8:80"))
	if eligible, hosts := c.EligibleHosts(), c.HostCount(); eligible != 1 || hosts != 2 {
		t.Errorf("EligibleHosts = %d, HostCount = %d, want 1 and 2", eligible, hosts)
	}
	apply(t, s, cluster("web", "a", "b"))
	if eligible := s.Get("web").EligibleHosts(); eligible != 2 {
		t.Errorf("EligibleHosts = %d, want 2", eligible)
	}
}

// TestUnreachableDestinationsAreNotLogged verifies that failures of original destinations
// are not logged: clients choose them, and a scan must not fill the log.
func TestUnreachableDestinationsAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	f := newFakeConnector()
	s := newTestSet(t, f, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	apply(t, s, originalDstCluster(), cluster("web", "a"))
	f.set(f.refuses, "198.51.100.7:80", true)
	f.set(f.refuses, "a", true)
	if err := s.Get("anywhere").Serve(context.Background(), exchangeTo("198.51.100.7:80")); protocol.ReasonOf(err) != protocol.ConnectFailure {
		t.Errorf("Serve = %v, want a connect failure", err)
	}
	f.set(f.refuses, "198.51.100.7:80", false)
	servedDestination(t, s.Get("anywhere"), exchangeTo("198.51.100.7:80"))
	wantFault(t, s.Get("web"), protocol.ConnectFailure)
	if got := log.String(); strings.Contains(got, "198.51") || !strings.Contains(got, "host=a ") {
		t.Errorf("log:\n%swant only the configured host in it", got)
	}
}

func TestUsedDestinationsKeepConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, originalDstCluster())
		defer s.Close()
		for range 4 { // each within the cleanup interval after the previous one
			servedDestination(t, c, exchangeTo("198.51.100.7:80"))
			advanceClock(4 * time.Second)
		}
		wantList(t, "dialed", f.dialed(), "198.51.100.7:80")
		if got := len(s.Describe()[0].Hosts); got != 1 {
			t.Errorf("%d hosts, want 1", got)
		}
		advanceClock(2 * config.DefaultCleanupInterval)
		if got := len(s.Describe()[0].Hosts); got != 0 || f.numOpen() != 0 {
			t.Errorf("%d unused hosts and %d unused connections, want none", got, f.numOpen())
		}
		servedDestination(t, c, exchangeTo("198.51.100.7:80"))
		wantList(t, "dialed", f.dialed(), "198.51.100.7:80")
	})
}

func TestIdleConnectionToDestinationIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, originalDstCluster(func(c *config.Cluster) { c.CircuitBreakers.MaxConnections = 1 }))
		defer s.Close()
		servedDestination(t, c, exchangeTo("198.51.100.7:80"))
		x := exchangeTo("198.51.100.8:80")
		x.Deadline = time.Now().Add(time.Second)
		if got := servedDestination(t, c, x); got != "198.51.100.8:80" {
			t.Errorf("sent to %s, want 198.51.100.8:80", got)
		}
		if got := f.numOpen(); got != 1 {
			t.Errorf("%d connections are open, want max_connections (1)", got)
		}
	})
}

func TestCloseIdleConnectionsToDestinations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, originalDstCluster(func(c *config.Cluster) { c.OriginalDst.CleanupInterval = time.Hour }))
		defer s.Close()
		servedDestination(t, c, exchangeTo("198.51.100.7:80"))
		servedDestination(t, c, exchangeTo("198.51.100.8:80"))
		advanceClock(2 * time.Second)
		if got := s.CloseIdle(time.Second); got != 2 || f.numOpen() != 0 {
			t.Errorf("CloseIdle = %d, %d connections are open, want 2 and 0", got, f.numOpen())
		}
	})
}

func TestBusyDestinationStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, originalDstCluster())
		defer s.Close()
		x := exchangeTo("198.51.100.7:80")
		if err := c.Serve(context.Background(), x); err != nil {
			t.Fatal(err)
		}
		advanceClock(time.Minute)
		if got := len(s.Describe()[0].Hosts); got != 1 || f.numOpen() != 1 {
			t.Fatalf("%d hosts and %d connections while an exchange is in flight, want 1 of each", got, f.numOpen())
		}
		finish(x)
		advanceClock(2 * config.DefaultCleanupInterval)
		if got := len(s.Describe()[0].Hosts); got != 0 || f.numOpen() != 0 {
			t.Errorf("%d hosts and %d connections after the exchange, want none", got, f.numOpen())
		}
	})
}

func TestDestinationsAreBounded(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), originalDstCluster())
	address := func(i int) string { return fmt.Sprintf("198.18.%d.%d:80", i/256, i%256) }
	exchanges := make([]*protocol.Exchange, maxDestinations)
	for i := range exchanges {
		exchanges[i] = exchangeTo(address(i))
		if err := c.Serve(context.Background(), exchanges[i]); err != nil {
			t.Fatal(err)
		}
	}
	further := exchangeTo(address(maxDestinations))
	if err := c.Serve(context.Background(), further); protocol.ReasonOf(err) != protocol.Overflow {
		t.Fatalf("Serve = %v, want an overflow while all destinations are busy", err)
	}
	finish(exchanges[7])
	if got := servedDestination(t, c, exchangeTo(address(maxDestinations))); got != address(maxDestinations) {
		t.Errorf("sent to %s after another destination became idle, want the new destination", got)
	}
	if got := len(s.Describe()[0].Hosts); got != maxDestinations {
		t.Errorf("%d hosts, want %d", got, maxDestinations)
	}
	for i, x := range exchanges {
		if i != 7 {
			finish(x)
		}
	}
}

func TestDestinationsSurviveConfigChanges(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, originalDstCluster())
	servedDestination(t, c, exchangeTo("198.51.100.7:80"))
	apply(t, s, originalDstCluster(func(c *config.Cluster) { c.ConnectTimeout = time.Second }))
	servedDestination(t, c, exchangeTo("198.51.100.7:80"))
	wantList(t, "dialed", f.dialed(), "198.51.100.7:80")

	apply(t, s, originalDstCluster(func(c *config.Cluster) { c.ProxyProtocol = 1; c.Pool.Mode = config.Bind }))
	if got := f.numOpen(); got != 0 {
		t.Errorf("%d connections with the old PROXY configuration are open, want 0", got)
	}

	apply(t, s, cluster("anywhere", "a"))
	if got := serveOne(t, c); got != "a" {
		t.Errorf("sent to %s after the cluster type changed, want a", got)
	}
	if got := len(s.Describe()[0].Hosts); got != 1 {
		t.Errorf("%d hosts, want 1", got)
	}
}

func TestConcurrentDestinations(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, originalDstCluster(func(c *config.Cluster) { c.OriginalDst.CleanupInterval = time.Millisecond }))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 300 {
				dst := fmt.Sprintf("198.51.100.%d:%d", i%5, 80+(worker+i)%3)
				x := exchangeTo(dst)
				if err := c.Serve(context.Background(), x); err != nil {
					t.Errorf("Serve: %v", err)
					return
				}
				if got := x.Record.Host().Name(); got != dst {
					t.Errorf("sent to %s, want %s", got, dst)
				}
				finish(x)
			}
		})
	}
	wg.Wait()
	s.Close()
	if got := f.numOpen(); got != 0 {
		t.Errorf("%d connections are open after Close, want 0", got)
	}
}

func TestOriginalDstOfForwardedConnections(t *testing.T) {
	dst := netip.MustParseAddrPort("198.51.100.7:3306")
	_, c := newTestCluster(t, newFakeConnector(), originalDstCluster(func(c *config.Cluster) { c.OriginalDst.Header = "x-dst" }))
	connects := 0
	forward := func(addrs ConnAddrs, fail error) error {
		connects = 0
		return c.ForwardConn(context.Background(), addrs, 3, func(_ context.Context, h *Host, _ time.Time) (func() error, error) {
			connects++
			if h.Name() != dst.String() {
				t.Errorf("forwarded to %s, want %s", h.Name(), dst)
			}
			return func() error { return nil }, fail
		})
	}
	if err := forward(ConnAddrs{To: dst, Redirected: true}, nil); err != nil || connects != 1 {
		t.Errorf("ForwardConn = %v after %d connects, want one connect", err, connects)
	}
	if err := forward(ConnAddrs{To: dst, Redirected: true}, protocol.Faultf(protocol.ConnectFailure, "refused")); protocol.ReasonOf(err) != protocol.ConnectFailure || connects != 1 {
		t.Errorf("ForwardConn = %v after %d connects, want the failure of one connect", err, connects)
	}
	if err := forward(ConnAddrs{To: dst}, nil); protocol.ReasonOf(err) != protocol.NoDestination || connects != 0 {
		t.Errorf("ForwardConn = %v after %d connects, want no destination", err, connects)
	}
}

func TestLoopDetection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, c := newTestCluster(t, newFakeConnector(), originalDstCluster())
	servedDestination(t, c, exchangeTo(ln.Addr().String()))
	h := c.state.Load().currentHosts()[0]
	conn, err := network.Dialer{}.Dial(t.Context(), "tcp", ln.Addr().String(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	h.TrackConn(conn)
	addrs := ConnAddrs{From: addrPortOf(conn.LocalAddr()), To: addrPortOf(conn.RemoteAddr()), Redirected: true}
	x := exchangeTo(addrs.To.String())
	x.Meta.Conn.Remote = addrs.From
	if err := c.Serve(context.Background(), x); protocol.ReasonOf(err) != protocol.ReasonLoop {
		t.Errorf("Serve = %v, want a loop", err)
	}
	if err := h.CheckLoop(addrs); protocol.ReasonOf(err) != protocol.ReasonLoop {
		t.Errorf("CheckLoop = %v, want a loop", err)
	}
	err = c.ForwardConn(context.Background(), addrs, 1, func(context.Context, *Host, time.Time) (func() error, error) {
		t.Error("connect was called")
		return func() error { return nil }, nil
	})
	if protocol.ReasonOf(err) != protocol.ReasonLoop {
		t.Errorf("ForwardConn = %v, want a loop", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.CheckLoop(addrs); err != nil {
		t.Errorf("CheckLoop = %v after the connection was closed, want nil: another client may use its addresses", err)
	}
}

func TestOriginalDstHostsHaveNoRecorders(t *testing.T) {
	m := &fakeMeter{observed: map[string]int{}}
	s := newTestSet(t, newFakeConnector(), func(o *Options) { o.Meter = m })
	apply(t, s, originalDstCluster())
	servedDestination(t, s.Get("anywhere"), exchangeTo("198.51.100.7:80"))
	wantList(t, "opened", m.opened, "anywhere") // clients choose the addresses
}

func TestOriginalDstHostDoesNotAllocate(t *testing.T) {
	_, c := newTestCluster(t, newFakeConnector(), originalDstCluster())
	x := exchangeTo("198.51.100.7:80")
	s := c.state.Load()
	choose := func() {
		if _, err := s.originalDstHost(connAddrsOf(x), &x.Request.Header); err != nil {
			t.Fatal(err)
		}
	}
	choose()
	if n := testing.AllocsPerRun(100, choose); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkOriginalDstHost(b *testing.B) {
	_, c := newTestCluster(b, newFakeConnector(), originalDstCluster())
	x := exchangeTo("198.51.100.7:80")
	s := c.state.Load()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.originalDstHost(connAddrsOf(x), &x.Request.Header); err != nil {
			b.Fatal(err)
		}
	}
}
