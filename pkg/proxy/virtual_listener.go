package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Virtual listeners have no socket. A bound listener with use_original_dst passes them the
// connections to their addresses, unless it keeps redirected connections:
//
//	accept ──▶ original destination ──▶ virtualListeners.find ──▶ virtual listener
//	                                         │ none
//	                                         ▼
//	                                    the listener itself
//
// Then the limits, metrics, log and drain of the virtual listener apply to the connection.

// virtualListeners holds the active virtual listeners. It is safe for concurrent use.
type virtualListeners struct {
	table atomic.Pointer[map[netip.AddrPort]*network.Listener] // never nil after NewServer; the map is immutable
}

// publish activates the virtual listeners among these.
func (h *virtualListeners) publish(listeners map[string]*liveListener) {
	table := make(map[netip.AddrPort]*network.Listener)
	for _, live := range listeners {
		if at, ok := virtualAddress(live.compiled.config); ok {
			table[at] = live.ln
		}
	}
	h.table.Store(&table)
}

// find implements network.ListenerLookup. It prefers the listener with the exact address, then the
// wildcard of the address family, then the wildcard of the other family, because a wildcard socket
// accepts both.
func (h *virtualListeners) find(to netip.AddrPort) *network.Listener {
	table := *h.table.Load()
	if len(table) == 0 {
		return nil
	}
	if l := table[to]; l != nil {
		return l
	}
	own, other := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	if to.Addr().Is6() {
		own, other = other, own
	}
	if l := table[netip.AddrPortFrom(own, to.Port())]; l != nil {
		return l
	}
	return table[netip.AddrPortFrom(other, to.Port())]
}

// virtualAddress returns the address of a virtual listener. It returns false if l is not virtual or
// no connection can reach it.
func virtualAddress(l *config.Listener) (netip.AddrPort, bool) {
	if l.Bind || l.Network != "tcp" {
		return netip.AddrPort{}, false
	}
	address := l.Address
	if len(address) > 0 && address[0] == ':' {
		address = "0.0.0.0" + address
	}
	at, err := netip.ParseAddrPort(address)
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err == nil && at.Port() != 0
}

// openListener creates the bound or virtual listener of e, which does not accept yet. It returns
// nil if no connection can reach the listener.
func (s *Server) openListener(ctx context.Context, e *compiledListener) (*liveListener, error) {
	if !e.config.Bind {
		return s.openVirtualListener(e), nil
	}
	live, err := s.bindListener(ctx, e)
	if err != nil {
		return nil, err
	}
	if err := s.setOriginalDst(live, e.config); err != nil {
		live.ln.Stop()
		return nil, err
	}
	return live, nil
}

func (s *Server) openVirtualListener(e *compiledListener) *liveListener {
	at, ok := virtualAddress(e.config)
	if !ok {
		return nil
	}
	count := &connCounter{metrics: e.metrics}
	ln := network.NewVirtualListener(network.ListenOptions{
		Name:           e.config.Name,
		MaxConnections: e.config.MaxConnections,
		Limiter:        s.overload.ConnLimiter(),
		Log:            s.o.Log,
		Counter:        count,
	}, at, e.handler)
	return &liveListener{ln: ln, counter: count, compiled: e}
}

// setOriginalDst configures how a bound listener finds the original destinations of its
// connections. It can fail only if l says OriginalDstTProxy and prepareOriginalDst was not called.
func (s *Server) setOriginalDst(live *liveListener, l *config.Listener) error {
	find := s.virtualListeners.find
	if l.KeepRedirected {
		find = nil
	}
	switch l.OriginalDst {
	case config.OriginalDstRedirect:
		return live.ln.UseOriginalDst(network.OriginalDstRedirect, find)
	case config.OriginalDstTProxy:
		return live.ln.UseOriginalDst(network.OriginalDstTProxy, find)
	}
	return live.ln.UseOriginalDst(network.OriginalDstOff, nil)
}

// prepareOriginalDst does the part of setOriginalDst that can fail, for a listener that remains.
func (live *liveListener) prepareOriginalDst(l *config.Listener) error {
	if !l.Bind || l.OriginalDst != config.OriginalDstTProxy {
		return nil
	}
	if err := live.ln.SetTransparent(); err != nil {
		return fmt.Errorf("use_original_dst: %w", err)
	}
	return nil
}

// connAddrsOf returns the addresses of a forwarded connection for the cluster.
func connAddrsOf(conn *network.Conn) upstream.ConnAddrs {
	peer, _ := conn.Addrs().DirectRemote()
	at := upstream.ConnAddrs{From: unmapped(addrPort(peer)), To: unmapped(addrPort(conn.LocalAddr()))}
	_, at.Redirected = conn.Addrs().OriginalDst()
	return at
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// closeReasonOf returns the close reason of a connection that could not be forwarded, or
// ClosedComplete if its handler need not set one.
func closeReasonOf(err error) network.CloseReason {
	reason := protocol.ReasonOf(err)
	if reason == protocol.NoDestination {
		return network.ClosedNoDestination
	}
	if reason == protocol.ReasonLoop {
		return network.ClosedLoop
	}
	return network.ClosedComplete
}
