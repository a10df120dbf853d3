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
	// maxConnectResponse bounds a server's first message. What is longer is not ZooKeeper's.
	maxConnectResponse = 4 << 10
	// watchRestoreTimeout is how long what is asked for is held back for the library to set
	// its watches again, which it does at once, or not at all if it has none.
	watchRestoreTimeout = 250 * time.Millisecond
)

// Of ZooKeeper's protocol: where a message has the session, or what it asks for, behind
// its length, and two of the things it may ask for.
const (
	sessionAt = 20
	sessionTo = 28
	askedAt   = 8
	askedTo   = 12

	setWatches = 101
	// Less than nothing is asked to close; 11 is a ping, 100 says who asks.
	ping     = 11
	identify = 100
)

// handshakeConn is the connection below the library. It does two things that the library should.
//
// It does not wait for ever for a greeting: the library waits ten times as long as for
// anything else, during which a session ends though other servers would have kept it.
//
// In a session that is resumed it lets the library set its watches first. The library
// tells the server with them which change it has seen last, and takes that from the
// answers that come meanwhile: a watch would not tell of a change between.
type handshakeConn struct {
	net.Conn
	address   string
	patience  time.Duration
	failed    func(error)
	connected bool        // owned by the reader
	open      atomic.Bool // nothing is held back, or ever will be

	mu     sync.Mutex // orders writes until open
	opened bool       // guarded by mu; the first message has left
	held   []byte     // guarded by mu
}

// SetReadDeadline is the connection's, but not past patience before the greeting.
func (l *handshakeConn) SetReadDeadline(t time.Time) error {
	if !l.connected && !t.IsZero() {
		if most := time.Now().Add(l.patience); t.After(most) {
			t = most
		}
	}
	return l.Conn.SetReadDeadline(t)
}

// Read is the connection's; the first one reads the length of the greeting.
func (l *handshakeConn) Read(b []byte) (int, error) {
	if l.connected || len(b) != 4 {
		return l.Conn.Read(b)
	}
	n, err := io.ReadFull(l.Conn, b)
	if err == nil {
		if length := binary.BigEndian.Uint32(b); length > maxConnectResponse {
			err = fmt.Errorf("greets with %d bytes: it is not ZooKeeper", length)
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

// Write is the connection's. What is asked for before the watches are set in a session
// that is resumed is held back, for watchRestoreTimeout after the greeting at most.
func (l *handshakeConn) Write(b []byte) (int, error) {
	if l.open.Load() {
		return l.Conn.Write(b)
	}
	l.mu.Lock() // over the write: it is short, has a deadline, and happens once or twice
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

// release writes what was held back: there are no watches.
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
		_ = l.Conn.Close() // the reader hears of it
	}
	l.held = nil
}
