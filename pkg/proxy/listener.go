package proxy

import (
	"context"
	"reflect"
	"slices"
	"sync"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
)

// liveListener is a bound or virtual listener. It accepts after Server.serveListener.
type liveListener struct {
	ln             *network.Listener
	counter        *connCounter
	compiled       *compiledListener  // while the listener is active: guarded by Server.mu, changed under Server.applying
	cancelHandlers context.CancelFunc // ends the handlers of its connections
}

// bindListener binds the address of cl's listener.
func (s *Server) bindListener(ctx context.Context, cl *compiledListener) (*liveListener, error) {
	l := cl.config
	counter := &connCounter{metrics: cl.metrics}
	ln, err := network.Listen(ctx, network.ListenOptions{
		Name:           l.Name,
		Network:        l.Network,
		Address:        l.Address,
		ReusePort:      l.ReusePort,
		Mark:           uint32(l.Mark), //nolint:gosec // the configuration parser has checked the range
		MaxConnections: l.MaxConnections,
		AcceptRate:     network.AcceptRate(l.AcceptRate),
		Limiter:        s.overload.ConnLimiter(),
		Log:            s.o.Log,
		Counter:        counter,
	}, cl.handler)
	if err != nil {
		return nil, err
	}
	ln.SetKeepAlive(keepAlive(l.KeepAlive))
	return &liveListener{ln: ln, counter: counter, compiled: cl}, nil
}

// checkBound logs a warning about changes that cannot apply to a bound socket.
func (s *Server) checkBound(old, next *config.Listener) {
	if next.ReusePort != old.ReusePort || next.Mark != old.Mark {
		s.o.Log.Warn("the change of reuseport or mark of a bound listener takes effect after a restart", "listener", next.Name)
	}
}

// reconfigure applies a new configuration to a listener and returns the previous pipelines. Open
// connections use the new configuration. Those that cannot continue in the new chain (see
// sameExceptCertificates) end after their current or next exchange. Those whose filter chain was
// removed drain.
func (live *liveListener) reconfigure(s *Server, next *compiledListener) (previous []*pipeline.Pipeline) {
	old := live.compiled
	s.checkBound(old.config, next.config)
	live.ln.SetMaxConnections(next.config.MaxConnections)
	live.ln.SetKeepAlive(keepAlive(next.config.KeepAlive))
	live.ln.SetAcceptRate(network.AcceptRate(next.config.AcceptRate))
	live.counter.moveTo(next.metrics)
	var changed []*compiledChain
	rotated := false
	removed := slices.Clone(old.chains)
	for _, c := range next.chains {
		oldChain := old.previousChain(next, c)
		oldPipeline := c.activateReplacing(oldChain)
		s.closeRecorder(oldPipeline)
		previous = append(previous, oldPipeline)
		if oldChain == nil {
			continue
		}
		removed = slices.DeleteFunc(removed, func(chain *compiledChain) bool { return chain == oldChain })
		covers := oldChain.tls.covers(c.tls)
		switch {
		case covers && sameEngine(old.config, next.config, oldChain.config, c.config):
			c.handler, c.group = oldChain.handler, oldChain.group
			c.tls, oldChain.tls = oldChain.tls, c.tls
		case covers && sameExceptCertificates(old.config, next.config, oldChain.config, c.config):
			c.group, rotated = oldChain.group, true // new connections use other certificates
		default:
			changed = append(changed, oldChain)
		}
	}
	next.publishChains()
	live.setHandlers(s, old, next, changed, len(changed) == 0 && !rotated)
	for _, c := range removed {
		previous = append(previous, c.active())
		s.drainChain(live, c)
	}
	old.close()
	live.compiled = next
	return slices.DeleteFunc(previous, func(c *pipeline.Pipeline) bool { return c == nil })
}

// setHandlers makes new connections use next and ends the connections of changed filter chains
// after their current or next exchange. If keepHandlers is true, all chains keep their handlers.
func (live *liveListener) setHandlers(s *Server, old, next *compiledListener, changed []*compiledChain, keepHandlers bool) {
	selects := next.selectsChain()
	sameFront := selects == old.selectsChain() && reflect.DeepEqual(old.config.ProxyProtocol, next.config.ProxyProtocol)
	if sameFront && (selects || keepHandlers) {
		next.handler = old.handler
	} else {
		next.handler = s.listenerHandler(next)
		live.ln.SetHandler(next.handler, next.initialGroup())
	}
	for _, c := range changed {
		live.ln.DrainGroupAfterNext(c.group)
	}
}

