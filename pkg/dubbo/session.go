package dubbo

import (
	"context"
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/registry"
)

// session is a session with a registry, shared by all its registrations and subscriptions. It
// closes when uses drops to 0.
type session struct {
	key sessionKey // immutable

	// Guarded by Discovery.mu.
	registry  registry.Registry // nil: not open
	err       error             // why it could not be opened
	uses      int               // registrations and subscriptions
	connected bool              // last logged state
}

// registrySettings returns the configuration of a registry, or nil.
func (h *Discovery) registrySettings(kind, address string) *config.RegistrySettings {
	for i := range h.options.Config.Registries {
		if s := &h.options.Config.Registries[i]; s.Type == kind && s.Address == address {
			return s
		}
	}
	return nil
}

// openSession returns the session of a key, and opens it if Discovery runs. mu is held, as in all
// functions below except closeRegistry and logSessions.
func (h *Discovery) openSession(key sessionKey) *session {
	s := h.sessions[key]
	if s == nil {
		s = &session{key: key}
		h.sessions[key] = s
	}
	if s.registry == nil && h.running {
		if h.openRegistry(s); s.registry != nil {
			h.resumeSession(s)
		}
	}
	return s
}

// resumeSession starts the registrations and subscriptions of a session that could not be opened before.
func (h *Discovery) resumeSession(s *session) {
	for _, p := range h.published {
		if p.urlRegistration.session == s {
			h.startReconcile(p.urlRegistration)
		}
	}
	for _, p := range h.instances {
		if p.registration.session == s {
			h.startReconcile(p.registration)
		}
	}
	for _, f := range h.subscriptions {
		if f.session == s {
			h.startReconcile(f.consumer)
			h.pendingStarts = append(h.pendingStarts, f)
		}
	}
	h.wakeLoop()
}

// openRegistry opens a session, or sets its err.
func (h *Discovery) openRegistry(s *session) {
	open := h.options.Registries[s.key.kind]
	if open == nil {
		s.err = fmt.Errorf("the type %q is not one of %s", s.key.kind, h.registryTypes())
		return
	}
	o := registry.Options{
		Address:  s.key.address,
		Username: s.key.username,
		Password: s.key.password,
		Changed:  h.sessionChanged,
		Log:      h.options.Log.With(logRegistry, s.key.String()),
	}
	if settings := h.registrySettings(s.key.kind, s.key.address); settings != nil {
		o.Root, o.SessionTimeout = settings.Root, settings.SessionTimeout
		if settings.TLS != nil {
			if h.options.TLS == nil {
				s.err = errNoTLS
				return
			}
			if o.TLS, s.err = h.options.TLS(settings.TLS); s.err != nil {
				return
			}
		}
	}
	s.registry, s.err = open(o)
}

// releaseSession releases one use of a session.
func (h *Discovery) releaseSession(s *session) {
	if s.uses--; s.uses > 0 {
		return
	}
	if h.sessions[s.key] == s {
		delete(h.sessions, s.key)
	}
	if r := s.registry; r != nil && h.running { // else finish closes it
		h.tasks.Go(func() { closeRegistry(r) })
	}
}

// closeRegistry closes a session, for at most closeTimeout.
func closeRegistry(r registry.Registry) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	r.Close(ctx)
}

// logSessions logs sessions that were disconnected or connected again.
func (h *Discovery) logSessions() {
	h.mu.Lock()
	open := make([]*session, 0, len(h.sessions))
	for _, s := range h.sessions {
		if s.registry != nil {
			open = append(open, s)
		}
	}
	h.mu.Unlock()
	for _, s := range open {
		state := s.registry.State()
		h.mu.Lock()
		turned := s.connected != state.Connected
		s.connected = state.Connected
		h.mu.Unlock()
		switch {
		case turned && state.Connected:
			h.options.Log.Info("registry connected", logRegistry, s.key.String(), logSession, state.Session)
		case turned:
			h.options.Log.Warn("registry disconnected; its last snapshot stays active", logRegistry, s.key.String(), logError, state.LastError)
		}
	}
}

// The keys of log records.
const (
	logRegistry = "registry"
	logSession  = "session"
	logService  = "service"
	logServices = "services"
	logFile     = "file"
	logAside    = "moved_to"
	logError    = "error"
	logURL      = "url"

	logApplication = "application"
)
