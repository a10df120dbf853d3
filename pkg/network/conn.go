// Package network owns connections. It accepts, dials, waits for bytes without holding a
// buffer, keeps deadlines that cost nothing per request, and closes without losing what was
// written.
package network

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// Handler serves one connection. ServeConn returns when it is done with conn, which its
// caller then closes. ctx ends when the connection must end immediately; Conn.Draining asks
// for a graceful end.
//
// A handler may return ErrPark when the connection is idle: the listener waits for bytes on
// a new, small stack and calls ServeConn again.
type Handler interface {
	ServeConn(ctx context.Context, conn *Conn) error
}

// ClientFirstHandler is a Handler of a protocol in which the client speaks first. The
// listener calls ServeConn once there are bytes, so that a silent connection costs only the
// smallest stack.
type ClientFirstHandler interface {
	Handler
	// IdleTimeout returns how long a connection may be silent; 0: forever.
	IdleTimeout() time.Duration
}

// Errors that Conn's waiting methods return in addition to those of package net.
var (
	// ErrInterrupted means that Interrupt was called.
	ErrInterrupted = errors.New("network: read interrupted")
	// ErrDraining means that the connection is idle, Drain was called, and no byte of
	// another exchange has arrived.
	ErrDraining = errors.New("network: draining")
	// ErrPark asks the listener to wait instead of the handler.
	ErrPark = errors.New("network: park the idle connection")
)

// States of a Conn, as bits.
const (
	stateIdle           = 1 << iota // the reader waits between exchanges
	stateDraining                   // the connection ends after its current exchange
	stateInterrupted                // the reader must return
	stateDrainAfterNext             // like stateDraining, but an idle connection waits for one more exchange
	stateDrainExpiring              // the drain time is nearly over
	stateForceClosed                // the connection did not drain in time
	stateNoExchange                 // a listener accepted the connection, and it has had no exchange yet
	stateAwaitFirst                 // a drain waits for the first exchange of a fresh connection
)

// Conn is a connection with three features that a proxy needs and net.Conn lacks: reads that
// take a buffer only once there is something to read, deadlines that are checked against the
// clock only when a timer fires, and a way to tell an idle reader from a busy one.
//
// One goroutine reads and one writes at a time. Any goroutine may call Interrupt, Drain and
// Close.
type Conn struct {
	id    uint64 // immutable
	nc    net.Conn
	raw   syscall.RawConn // of the socket; nil: nc is not a socket
	state atomic.Uint32

	// CloseReason is why the connection ends. The handler sets it before it returns for
	// good.
	CloseReason CloseReason

	// secure is the connection's TLS; nil: the connection carries plaintext.
	secure atomic.Pointer[tlsLayer]

	reader struct { // owned by the reading goroutine
		deadline deadline
		unread   *buffer.IoBuffer
		calls    *readState // nil until the first read
	}
	writer struct { // owned by the writing goroutine
		quiet    time.Duration // how long without progress; 0: forever
		deadline deadline      // armed may belong to an earlier write
		calls    *writeState   // nil until the first write
	}

	// Handler serves the connection after it was parked; nil: the handler that the listener
	// called. A handler sets it before it hands the connection to another one for good.
	Handler Handler

	// Requests counts exchanges across all calls of ServeConn. The handler owns it.
	Requests int

	closeHooks atomic.Pointer[closeHooks] // nil: not closed, and no hook is registered

	group atomic.Pointer[ConnGroup] // the connection's group; nil: none

	addrOverride *addrOverride // nil: the socket's addresses apply
}

// closeHooks holds the functions that run when a connection is closed.
type closeHooks struct {
	mu     sync.Mutex
	closed bool      // guarded by mu
	hooks  []*func() // guarded by mu
	panics error     // guarded by mu; panics of the functions in call
}

// lastID is the ID of the newest connection.
//
//nolint:gochecknoglobals // connections are numbered in the process: handlers and listeners come and go
var lastID atomic.Uint64

// NewConn returns a Conn over nc and takes ownership of nc.
func NewConn(nc net.Conn) *Conn {
	c := &Conn{id: lastID.Add(1), nc: nc}
	switch s := nc.(type) {
	case *net.TCPConn:
		c.raw, _ = s.SyscallConn() // fails only for a nil connection
	case *net.UnixConn:
		c.raw, _ = s.SyscallConn()
	}
	return c
}

// readState returns the read state and creates it on first use. A connection that only waits has
// none.
func (c *Conn) readState() *readState {
	if c.reader.calls == nil {
		r := &readState{secure: c.secure.Load()}
		r.try, r.writeAndRead, r.peek = r.tryRead, r.tryWriteAndRead, r.tryPeek
		c.reader.calls = r
	}
	return c.reader.calls
}

