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

// publish activates the virtual listeners among listeners.
func (v *virtualListeners) publish(listeners map[string]*liveListener) {
	table := make(map[netip.AddrPort]*network.Listener)
	for _, live := range listeners {
		if addr, ok := virtualAddress(live.compiled.config); ok {
			table[addr] = live.ln
		}
	}
	v.table.Store(&table)
}

// find implements network.ListenerLookup. It prefers the listener with the exact address, then the
// wildcard of the address family, then the wildcard of the other family, because a wildcard socket
// accepts both.
func (v *virtualListeners) find(dst netip.AddrPort) *network.Listener {
	table := *v.table.Load()
	if len(table) == 0 {
		return nil
	}
	if l := table[dst]; l != nil {
		return l
	}
	sameFamily, otherFamily := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	if dst.Addr().Is6() {
		sameFamily, otherFamily = otherFamily, sameFamily
	}
	if l := table[netip.AddrPortFrom(sameFamily, dst.Port())]; l != nil {
		return l
	}
	return table[netip.AddrPortFrom(otherFamily, dst.Port())]
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
	addr, err := netip.ParseAddrPort(address)
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), err == nil && addr.Port() != 0
}

// openListener creates the bound or virtual listener of cl, which does not accept yet. It returns
// nil if no connection can reach the listener.
func (s *Server) openListener(ctx context.Context, cl *compiledListener) (*liveListener, error) {
	if !cl.config.Bind {
		return s.openVirtualListener(cl), nil
	}
	live, err := s.bindListener(ctx, cl)
	if err != nil {
		return nil, err
	}
	if err := s.setOriginalDst(live, cl.config); err != nil {
		live.ln.Stop()
		return nil, err
	}
	return live, nil
}

func (s *Server) openVirtualListener(cl *compiledListener) *liveListener {
	addr, ok := virtualAddress(cl.config)
	if !ok {
		return nil
	}
	counter := &connCounter{metrics: cl.metrics}
	ln := network.NewVirtualListener(network.ListenOptions{
		Name:           cl.config.Name,
		MaxConnections: cl.config.MaxConnections,
		Limiter:        s.overload.ConnLimiter(),
		Log:            s.o.Log,
		Counter:        counter,
	}, addr, cl.handler)
	return &liveListener{ln: ln, counter: counter, compiled: cl}
}

// setOriginalDst configures how a bound listener finds the original destinations of its
// connections. It can fail only if l uses OriginalDstTProxy and prepareOriginalDst was not called.
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

// prepareOriginalDst performs the part of setOriginalDst that can fail, for a listener that
// remains.
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
	directRemote, _ := conn.Addrs().DirectRemote()
	addrs := upstream.ConnAddrs{From: unmapped(addrPort(directRemote)), To: unmapped(addrPort(conn.LocalAddr()))}
	_, addrs.Redirected = conn.Addrs().OriginalDst()
	return addrs
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// closeReasonOf returns the close reason of a connection that could not be forwarded because of
// err. It returns ClosedComplete if no specific reason applies.
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
