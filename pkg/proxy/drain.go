package proxy

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Drain stops accepting, lets active requests finish until ctx ends, and returns when all
// connections and tasks have ended. After Drain, Apply fails and another Drain does nothing.
func (s *Server) Drain(ctx context.Context) {
	s.draining.Store(true)
	s.StopWaiting()
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	listeners := s.listeners
	s.listeners = nil
	for _, live := range listeners {
		s.drainingListeners[live] = struct{}{}
	}
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.forceCloseRemoved)()
	defer context.AfterFunc(ctx, s.cancelBackground)()
	var wg sync.WaitGroup
	for _, live := range listeners {
		wg.Go(func() {
			s.drainListener(ctx, live)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.drainingListeners, live)
		})
	}
	wg.Go(func() { s.drainAllDatagrams(ctx) })
	wg.Wait()
	s.overload.Activate(nil)
	s.tasks.Wait()
	s.cancelBackground()
	releaseTables(s.tables)
	s.tables = nil
	s.clusters.Close()
}

// Draining reports whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

func (s *Server) gracePeriod() time.Duration {
	if c := s.running.Load(); c != nil {
		return c.Server.GracefulTimeout
	}
	return 0
}

func (s *Server) drainListener(ctx context.Context, live *liveListener) {
	defer live.cancelHandlers()
	// End handlers that wait for something other than their connection.
	defer context.AfterFunc(ctx, live.cancelHandlers)()
	s.logForceClosed(ctx, "connections", live.compiled.config.Name, live.ln.Drain(ctx))
	for _, c := range live.compiled.chains {
		c.close()
	}
	live.compiled.close()
}

// drainRemoved drains a removed listener. Its address is free when drainRemoved returns. The caller
// holds s.mu.
func (s *Server) drainRemoved(live *liveListener) {
	live.ln.StopReplaced()
	ctx, cancel := context.WithTimeout(context.Background(), s.gracePeriod())
	s.removedListeners[live] = cancel
	s.tasks.Go(func() {
		s.drainListener(ctx, live)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.removedListeners, live)
		cancel()
	})
}

// forceCloseRemoved ends all drains of removed listeners immediately.
func (s *Server) forceCloseRemoved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.removedListeners {
		cancel()
	}
}

// drainChain drains the connections of a removed filter chain.
func (s *Server) drainChain(live *liveListener, c *compiledChain) {
	name, grace := live.compiled.config.Name, s.gracePeriod()
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		s.logForceClosed(ctx, "connections of a filter chain", name, live.ln.DrainGroup(ctx, c.group))
		c.close()
	})
}

// logForceClosed logs count, unless count is 0. count is the number of force-closed connections
// that were not idle, or of force-closed UDP sessions.
func (s *Server) logForceClosed(ctx context.Context, kind, listener string, count int) {
	switch {
	case count == 0:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.o.Log.Warn("closed at the drain deadline with requests in flight", "listener", listener, "kind", kind, "count", count)
	default:
		s.o.Log.Warn("closed by an immediate shutdown with requests in flight", "listener", listener, "kind", kind, "count", count)
	}
}
