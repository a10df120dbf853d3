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
	// watchRestoreTimeout bounds how long requests are held back until the library has restored its
	// watches. The library restores them immediately, or has none.
	watchRestoreTimeout = 250 * time.Millisecond
)

// ZooKeeper's protocol: the offsets of the session ID and of the opcode in a message, including its
// length prefix, and opcodes.
const (
	sessionAt = 20
	sessionTo = 28
	askedAt   = 8
	askedTo   = 12

	setWatches = 101
	// Negative opcodes close the session; 11 is a ping, and 100 sends credentials.
	ping     = 11
	identify = 100
)

// handshakeConn is the connection below the library. It works around two problems.
//
// It bounds the wait for the connect response. The library waits ten times as long as for other
// responses, which lets the session expire although other servers would have kept it.
//
// In a resumed session it lets the library restore its watches before other requests. When the
// library restores them, it sends the last transaction ID that it has seen in any response. A
// response before that would advance the ID, and the watches would miss the changes in between.
type handshakeConn struct {
	net.Conn
	address   string
	patience  time.Duration
	failed    func(error)
	connected bool        // owned by the reader
	open      atomic.Bool // requests are no longer held back

	mu     sync.Mutex // serializes writes until open
	opened bool       // guarded by mu; the connect request was written
	held   []byte     // guarded by mu
}

// SetReadDeadline sets the deadline of the connection, at most patience ahead until the connect
// response.
func (l *handshakeConn) SetReadDeadline(t time.Time) error {
	if !l.connected && !t.IsZero() {
		if most := time.Now().Add(l.patience); t.After(most) {
			t = most
		}
	}
	return l.Conn.SetReadDeadline(t)
}

// Read reads from the connection. The first call reads the length of the connect response.
func (l *handshakeConn) Read(b []byte) (int, error) {
	if l.connected || len(b) != 4 {
		return l.Conn.Read(b)
	}
	n, err := io.ReadFull(l.Conn, b)
	if err == nil {
		if length := binary.BigEndian.Uint32(b); length > maxConnectResponse {
			err = fmt.Errorf("connect response of %d bytes: not a ZooKeeper server", length)
		}
	}
	if err != nil {
		l.failed(fmt.Errorf("%s: %w", l.address, err))
		return n, err
	}
	l.connected = true
	if !l.open.Load() {
		time.AfterFunc(watchRestoreTimeout, l.release)
	}
	return n, nil
}

// Write writes to the connection. In a resumed session it holds back requests until the watches are
// restored, at most watchRestoreTimeout after the connect response.
func (l *handshakeConn) Write(b []byte) (int, error) {
	if l.open.Load() {
		return l.Conn.Write(b)
	}
	l.mu.Lock() // held during the write, which is short, has a deadline, and happens once or twice
	defer l.mu.Unlock()
	switch {
	case l.open.Load():
		return l.Conn.Write(b)
	case !l.opened:
		l.opened = true
		if len(b) < sessionTo || binary.BigEndian.Uint64(b[sessionAt:sessionTo]) == 0 {
			l.open.Store(true) // a new session has no watches
		}
		return l.Conn.Write(b)
	}
	asked := int32(0)
	if len(b) >= askedTo {
		asked = int32(binary.BigEndian.Uint32(b[askedAt:askedTo]))
	}
	switch {
	case asked == setWatches:
		l.open.Store(true)
		_, err := l.Conn.Write(slices.Concat(b, l.held))
		l.held = nil
		return len(b), err
	case asked < 0, asked == ping, asked == identify:
		return l.Conn.Write(b)
	}
	l.held = append(l.held, b...)
	return len(b), nil
}

// release writes the held requests: the library has no watches.
func (l *handshakeConn) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Load() {
		return
	}
	l.open.Store(true)
	if len(l.held) == 0 {
		return
	}
	if _, err := l.Conn.Write(l.held); err != nil {
		_ = l.Conn.Close() // the reader gets the error
	}
	l.held = nil
}
