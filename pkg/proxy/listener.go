package proxy

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// liveListener is a listener that is bound, and accepts once Server.begin was
// called.
type liveListener struct {
	ln    *network.Listener
	count *counter
	chain *chain             // guarded by Server.mu, until it is no longer among the listeners
	end   context.CancelFunc // ends the handlers of its connections
}

// bind binds the address of c's listener.
func (s *Server) bind(ctx context.Context, c *chain) (*liveListener, error) {
	l := c.config
	count := &counter{account: c.count}
	ln, err := network.Listen(ctx, network.ListenOptions{
		Name:           l.Name,
		Network:        l.Network,
		Address:        l.Address,
		ReusePort:      l.ReusePort,
		MaxConnections: l.MaxConnections,
		AcceptRate:     network.AcceptRate(l.AcceptRate),
		Gate:           &s.overseer.gate,
		Log:            s.o.Log,
		Count:          count,
	}, c.handler)
	if err != nil {
		return nil, err
	}
	ln.SetKeepAlive(keepAlive(l.KeepAlive))
	return &liveListener{ln: ln, count: count, chain: c}, nil
}

// composition is what serves the listener's exchanges; nil if it carries bytes.
func (live *liveListener) composition() *composition {
	if live.chain.serving == nil {
		return nil
	}
	return live.chain.serving.now.Load()
}

// change gives a listener that goes on its new chain, and returns what served
// before. Connections that it has take part: only if an engine's own options
// changed must they end, each after its next exchange.
func (live *liveListener) change(c *chain, log *slog.Logger) (before *composition) {
	old := live.chain
	if c.config.ReusePort != old.config.ReusePort {
		log.Warn("reuseport of a listener that is bound changes at the next start", "listener", c.config.Name)
	}
	live.ln.SetMaxConnections(c.config.MaxConnections)
	live.ln.SetKeepAlive(keepAlive(c.config.KeepAlive))
	live.ln.SetAcceptRate(network.AcceptRate(c.config.AcceptRate))
	live.count.moveTo(c.count)
	before = c.enforce()
	if c.serving == nil { // it carries bytes from now on
		if before = live.composition(); before != nil {
			before.release()
		}
	}
	if sameEngine(old.config, c.config) && old.secured.covers(c.secured) {
		c.handler = old.handler
		c.secured, old.secured = old.secured, c.secured
	} else {
		live.ln.SetHandler(c.handler, true)
	}
	old.free()
	live.chain = c
	return before
}

// counter counts the connections of a listener for the account of its name, which
// may change while they are open. It is a network.ListenerCounter.
type counter struct {
	mu      sync.Mutex
	account *metrics.Listener // guarded by mu
	open    int               // guarded by mu
}

// Accepted is network.ListenerCounter's.
func (c *counter) Accepted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.account.Accepted()
}

// Closed is network.ListenerCounter's.
func (c *counter) Closed(cause network.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.account.Closed(uint8(cause))
}

// Refused is network.ListenerCounter's.
func (c *counter) Refused() { c.now().Refused() }

// AcceptError is network.ListenerCounter's.
func (c *counter) AcceptError() { c.now().AcceptError() }

func (c *counter) now() *metrics.Listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.account
}

// moveTo makes another account that of the connections that are open and of those
// to come.
func (c *counter) moveTo(account *metrics.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.account == account {
		return
	}
	for range c.open {
		c.account.Closed(uint8(network.CauseDone))
		account.Accepted()
	}
	c.account = account
}

// sameEngine reports whether connections accepted under a go on as they are
// under b.
func sameEngine(a, b *config.Listener) bool {
	if len(a.FilterChains) != 1 || len(b.FilterChains) != 1 || a.IdleTimeout != b.IdleTimeout || a.Name != b.Name {
		return false
	}
	ca, cb := a.FilterChains[0], b.FilterChains[0]
	if !reflect.DeepEqual(a.ProxyProtocol, b.ProxyProtocol) {
		return false
	}
	if ca.Inspector != cb.Inspector || !reflect.DeepEqual(ca.TLS, cb.TLS) {
		return false
	}
	pa, pb := ca.Proxy, cb.Proxy
	if (pa == nil) != (pb == nil) || !reflect.DeepEqual(ca.TCPProxy, cb.TCPProxy) {
		return false
	}
	if pa == nil {
		return true
	}
	return pa.HTTP1 == pb.HTTP1 && pa.HTTP2 == pb.HTTP2 && pa.RPC == pb.RPC && sameChoice(pa, pb)
}

// sameChoice reports whether a's connections are taken for the same as b's.
func sameChoice(a, b *config.Proxy) bool {
	return slices.Equal(a.Downstream, b.Downstream) && a.Fallback == b.Fallback && a.DetectTimeout == b.DetectTimeout &&
		(!isAuto(a) || a.Upstream == b.Upstream)
}
