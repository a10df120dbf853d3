package zookeeper

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConnectResponse bounds a server's first message. A longer one is not from ZooKeeper.
	maxConnectResponse = 4 << 10
	// watchRestoreTimeout bounds how long requests wait until the library has restored its watches.
	// If the library has watches, it restores them immediately after the connect response.
	watchRestoreTimeout = 250 * time.Millisecond
)

// ZooKeeper's protocol: the offsets of the session ID and of the opcode in a message, including its
// length prefix, and opcodes.
const (
	sessionIDStart = 20
	sessionIDEnd   = 28
	opcodeStart    = 8
	opcodeEnd      = 12

	opSetWatches = 101
	// -11, the only negative opcode that a client sends, closes the session; 11 is a ping, and 100
	// sends credentials.
	opPing = 11
	opAuth = 100
)

// handshakeConn is the net.Conn that Weft gives to the client library, github.com/go-zookeeper/zk.
// It works around two problems.
//
// It bounds the wait for the connect response. The library waits ten times as long as for other
// responses, which lets the session expire although other servers would have kept it.
//
// In a resumed session it holds requests back until the library has restored its watches. To
// restore them, the library sends the last transaction ID that it has seen in any response. If it
// had received another response before, the ID would be later, and the watches would miss the
// changes up to that ID.
type handshakeConn struct {
	net.Conn
	address     string
	timeout     time.Duration
	onFailure   func(error)
	connected   bool        // owned by the reader
	passThrough atomic.Bool // Write no longer holds requests back

	mu          sync.Mutex // serializes writes until passThrough
	connectSent bool       // guarded by mu; the connect request was written
	heldWrites  []byte     // guarded by mu
}

// SetReadDeadline sets the read deadline of the connection. Until the connect response, the
// deadline is at most timeout from now.
func (c *handshakeConn) SetReadDeadline(t time.Time) error {
	if !c.connected && !t.IsZero() {
		if limit := time.Now().Add(c.timeout); t.After(limit) {
			t = limit
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// Read reads from the connection. The first call reads the length of the connect response.
func (c *handshakeConn) Read(b []byte) (int, error) {
	if c.connected || len(b) != 4 {
		return c.Conn.Read(b)
	}
	n, err := io.ReadFull(c.Conn, b)
	if err == nil {
		if length := binary.BigEndian.Uint32(b); length > maxConnectResponse {
			err = fmt.Errorf("connect response of %d bytes: not a ZooKeeper server", length)
		}
	}
	if err != nil {
		c.onFailure(fmt.Errorf("%s: %w", c.address, err))
		return n, err
	}
	c.connected = true
	if !c.passThrough.Load() {
		time.AfterFunc(watchRestoreTimeout, c.flushHeld)
	}
	return n, nil
}

// Write writes to the connection. In a resumed session it holds back requests until the watches are
// restored, at most watchRestoreTimeout after the connect response.
func (c *handshakeConn) Write(b []byte) (int, error) {
	if c.passThrough.Load() {
		return c.Conn.Write(b)
	}
	// mu is held during the write, which is short and has a deadline. After passThrough, Write does
	// not take it.
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.passThrough.Load():
		return c.Conn.Write(b)
	case !c.connectSent:
		c.connectSent = true
		if len(b) < sessionIDEnd || binary.BigEndian.Uint64(b[sessionIDStart:sessionIDEnd]) == 0 {
			c.passThrough.Store(true) // a new session has no watches
		}
		return c.Conn.Write(b)
	}
	opcode := int32(0)
	if len(b) >= opcodeEnd {
		opcode = int32(binary.BigEndian.Uint32(b[opcodeStart:opcodeEnd]))
	}
	switch {
	case opcode == opSetWatches:
		c.passThrough.Store(true)
		_, err := c.Conn.Write(slices.Concat(b, c.heldWrites))
		c.heldWrites = nil
		return len(b), err
	case opcode < 0, opcode == opPing, opcode == opAuth:
		return c.Conn.Write(b)
	}
	c.heldWrites = append(c.heldWrites, b...)
	return len(b), nil
}

// flushHeld writes the held requests, because the library has no watches to restore.
func (c *handshakeConn) flushHeld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.passThrough.Load() {
		return
	}
	c.passThrough.Store(true)
	if len(c.heldWrites) == 0 {
		return
	}
	if _, err := c.Conn.Write(c.heldWrites); err != nil {
		_ = c.Conn.Close() // the reader gets the error
	}
	c.heldWrites = nil
}
