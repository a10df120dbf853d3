// Package network owns connections: accepting, dialling, waiting for bytes
// without holding a buffer, deadlines that cost nothing per request, and
// closing without losing what was written.
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

// Handler serves one connection. It returns when it is done with conn, which
// the caller then closes. ctx ends when the connection must end at once; a
// graceful end is asked for by Conn.Draining.
//
// A handler may return ErrPark when the connection is idle: the listener waits
// for bytes on a fresh, small stack and calls ServeConn again.
type Handler interface {
	ServeConn(ctx context.Context, conn *Conn) error
}

// ClientFirstHandler is a Handler of a protocol in which the peer speaks first: the
// listener calls ServeConn once there are bytes, so that a connection which says
// nothing costs no more than its smallest stack.
type ClientFirstHandler interface {
	Handler
	// IdleTimeout is how long a connection may say nothing; 0: for ever.
	IdleTimeout() time.Duration
}

// Errors that Conn's waiting methods return beside those of package net.
var (
	// ErrInterrupted: Interrupt was called.
	ErrInterrupted = errors.New("network: read interrupted")
	// ErrDraining: the connection is idle, Drain was called, and no byte of
	// another exchange has arrived.
	ErrDraining = errors.New("network: draining")
	// ErrPark asks the listener to wait in the handler's stead.
	ErrPark = errors.New("network: park the idle connection")
)

// States of a Conn, as bits.
const (
	stateIdle           = 1 << iota // its reader waits between exchanges
	stateDraining                   // it is to end after the exchange that it is in
	stateInterrupted                // its reader is to return
	stateDrainAfterNext             // like draining, but an idle one waits for one more exchange
	stateEnding                     // its time to drain is nearly over
	stateForceClosed                // it was draining and did not end in time
	stateFresh                      // a listener has it, and it has had no exchange yet
	stateAwaited                    // if it is fresh, its first exchange is waited for instead of ending it
)

// Conn is a connection with the three things that a proxy needs and net.Conn
// lacks: reads that take a buffer only once there is something to read,
// deadlines that are checked against the clock only when a timer fires, and
// a way to tell an idle reader from a busy one.
//
// One goroutine reads and one writes at a time. Interrupt, Drain and Close may
// be called from any.
type Conn struct {
	id    uint64 // immutable
	nc    net.Conn
	raw   syscall.RawConn // of the socket; nil: it is none
	state atomic.Uint32

	// CloseReason is why the connection ends; the handler's, which sets it before it
	// returns for good.
	CloseReason CloseReason

	// secure is the connection's TLS; nil: what is written is what is on the wire.
	secure atomic.Pointer[tlsLayer]

	reader struct { // owned by the reading goroutine
		deadline deadline
		unread   *buffer.IoBuffer
		calls    *readCalls // nil until the first read
	}
	writer struct { // owned by the writing goroutine
		quiet    time.Duration // how long without progress; 0: for ever
		deadline deadline      // armed may have been for an earlier write
		calls    *writeCalls   // nil until the first write
	}

	// Handler serves the connection after it was parked, instead of the handler
	// that the listener called; nil: that one. A handler sets it before it hands
	// the connection to another for good.
	Handler Handler

	// Requests counts exchanges over all times that a handler served the
	// connection; the handler's.
	Requests int

	closeHooks atomic.Pointer[ends] // nil: nobody wants to know of the end

	group atomic.Pointer[ConnGroup] // of which it is one; nil: of none

	addrOverride *announced // set by Announce; nil: the socket's addresses are meant
}

// ends is what is to be called when a connection is closed.
type ends struct {
	mu     sync.Mutex
	closed bool      // guarded by mu
	call   []*func() // guarded by mu
	panics error     // guarded by mu; of what was called
}

// lastID is the ID of the newest connection.
//
//nolint:gochecknoglobals // connections are numbered in the process: handlers and listeners come and go
var lastID atomic.Uint64

// NewConn returns a Conn over nc, which it owns from now on.
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

// reads returns what reading needs beside the socket. A connection that only
// waits has none of it.
func (c *Conn) reads() *readCalls {
	if c.reader.calls == nil {
		r := &readCalls{secure: c.secure.Load()}
		r.try, r.call, r.peek = r.tryRead, r.tryCall, r.tryPeek
		c.reader.calls = r
	}
	return c.reader.calls
}

func (c *Conn) writes() *writeCalls {
	if c.writer.calls == nil {
		w := new(writeCalls)
		w.try = w.tryWrite
		c.writer.calls = w
	}
	return c.writer.calls
}

// shrink drops what a connection that waits does not need.
func (c *Conn) shrink() { c.reader.calls, c.writer.calls = nil, nil }

// ID returns the connection's number: no other connection of the process, downstream or
// upstream, has or had it, and it stays the same while handlers change.
func (c *Conn) ID() uint64 { return c.id }

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.nc }

// Fill waits until there are bytes and appends what one read gives to *buf. If
// *buf is nil, it takes a buffer of the size given only once there is
// something to read, so that a waiting connection holds none; it may do so even
// when it then returns an error: the caller releases *buf in any case. A full
// *buf is grown.
//
// Errors: io.EOF, os.ErrDeadlineExceeded (see SetReadDeadline), ErrInterrupted,
// ErrDraining (only while idle), or the connection's.
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