// listenerChange is a listener change to log.
type listenerChange struct {
	active            bool // true: it accepts connections; false: it was removed
	listener, address string
}

// logListenerChanges logs which listeners became active or were removed.
func (s *Server) logListenerChanges(changes []listenerChange) {
	for _, c := range changes {
		if c.active {
			s.o.Log.Info("listener active", "listener", c.listener, "address", c.address)
		} else {
			s.o.Log.Info("listener removed", "listener", c.listener, "address", c.address)
		}
	}
}

// connCounter counts the connections of a listener under its current name, which may change while
// they are open. It implements network.ListenerCounter.
type connCounter struct {
	mu      sync.Mutex
	metrics *metrics.Listener // guarded by mu
	open    int               // guarded by mu
}

// Accepted implements network.ListenerCounter.
func (c *connCounter) Accepted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.metrics.Accepted()
}

// Closed implements network.ListenerCounter.
func (c *connCounter) Closed(reason network.CloseReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.metrics.Closed(uint8(reason))
}

// Refused implements network.ListenerCounter.
func (c *connCounter) Refused() { c.current().Refused() }

// AcceptError implements network.ListenerCounter.
func (c *connCounter) AcceptError() { c.current().AcceptError() }

func (c *connCounter) current() *metrics.Listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics
}

// moveTo moves the open connections to recorder and counts new connections there.
func (c *connCounter) moveTo(recorder *metrics.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.metrics == recorder {
		return
	}
	for range c.open {
		c.metrics.Closed(uint8(network.ClosedComplete))
		recorder.Accepted()
	}
	c.metrics = recorder
}

// sameEngine reports whether connections that listener a accepted in chain ca can continue
// unchanged in chain cb of listener b.
func sameEngine(a, b *config.Listener, ca, cb *config.FilterChain) bool {
	if a.IdleTimeout != b.IdleTimeout || a.Name != b.Name || !reflect.DeepEqual(a.ProxyProtocol, b.ProxyProtocol) {
		return false
	}
	if ca.AllowPlaintext != cb.AllowPlaintext || !reflect.DeepEqual(ca.TLS, cb.TLS) || !reflect.DeepEqual(ca.ConnectionFilters, cb.ConnectionFilters) {
		return false
	}
	pa, pb := ca.Proxy, cb.Proxy
	if (pa == nil) != (pb == nil) || !reflect.DeepEqual(ca.TCPProxy, cb.TCPProxy) {
		return false
	}
	if pa == nil {
		return true
	}
	return pa.HTTP1 == pb.HTTP1 && pa.HTTP2 == pb.HTTP2 && pa.RPC == pb.RPC && reflect.DeepEqual(pa.Replies, pb.Replies) && sameDetection(pa, pb)
}

// sameExceptCertificates is sameEngine for chains whose TLS contexts only need to satisfy
// sameTLSSettings.
func sameExceptCertificates(a, b *config.Listener, ca, cb *config.FilterChain) bool {
	chain := *cb
	chain.TLS = ca.TLS
	return slices.EqualFunc(ca.TLS, cb.TLS, sameTLSSettings) && sameEngine(a, b, ca, &chain)
}

// sameTLSSettings reports whether a and b differ at most in inline certificates, keys and
// authorities. These rotate like files, and open connections keep their handshake.
func sameTLSSettings(a, b *config.TLS) bool {
	x, y := *a, *b
	for _, p := range []struct{ dst, src *config.PEM }{
		{&x.Certificate, &y.Certificate}, {&x.Key, &y.Key}, {&x.TrustedCA, &y.TrustedCA},
	} {
		if p.dst.Text != "" && p.src.Text != "" {
			p.dst.Text = p.src.Text
		}
	}
	return reflect.DeepEqual(x, y)
}

// sameDetection reports whether a and b detect the same protocols in the same way.
func sameDetection(a, b *config.Proxy) bool {
	return slices.Equal(a.Downstream, b.Downstream) && a.Fallback == b.Fallback && a.DetectTimeout == b.DetectTimeout &&
		(!isAuto(a) || a.Upstream == b.Upstream)
}
