package proxy

import (
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/proxy/overload"
)

// newOverloadManager returns the overload manager of s, which acts on its listeners and clusters.
func newOverloadManager(s *Server) *overload.Manager {
	return overload.New(overload.Options{
		System: s.o.System,
		EachListener: func(f func(l *network.Listener, idleTimeout time.Duration)) {
			s.eachListener(func(l *liveListener) { f(l.ln, l.compiled.config.IdleTimeout) })
		},
		CloseIdleHostConns: func(idle time.Duration) int { return s.clusters.CloseIdle(idle) },
		Metrics:            s.o.Metrics,
		Log:                s.o.Log,
	})
}

// Overload returns the state of the overload manager, or nil if none is configured.
func (s *Server) Overload() *overload.Status { return s.overload.Status() }

// eachListener calls f with every active listener except those for UDP. f must not block.
func (s *Server) eachListener(f func(*liveListener)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, live := range s.listeners {
		f(live)
	}
}