// FillOnWait is Fill that calls wait, on the same goroutine, each time it finds
// nothing to read, before it waits: the moment to send what was held back in the
// hope of more. Connections that are not plain sockets cannot tell, and call it
// before they read. wait must not read.
func (c *Conn) FillOnWait(buf **buffer.IoBuffer, size int, wait func()) (int, error) {
	if c.raw == nil {
		wait()
		return c.Fill(buf, size)
	}
	r := c.reads()
	r.wait = wait
	n, err := c.Fill(buf, size)
	r.wait = nil
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
			err = nil // an error comes again with the next read
		}
		return n, err
	}
	r := c.reads()
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

// Unread makes the next Fill return the bytes of b before any of the socket.
// It owns b from now on.
func (c *Conn) Unread(b *buffer.IoBuffer) { c.reader.unread = b }

// WriteAndFill writes out and then reads as Fill does. For a protocol in which the peer
// speaks only when asked, on a connection from which everything was read: it
// saves the read that would find nothing, because an answer cannot be there
// before the question. sent is how many bytes of out were written: less than all
// only if writing failed. The read deadline does not bound the writing.
func (c *Conn) WriteAndFill(out []byte, buf **buffer.IoBuffer, size int) (sent, n int, err error) {
	if c.raw == nil || c.secure.Load() != nil || c.reader.unread != nil || *buf != nil {
		if sent, err = c.Write(out); err != nil {
			return sent, 0, err
		}
		n, err = c.Fill(buf, size)
		return sent, n, err
	}
	r := c.reads()
	err = c.callOnce(out, buf, size)
	sent = len(out) - len(r.out)
	rest := r.out
	r.out = nil
	switch {
	case err == nil && len(rest) == 0:
		return sent, r.n, nil
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return sent, 0, err
	}
	// The socket is full, or the reading direction's timer has fired: neither
	// keeps the rest from being written.
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

func (c *Conn) callOnce(out []byte, buf **buffer.IoBuffer, size int) error {
	r := c.reads()
	r.buf, r.size, r.out = nil, size, out
	err := c.raw.Read(r.call)
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

// readOnce reads what there is, and waits for it.
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
		return !errors.Is(result, errNothing)
	})
	if err == nil {
		err = result
	}
	return n, err
}

// Write writes all of p. Without progress for the time of SetWriteTimeout, or
// up to twice that, or at the deadline of SetWriteDeadline, it fails with
// os.ErrDeadlineExceeded.
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
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || c.writeIsLate(fresh && n == 0) {
			return written, err
		}
		fresh = true
	}
}

// writeOnce writes until everything is written or something is in the way.
func (c *Conn) writeOnce(p []byte) (int, error) {
	if c.raw == nil {
		return c.nc.Write(p)
	}
	w := c.writes()
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

// CloseWrite ends our direction; the peer reads EOF. Over TLS that is an alert,
// close_notify (RFC 8446 6.1), and the socket stays open. Connections that cannot
// be half-closed are left as they are.
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

// Close closes the connection at once. A second call returns an error and does
// nothing.
func (c *Conn) Close() error {
	if s := c.secure.Load(); s != nil {
		s.sendCloseNotify()
	}
	return c.close()
}

// closeWithoutNotify closes the connection in the middle of something: over TLS the peer is not
// told that nothing is missing (close_notify, RFC 8446 6.1).
func (c *Conn) closeWithoutNotify() error {
	if s := c.secure.Load(); s != nil {
		s.drop()
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

// OnClose has f called once the connection is closed at this side, by whoever
// closes it; at once if it is closed already. f must not wait. It outlives handlers
// that park the connection. stop takes that back; it may come too late.
func (c *Conn) OnClose(f func()) (stop func()) {
	c.closeHooks.CompareAndSwap(nil, new(ends))
	e := c.closeHooks.Load()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		f()
		return func() {}
	}
	call := &f
	e.call = append(e.call, call)
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.call = slices.DeleteFunc(e.call, func(other *func()) bool { return other == call })
	}
}

// runCloseHooks calls what OnClose was given, all of it. The error is the panics of those; the
// listener logs them once the connection is served no more.
func (c *Conn) runCloseHooks() (panics error) {
	if c.closeHooks.Load() == nil && c.closeHooks.CompareAndSwap(nil, &ends{closed: true}) {
		return nil
	}
	e := c.closeHooks.Load()
	e.mu.Lock()
	e.closed = true
	call := e.call
	e.call = nil
	e.mu.Unlock()
	for _, f := range call {
		panics = errors.Join(panics, contain(func() error { (*f)(); return nil }))
	}
	if panics != nil {
		e.mu.Lock()
		e.panics = errors.Join(e.panics, panics)
		e.mu.Unlock()
	}
	return panics
}

// endPanics returns the panics of what OnClose was given.
func (c *Conn) endPanics() error {
	e := c.closeHooks.Load()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.panics
}

// Abort closes the connection so that the peer's reads fail instead of finding
// an end, where that can be: what was written must not pass for the whole.
func (c *Conn) Abort() error {
	if tcp, ok := c.nc.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
	return c.closeWithoutNotify()
}

// release gives back what the connection still holds, once nobody reads.
func (c *Conn) release() {
	if u := c.reader.unread; u != nil {
		c.reader.unread = nil
		u.Release()
	}
}