func (c *Conn) writeState() *writeState {
	if c.writer.calls == nil {
		w := new(writeState)
		w.try = w.tryWrite
		c.writer.calls = w
	}
	return c.writer.calls
}

// shrink frees what a waiting connection does not need.
func (c *Conn) shrink() { c.reader.calls, c.writer.calls = nil, nil }

// ID returns the connection's number. It is unique among all connections of the process,
// downstream and upstream, and stays the same when handlers change.
func (c *Conn) ID() uint64 { return c.id }

// NetConn returns the underlying connection.
func (c *Conn) NetConn() net.Conn { return c.nc }

// Fill waits until there are bytes and appends the bytes of one read to *buf. If *buf is
// nil, Fill takes a buffer of the given size only once there is something to read, so that a
// waiting connection holds none. It may do so even when it returns an error: the caller
// always releases *buf. Fill grows a full *buf.
//
// Errors: io.EOF, os.ErrDeadlineExceeded (see SetReadDeadline), ErrInterrupted, ErrDraining
// (only while idle), or the connection's.
func (c *Conn) Fill(buf **buffer.IoBuffer, size int) (int, error) {
	for {
		if u := c.reader.unread; u != nil { // over TLS, readFailed may have read ahead
			return c.fillUnread(buf, u)
		}
		if *buf != nil && len((*buf).Tail()) == 0 {
			(*buf).Reserve(max(size, (*buf).Len()))
		}
		n, err := c.fillOnce(buf, size)
		if err == nil {
			return n, nil
		}
		if err = c.readFailed(err); err != nil {
			return 0, err
		}
	}
}

// FillOnWait is Fill that calls wait, on the same goroutine, each time it finds nothing to
// read, before it waits. The caller can then send what it held back in the hope of more.
// Connections that are not sockets cannot tell, and call wait before they read. wait must
// not read.
func (c *Conn) FillOnWait(buf **buffer.IoBuffer, size int, wait func()) (int, error) {
	if c.raw == nil {
		wait()
		return c.Fill(buf, size)
	}
	r := c.readState()
	r.onWait = wait
	n, err := c.Fill(buf, size)
	r.onWait = nil
	return n, err
}

func (c *Conn) fillOnce(buf **buffer.IoBuffer, size int) (int, error) {
	if c.raw == nil {
		if *buf == nil {
			*buf = buffer.Get(size)
		}
		n, err := c.readOnce((*buf).Tail())
		(*buf).Extend(n)
		if n > 0 {
			err = nil // the next read returns the error again
		}
		return n, err
	}
	r := c.readState()
	r.buf, r.size = *buf, size
	err := c.raw.Read(r.try)
	*buf, r.buf = r.buf, nil
	if err == nil {
		err = r.err
	}
	r.err = nil
	return r.n, err
}

func (c *Conn) fillUnread(buf **buffer.IoBuffer, u *buffer.IoBuffer) (int, error) {
	c.reader.unread = nil
	if *buf == nil {
		*buf = u
		return u.Len(), nil
	}
	n, _ := (*buf).Write(u.Bytes()) // never fails
	u.Release()
	return n, nil
}

// Unread makes the next Fill return the bytes of b before those of the socket. The
// connection owns b from now on.
func (c *Conn) Unread(b *buffer.IoBuffer) { c.reader.unread = b }

// WriteAndFill writes out and then reads as Fill does. It is for a protocol in which the
// peer only responds, on a connection from which everything was read: it saves the read that
// would find nothing, because no response can precede its request. sent is how many bytes of
// out were written: less than all only if writing failed. The read deadline does not bound
// the write.
func (c *Conn) WriteAndFill(out []byte, buf **buffer.IoBuffer, size int) (sent, n int, err error) {
	if c.raw == nil || c.secure.Load() != nil || c.reader.unread != nil || *buf != nil {
		if sent, err = c.Write(out); err != nil {
			return sent, 0, err
		}
		n, err = c.Fill(buf, size)
		return sent, n, err
	}
	r := c.readState()
	err = c.writeAndFillOnce(out, buf, size)
	sent = len(out) - len(r.out)
	rest := r.out
	r.out = nil
	switch {
	case err == nil && len(rest) == 0:
		return sent, r.n, nil
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return sent, 0, err
	}
	// The socket is full, or the read timer has fired: in both cases the rest can be
	// written.
	if len(rest) > 0 {
		m, err := c.Write(rest)
		sent += m
		if err != nil {
			return sent, 0, err
		}
	}
	n, err = c.Fill(buf, size)
	return sent, n, err
}

func (c *Conn) writeAndFillOnce(out []byte, buf **buffer.IoBuffer, size int) error {
	r := c.readState()
	r.buf, r.size, r.out = nil, size, out
	err := c.raw.Read(r.writeAndRead)
	*buf, r.buf = r.buf, nil
	if err == nil {
		err = r.err
	}
	r.err = nil
	return err
}

