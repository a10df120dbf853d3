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

// Virtual listeners have no socket. A listener that is bound and says use_original_dst
// hands them the connections that were made to their addresses, unless it keeps them:
//
//	accept ──▶ original destination ──▶ handoff.find ──▶ virtual listener
//	                                         │ none
//	                                         ▼
//	                                    the listener itself
//
// From then on a connection is the virtual listener's: its limits, counts, log, drain.

// virtualListeners knows the virtual listeners in force. Safe for concurrent use.
type virtualListeners struct {
	table atomic.Pointer[map[netip.AddrPort]*network.Listener] // never nil after NewServer; what it points to is immutable
}

// publish makes the virtual ones of these the listeners in force.
func (h *virtualListeners) publish(listeners map[string]*liveListener) {
	table := make(map[netip.AddrPort]*network.Listener)
	for _, live := range listeners {
		if at, ok := virtualAddress(live.entry.config); ok {
			table[at] = live.ln
		}
	}
	h.table.Store(&table)
}

// find is a network.ListenerLookup: the listener of the very address, else that of all
// addresses of its family, else that of all of the other, since a socket of all
// addresses is of both families.
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

// virtualAddress returns the address of a virtual listener; false: it is none, or one
// that no connection can be meant for.
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

// open makes the listener of e, which does not accept yet: bound, or virtual. It is nil
// if nothing can ever reach it.
func (s *Server) open(ctx context.Context, e *compiledListener) (*liveListener, error) {
	if !e.config.Bind {
		return s.virtual(e), nil
	}
	live, err := s.bind(ctx, e)
	if err != nil {
		return nil, err
	}
	if err := s.redirect(live, e.config); err != nil {
		live.ln.Stop()
		return nil, err
	}
	return live, nil
}

func (s *Server) virtual(e *compiledListener) *liveListener {
	at, ok := virtualAddress(e.config)
	if !ok {
		return nil
	}
	count := &counter{account: e.count}
	ln := network.NewVirtualListener(network.ListenOptions{
		Name:           e.config.Name,
		MaxConnections: e.config.MaxConnections,
		Gate:           &s.overseer.gate,
		Log:            s.o.Log,
		Count:          count,
	}, at, e.handler)
	return &liveListener{ln: ln, count: count, entry: e}
}

// redirect lets a bound listener look for the destinations of its connections, or not.
// It can fail only if l says ByTProxy and prepareRedirect was not called.
func (s *Server) redirect(live *liveListener, l *config.Listener) error {
	find := s.handoff.find
	if l.KeepRedirected {
		find = nil
	}
	switch l.OriginalDst {
	case config.ByRedirect:
		return live.ln.UseOriginalDst(network.OriginalDstRedirect, find)
	case config.ByTProxy:
		return live.ln.UseOriginalDst(network.OriginalDstTProxy, find)
	}
	return live.ln.UseOriginalDst(network.OriginalDstOff, nil)
}

// prepareRedirect does for a listener that goes on what redirect could fail in.
func (live *liveListener) prepareRedirect(l *config.Listener) error {
	if !l.Bind || l.OriginalDst != config.ByTProxy {
		return nil
	}
	if err := live.ln.SetTransparent(); err != nil {
		return fmt.Errorf("use_original_dst: %w", err)
	}
	return nil
}

// arrivalOf is what a cluster needs to know of a connection that is carried on.
func arrivalOf(conn *network.Conn) upstream.ConnAddrs {
	peer, _ := conn.DirectRemoteAddr()
	at := upstream.ConnAddrs{From: unmapped(addrPort(peer)), To: unmapped(addrPort(conn.LocalAddr()))}
	_, at.Redirected = conn.OriginalDst()
	return at
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// causeOf is why a connection ends that could not be carried on, or CauseDone: its
// handler says nothing more of that.
func causeOf(err error) network.CloseReason {
	reason := protocol.ReasonOf(err)
	if reason == protocol.NoDestination {
		return network.CauseNoDestination
	}
	if reason == protocol.ReasonLoop {
		return network.CauseLoop
	}
	return network.ClosedComplete
}
