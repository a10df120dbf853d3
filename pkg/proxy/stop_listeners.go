package proxy

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// ListenerScope selects listeners by their direction. A larger scope includes the smaller ones.
type ListenerScope uint8

// Scopes.
const (
	NoListeners      ListenerScope = iota
	IngressListeners               // those that serve the local application
	AllListeners
)

// includes reports whether s selects l.
func (s ListenerScope) includes(l *config.Listener) bool {
	return s == AllListeners || s == IngressListeners && l.Ingress
}

// StopListeners makes listeners stop accepting, including listeners that a later configuration
// adds. Open connections continue. Listeners for UDP are not affected. Unlike after Drain, the
// server still applies configurations. Safe for concurrent use.
func (s *Server) StopListeners(scope ListenerScope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopScope = max(s.stopScope, scope)
	for _, live := range s.listeners {
		s.applyScopes(live)
	}
}

// DrainConnections makes the connections of listeners end after their current or next exchange,
// including connections that are accepted later. Safe for concurrent use.
func (s *Server) DrainConnections(scope ListenerScope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drainScope = max(s.drainScope, scope)
	for _, live := range s.listeners {
		s.applyScopes(live)
	}
}

// StopListenersGracefully drains the connections of listeners for the grace period, and then stops
// the listeners. It does not wait.
func (s *Server) StopListenersGracefully(scope ListenerScope) {
	s.DrainConnections(scope)
	timer := time.NewTimer(s.gracePeriod())
	s.tasks.Go(func() {
		defer timer.Stop()
		select {
		case <-timer.C:
			s.StopListeners(scope)
		case <-s.applyCtx.Done(): // Drain stops all listeners
		}
	})
}

// applyScopes stops a listener and drains its connections if a scope selects it. The caller holds
// s.mu.
func (s *Server) applyScopes(live *liveListener) {
	if s.stopScope.includes(live.compiled.config) {
		live.ln.Stop()
	}
	if s.drainScope.includes(live.compiled.config) {
		live.ln.DrainAfterNext()
	}
}