// Read reads as net.Conn does, under the deadline of SetReadDeadline.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		if u := c.reader.unread; u != nil { // see Fill
			n, _ := u.Read(p) // an unread buffer is never empty
			if u.Len() == 0 {
				c.reader.unread = nil
				u.Release()
			}
			return n, nil
		}
		n, err := c.readOnce(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if err = c.readFailed(err); err != nil {
			return 0, err
		}
	}
}

// readOnce waits for bytes and reads once.
func (c *Conn) readOnce(p []byte) (int, error) {
	s := c.secure.Load()
	if s == nil {
		return c.nc.Read(p)
	}
	if c.raw == nil {
		return s.read(p)
	}
	n, result := 0, error(nil)
	err := c.raw.Read(func(fd uintptr) bool {
		n, result = s.poll(fd, p)
		return !errors.Is(result, errNoData)
	})
	if err == nil {
		err = result
	}
	return n, err
}

// Write writes all of p. It fails with os.ErrDeadlineExceeded at the deadline of
// SetWriteDeadline, or without progress for the time of SetWriteTimeout, or up to twice
// that.
func (c *Conn) Write(p []byte) (int, error) {
	if s := c.secure.Load(); s != nil {
		return s.write(p)
	}
	return c.writePlain(p)
}

// writePlain writes all of p to the socket.
func (c *Conn) writePlain(p []byte) (int, error) {
	c.beginWrite()
	written, fresh := 0, false // fresh: the timer was started in this call
	for {
		n, err := c.writeOnce(p[written:])
		written += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || c.writeTimedOut(fresh && n == 0) {
			return written, err
		}
		fresh = true
	}
}

// writeOnce writes until everything is written or an error occurs.
func (c *Conn) writeOnce(p []byte) (int, error) {
	if c.raw == nil {
		return c.nc.Write(p)
	}
	w := c.writeState()
	w.out = p
	err := c.raw.Write(w.try)
	n := len(p) - len(w.out)
	w.out = nil
	if err == nil {
		err = w.err
	}
	w.err = nil
	return n, err
}

// CloseWrite ends our direction; the peer reads EOF. Over TLS it sends the alert
// close_notify (RFC 8446 6.1) and keeps the socket open. It does nothing on connections that
// cannot be half-closed.
func (c *Conn) CloseWrite() error {
	if s := c.secure.Load(); s != nil {
		if err := s.tls.CloseWrite(); err != nil {
			return err
		}
		return s.flush()
	}
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection immediately. A second call returns an error and does nothing.
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
	if panics := c.runCloseHooks(); panics != nil {
		return errors.Join(err, panics)
	}
	return err
}

// OnClose registers f to run once any goroutine has closed the connection at this side, or
// immediately if it is already closed. f must not wait. The registration outlives handlers
// that park the connection. stop removes it; it may come too late.
func (c *Conn) OnClose(f func()) (stop func()) {
	c.closeHooks.CompareAndSwap(nil, new(closeHooks))
	e := c.closeHooks.Load()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		f()
		return func() {}
	}
	call := &f
	e.hooks = append(e.hooks, call)
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.hooks = slices.DeleteFunc(e.hooks, func(other *func()) bool { return other == call })
	}
}

// runCloseHooks calls all functions registered with OnClose. The error joins their panics;
// the listener logs them once the connection is no longer served.
func (c *Conn) runCloseHooks() (panics error) {
	if c.closeHooks.Load() == nil && c.closeHooks.CompareAndSwap(nil, &closeHooks{closed: true}) {
		return nil
	}
	e := c.closeHooks.Load()
	e.mu.Lock()
	e.closed = true
	call := e.hooks
	e.hooks = nil
	e.mu.Unlock()
	for _, f := range call {
		panics = errors.Join(panics, recoverPanic(func() error { (*f)(); return nil }))
	}
	if panics != nil {
		e.mu.Lock()
		e.panics = errors.Join(e.panics, panics)
		e.mu.Unlock()
	}
	return panics
}

// closeHookPanics returns the panics of the functions registered with OnClose.
func (c *Conn) closeHookPanics() error {
	e := c.closeHooks.Load()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.panics
}

// Abort closes the connection so that the peer's reads fail instead of returning EOF, where
// that is possible: the peer must not take truncated data for complete.
func (c *Conn) Abort() error {
	if tcp, ok := c.nc.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
	return c.closeWithoutNotify()
}

// releaseUnread frees the unread bytes once nobody reads.
func (c *Conn) releaseUnread() {
	if u := c.reader.unread; u != nil {
		c.reader.unread = nil
		u.Release()
	}
}
