package zookeeper

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// maxConnectResponse bounds a server's first message. A longer one is not from ZooKeeper.
const maxConnectResponse = 4 << 10

// ZooKeeper's protocol: offsets in a request, including its length prefix, and the opcodes of the
// reads that can set a watch. The body of such a read is a path, with its length, and the watch
// flag.
const (
	opcodeStart     = 8
	pathLengthStart = 12
	pathStart       = 16

	opExists       = 3
	opGetData      = 4
	opGetChildren2 = 12 // with the stat
)

// serverConn is the net.Conn that Weft gives to the client library, github.com/go-zookeeper/zk.
// It works around two problems.
//
// It bounds the wait for the connect response. The library waits ten times as long as for other
// responses, which lets the session expire although other servers would have kept it.
//
// It sets the watch flag of reads. If the library set a watch, it would also set it again after a
// reconnect. For that it reads, without synchronization, the last transaction ID that it has
// received. If that ID belongs to a response of the new connection, the watch misses the changes
// before it. The Registry reads all nodes again after a reconnect, which sets the watches.
type serverConn struct {
	net.Conn
	address   string
	timeout   time.Duration
	onFailure func(error)
	watches   *watchSet
	connected bool // owned by the reader
}

// watchSet contains the paths whose reads set a watch. It is safe for concurrent use.
type watchSet struct {
	mu    sync.Mutex
	paths map[string]struct{} // guarded by mu
}

func newWatchSet() *watchSet { return &watchSet{paths: map[string]struct{}{}} }

// add makes the reads of path set a watch until remove.
func (s *watchSet) add(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths[path] = struct{}{}
}

func (s *watchSet) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.paths, path)
}

func (s *watchSet) contains(path []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.paths[string(path)]
	return ok
}

// SetReadDeadline sets the read deadline of the connection. Until the connect response, the
// deadline is at most timeout from now.
func (c *serverConn) SetReadDeadline(t time.Time) error {
	if !c.connected && !t.IsZero() {
		if limit := time.Now().Add(c.timeout); t.After(limit) {
			t = limit
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// Read reads from the connection. The first call reads the length of the connect response.
func (c *serverConn) Read(b []byte) (int, error) {
	if c.connected || len(b) != 4 {
		return c.Conn.Read(b)
	}
	n, err := io.ReadFull(c.Conn, b)
	if err == nil {
		if length := binary.BigEndian.Uint32(b); length > maxConnectResponse {
			err = fmt.Errorf("the connect response has %d bytes, so the server is not a ZooKeeper server", length)
		}
	}
	if err != nil {
		c.onFailure(fmt.Errorf("%s: %w", c.address, err))
		return n, err
	}
	c.connected = true
	return n, nil
}

// Write writes one message of the library to the connection. If the message reads a path of
// watches, Write sets its watch flag.
func (c *serverConn) Write(b []byte) (int, error) {
	if path, ok := readPath(b); ok && c.watches.contains(path) {
		b = bytes.Clone(b)
		b[len(b)-1] = 1
	}
	return c.Conn.Write(b)
}

// readPath returns the path of a read that can set a watch. If b is another message, ok is false.
func readPath(b []byte) (path []byte, ok bool) {
	if len(b) <= pathStart {
		return nil, false
	}
	switch binary.BigEndian.Uint32(b[opcodeStart:]) {
	case opExists, opGetData, opGetChildren2:
	default:
		return nil, false
	}
	path = b[pathStart : len(b)-1]
	return path, int(binary.BigEndian.Uint32(b[pathLengthStart:])) == len(path)
}
