package upstream

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// maxHostnames is the maximum number of names that have connections to one host.
const maxHostnames = 64

// clusterWithSNI returns a cluster whose connections belong to host names.
func clusterWithSNI(hosts ...string) *config.Cluster {
	c := cluster("web", hosts...)
	c.Protocol = config.HTTP1
	c.TLS, c.AutoSNI = &config.TLS{}, config.AutoSNI{SendSNI: true}
	return c
}

// forHost returns an exchange with this host name as its authority.
func forHost(name string) *protocol.Exchange {
	x := newExchange()
	x.Request.Authority = name
	return x
}

// serveFor serves an exchange for a host name to its end and returns its connection.
func serveFor(t *testing.T, c *Cluster, name string) *fakeConn {
	t.Helper()
	x := forHost(name)
	if err := c.Serve(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	conn := x.Response.Body.(*fakeBody).conn
	finish(x)
	return conn
}

func TestNamesHaveSeparateConnections(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, clusterWithSNI("h"))
	defer s.Close()
	a, b := serveFor(t, c, "a"), serveFor(t, c, "b")
	if a == b || serveFor(t, c, "a") != a || serveFor(t, c, "b:81") != b {
		t.Error("requests do not use the connections of their names")
	}
	wantCounts(t, s, 0, 2, 2)
	withoutSNI := clusterWithSNI("h")
	withoutSNI.AutoSNI = config.AutoSNI{}
	apply(t, s, withoutSNI)
	if n := f.numOpen(); n != 0 {
		t.Errorf("%d connections are open for names without AutoSNI, want 0", n)
	}
	if serveFor(t, c, "a") != serveFor(t, c, "b") {
		t.Error("without AutoSNI, names have their own connections")
	}
}

func TestLeastRecentlyUsedNameIsEvicted(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, clusterWithSNI("h"))
	defer s.Close()
	first := serveFor(t, c, "0")
	second := serveFor(t, c, "1")
	busy := forHost("2")
	if err := c.Serve(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	for i := 3; i < maxHostnames; i++ {
		serveFor(t, c, fmt.Sprint(i))
	}
	serveFor(t, c, "0")
	serveFor(t, c, "x")
	serveFor(t, c, "y")
	if first.closed.Load() || !second.closed.Load() {
		t.Errorf("recently used name closed = %t, least recently used name closed = %t, want false and true", first.closed.Load(), second.closed.Load())
	}
	conn := busy.Response.Body.(*fakeBody).conn
	if conn.closed.Load() {
		t.Error("a connection in use of an evicted name was closed")
	}
	finish(busy)
	if !conn.closed.Load() {
		t.Error("a connection of an evicted name is open after its last exchange")
	}
	if n := f.numOpen(); n != maxHostnames {
		t.Errorf("%d connections are open, want one for each of %d names", n, maxHostnames)
	}
}

// TestNamesDoNotStarveOneAnother verifies that with max_connections 1 the pools of different names
// pass the slot to one another.
func TestNamesDoNotStarveOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clusterWithSNI("h")
		cfg.CircuitBreakers.MaxConnections = 1
		s, c := newTestCluster(t, newFakeConnector(), cfg)
		defer s.Close()
		idle := serveFor(t, c, "a")
		if conn := serveFor(t, c, "b"); conn == idle || !idle.closed.Load() {
			t.Error("the idle connection was not evicted for another name")
		}
		active := forHost("b")
		if err := c.Serve(t.Context(), active); err != nil {
			t.Fatal(err)
		}
		var served []string
		for _, name := range []string{"a", "b"} {
			go func() {
				x := forHost(name)
				if err := c.Serve(t.Context(), x); err != nil {
					t.Error(err)
				}
				served = append(served, name)
				finish(x)
			}()
			synctest.Wait()
		}
		finish(active)
		synctest.Wait()
		if want := []string{"a", "b"}; !slices.Equal(served, want) {
			t.Errorf("served in the order %q, want %q", served, want)
		}
	})
}
