package network

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// Close closes the connection immediately. On a socket, a second call returns an error and has no
// effect.
func (c *Conn) Close() error {
	if s := c.secure.Load(); s != nil {
		s.sendCloseNotify()
	}
	return c.close()
}

// closeWithoutNotify closes the connection before its data is complete. Over TLS it sends no
// close_notify (RFC 8446 6.1), so that the peer can detect the truncation.
func (c *Conn) closeWithoutNotify() error {
	if s := c.secure.Load(); s != nil {
		s.dropSealed()
	}
	return c.close()
}

func (c *Conn) close() error {
	err := c.nc.Close()
	if panics := runCloseHooks(&c.closeHooks); panics != nil {
		return errors.Join(err, panics)
	}
	return err
}

// Abort resets the connection where that is possible: the peer's reads fail instead of returning
// EOF, and the peer does not mistake truncated data for complete data.
func (c *Conn) Abort() error {
	if tcp, ok := c.nc.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
	return c.closeWithoutNotify()
}

// OnClose registers f to run when any goroutine has closed this side of the connection, or
// immediately if it is already closed. f must not block. f stays registered while the connection is
// parked. stop removes f; f may already be running or have run.
func (c *Conn) OnClose(f func()) (stop func()) {
	c.closeHooks.CompareAndSwap(nil, new(closeHooks))
	return c.closeHooks.Load().add(f)
}

// closeHooks holds the functions that run when a connection is closed. A Conn has a nil *closeHooks
// until its first hook is registered or the connection is closed. Safe for concurrent use.
type closeHooks struct {
	mu     sync.Mutex
	closed bool      // guarded by mu
	hooks  []*func() // guarded by mu
	panics error     // guarded by mu; panics of hooks that have run
}

// add registers f, or calls it if the connection is closed. stop undoes the registration.
func (h *closeHooks) add(f func()) (stop func()) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		f()
		return func() {}
	}
	hook := &f
	h.hooks = append(h.hooks, hook)
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.hooks = slices.DeleteFunc(h.hooks, func(registered *func()) bool { return registered == hook })
	}
}

// runCloseHooks marks the connection as closed and calls all registered functions. The error joins
// their panics. A listener logs the panics of an accepted connection when that connection ends.
func runCloseHooks(p *atomic.Pointer[closeHooks]) (panics error) {
	if p.Load() == nil && p.CompareAndSwap(nil, &closeHooks{closed: true}) {
		return nil
	}
	h := p.Load()
	h.mu.Lock()
	h.closed = true
	hooks := h.hooks
	h.hooks = nil
	h.mu.Unlock()
	for _, f := range hooks {
		panics = errors.Join(panics, recoverPanic(func() error { (*f)(); return nil }))
	}
	if panics != nil {
		h.mu.Lock()
		h.panics = errors.Join(h.panics, panics)
		h.mu.Unlock()
	}
	return panics
}

// panicErr returns the joined panics of the hooks that have run, or nil.
func (h *closeHooks) panicErr() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.panics
}
