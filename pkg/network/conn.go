// Package network accepts and dials connections. It waits for bytes without holding a buffer,
// moves deadlines without a timer operation per request, and closes connections without losing
// written bytes.
package network

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Handler serves connections. ServeConn returns when it is done with conn, and its caller closes
// conn. When ctx, the context of Listener.Serve, ends, the connection must end immediately.
// Conn.Draining returns true when the connection must end after its current exchange.
//
// A handler may return ErrPark when the connection is idle: the listener waits for bytes on a new
// goroutine with a small stack, and then calls ServeConn again.
type Handler interface {
	ServeConn(ctx context.Context, conn *Conn) error
}

// ClientFirstHandler is a Handler of a protocol in which the client sends first. The listener calls
// ServeConn only when bytes have arrived, so that the goroutine of a silent connection keeps its
// small initial stack.
type ClientFirstHandler interface {
	Handler
	// IdleTimeout returns how long a new connection may be silent; 0: forever.
	IdleTimeout() time.Duration
}

// Errors of Conn and of handlers, in addition to those of package net.
var (
	// ErrInterrupted means that Interrupt was called.
	ErrInterrupted = errors.New("network: read interrupted")
	// ErrDraining means that the connection is draining and idle, and no byte of another exchange
	// has arrived.
	ErrDraining = errors.New("network: draining")
	// ErrPark, returned by a handler, makes the listener wait for bytes and then call the handler
	// again.
	ErrPark = errors.New("network: park the idle connection")
)

// Conn is a connection with three features that a proxy needs and net.Conn lacks: reads that take a
// buffer only once there is something to read, deadlines that are checked against the clock only
// when a timer fires, and a way to tell an idle reader from a busy one.
//
// One goroutine reads and one writes at a time. Any goroutine may call Interrupt, Drain and Close.
// The comment of connState describes the lifecycle. These files contain most of the methods:
//
//	conn_read.go, peek.go      reading and waiting
//	conn_write.go              writing; write_queue.go gathers the frames of many writers
//	deadline.go                deadlines of both directions
//	drain.go                   idle, draining, interrupted: the methods that change connState
//	conn_close.go              closing
//	conn_addr.go, handshake.go addresses, TLS
type Conn struct {
	id    uint64 // immutable
	nc    net.Conn
	raw   syscall.RawConn // of the socket; nil: nc is not a socket
	state atomicConnState

	// CloseReason is why the connection ends. The handler sets it before it returns for the last
	// time. The listener sets it if the connection ends while parked or the handler panics.
	CloseReason CloseReason

	// secure is the connection's TLS; nil: the connection carries plaintext.
	secure atomic.Pointer[tlsLayer]

	reader struct { // owned by the reading goroutine
		deadline deadline
		unread   unreadBytes
		state    *readState // nil: not created yet, or freed by shrink
	}
	writer struct { // owned by the writing goroutine
		timer writeTimer
		// state is nil if it was not created yet, or was freed by shrink. It is atomic because the
		// connection may be parked, and so shrunk, while the goroutine of a WriteQueue writes.
		state atomic.Pointer[writeState]
	}

	// Handler serves the connection after it was parked; nil: the handler that the listener called.
	// A handler sets it before it passes the connection to another handler permanently.
	Handler Handler

	// Requests counts exchanges across all calls of ServeConn. The handler owns it.
	Requests int

	// writeQueue is the newest WriteQueue of the connection; nil: none. NewWriteQueue sets it.
	writeQueue *WriteQueue

	closeHooks atomic.Pointer[closeHooks] // nil: not closed, and no hook is registered

	group atomic.Pointer[ConnGroup] // the connection's group; nil: none

	addrOverride *addrOverride // nil: the socket's addresses apply
}

// lastID is the ID of the newest Conn.
//
//nolint:gochecknoglobals // IDs are unique in the process, across listeners and handlers
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

// shrink frees the read and write state. A connection that waits needs neither, except that waiting
// over TLS needs the read state.
func (c *Conn) shrink() {
	c.reader.state = nil
	c.writer.state.Store(nil)
}

// ID returns the connection's number. It is unique among all connections of the process, downstream
// and upstream, and stays the same when handlers change.
func (c *Conn) ID() uint64 { return c.id }

// NetConn returns the underlying connection.
func (c *Conn) NetConn() net.Conn { return c.nc }
