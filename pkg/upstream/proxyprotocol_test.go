package upstream

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// proxyProtocolConnector is a ProxyProtocolConnector that records the addresses.
type proxyProtocolConnector struct {
	*fakeMuxConnector
	addrs *proxiedAddrs
}

// proxiedAddrs records the addresses of PROXY headers, in order.
type proxiedAddrs struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

func (c proxyProtocolConnector) WithAddrs(source, destination netip.AddrPort) Connector {
	c.addrs.mu.Lock()
	defer c.addrs.mu.Unlock()
	c.addrs.list = append(c.addrs.list, source.String()+" "+destination.String())
	return c.fakeMuxConnector
}

func proxyProtocolCluster(version int, mode config.PoolMode) *config.Cluster {
	c := clusterWithMode(mode, "a")
	c.ProxyProtocol = version
	return c
}

func TestBindPoolSendsProxyHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connector := proxyProtocolConnector{newFakeMuxConnector(), new(proxiedAddrs)}
		s := newTestSet(t, &connector.fakeConnector, func(o *Options) { o.Connectors[config.HTTP1] = connector })
		defer s.Close()
		apply(t, s, proxyProtocolCluster(2, config.Bind))
		c := s.Get("web")
		for _, remote := range []string{"192.0.2.1:1", "192.0.2.2:2"} {
			d := newFakeDownstreamConn()
			d.meta.Remote, d.meta.Local = netip.MustParseAddrPort(remote), netip.MustParseAddrPort("192.0.2.9:80")
			for range 3 {
				finish(d.begin(t, c))
			}
			d.end()
		}
		synctest.Wait()
		if want := []string{"192.0.2.1:1 192.0.2.9:80", "192.0.2.2:2 192.0.2.9:80"}; !slices.Equal(connector.addrs.list, want) {
			t.Errorf("PROXY addresses = %q, want %q", connector.addrs.list, want)
		}
		if v := c.state.Load().hosts[0].ProxyProtocol(); v != 2 {
			t.Errorf("ProxyProtocol = %d, want 2", v)
		}
	})
}

func TestProxyHeaderRequiresBindPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		_, c := f.newTestCluster(t, proxyProtocolCluster(1, config.Multiplex))
		wantFault(t, c, protocol.Internal)
		_, c = newTestCluster(t, newFakeConnector(), proxyProtocolCluster(1, config.PingPong))
		wantFault(t, c, protocol.Internal)
		wantZeroCounts(t, c)
	})
}

// TestProxyHeaderOnSerialProtocol verifies that with HTTP/1.1 each downstream connection has as
// many upstream connections as its concurrent requests need.
func TestProxyHeaderOnSerialProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, proxyProtocolCluster(1, config.Bind))
		defer s.Close()
		d, e := newFakeDownstreamConn(), newFakeDownstreamConn()
		for range 3 {
			finish(d.begin(t, c))
			finish(e.begin(t, c))
		}
		if n := len(f.dialed()); n != 2 {
			t.Errorf("%d connections for 2 downstream connections, want 2", n)
		}
		wantCounts(t, s, 0, 2, 2)
		x, y := d.begin(t, c), d.begin(t, c)
		if n := len(f.dialed()); n != 1 {
			t.Errorf("%d additional connections for two concurrent requests, want 1", n)
		}
		d.end()
		synctest.Wait()
		finish(x)
		finish(y)
		wantCounts(t, s, 0, 1, 1)
		e.end()
		synctest.Wait()
		wantCounts(t, s, 0, 0, 0)
		if n := f.numOpen(); n != 0 {
			t.Errorf("%d connections are open after their downstream connections ended, want 0", n)
		}
	})
}

// TestProxyHeaderChangeReplacesConnections verifies that a change of the PROXY header replaces
// connections, like a change of TLS.
func TestProxyHeaderChangeReplacesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, proxyProtocolCluster(1, config.Bind))
		defer s.Close()
		d := newFakeDownstreamConn()
		defer d.end()
		for i, step := range []struct{ version, connections int }{{1, 1}, {1, 1}, {2, 2}, {0, 3}} {
			apply(t, s, proxyProtocolCluster(step.version, config.Bind))
			finish(d.begin(t, c))
			if got := len(f.list()); got != step.connections {
				t.Errorf("step %d: %d connections were opened, want %d", i, got, step.connections)
			}
		}
	})
}
