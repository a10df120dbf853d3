package dns

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// ttlTracker records the minimum TTL of DNS answers. The zero value is ready. It is safe for
// concurrent use.
type ttlTracker struct{ minTTL atomic.Int64 } // minimum TTL in ns; 0: none

// observe records the minimum TTL of the answers in a DNS message, if it has any.
func (t *ttlTracker) observe(message []byte) {
	ttl, ok := minAnswerTTL(message)
	if !ok {
		return
	}
	for {
		old := t.minTTL.Load()
		if old != 0 && old <= int64(ttl) || t.minTTL.CompareAndSwap(old, int64(ttl)) {
			return
		}
	}
}

// observeTTL wraps a connection to a DNS server. The result passes the messages that it reads to
// tracker. When ctx ends, reads and writes fail; net.Resolver would continue to wait for the
// server.
func observeTTL(ctx context.Context, conn net.Conn, tracker *ttlTracker) net.Conn {
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Now()) // fails only if conn is closed
	})
	if udp, ok := conn.(*net.UDPConn); ok {
		return &ttlPacketConn{UDPConn: udp, tracker: tracker, stop: stop}
	}
	return &ttlStreamConn{Conn: conn, tracker: tracker, stop: stop}
}

// ttlPacketConn is a UDP connection. It embeds *net.UDPConn because net.Resolver recognizes
// datagram connections by their type.
type ttlPacketConn struct {
	*net.UDPConn
	tracker *ttlTracker
	stop    func() bool
}

func (c *ttlPacketConn) Close() error {
	c.stop()
	return c.UDPConn.Close()
}

func (c *ttlPacketConn) Read(p []byte) (int, error) {
	n, err := c.UDPConn.Read(p)
	c.tracker.observe(p[:n])
	return n, err
}

// ttlStreamConn is a stream connection, on which each message follows its length (RFC 1035 4.2.2).
// net.Resolver repeats a query over TCP if the response does not fit into a datagram.
type ttlStreamConn struct {
	net.Conn
	tracker *ttlTracker
	stop    func() bool
	partial []byte // incomplete message, with its length prefix
}

func (c *ttlStreamConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

func (c *ttlStreamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.partial = append(c.partial, p[:n]...)
	for len(c.partial) >= 2 {
		end := 2 + int(binary.BigEndian.Uint16(c.partial))
		if len(c.partial) < end {
			break
		}
		c.tracker.observe(c.partial[2:end])
		c.partial = c.partial[end:]
	}
	return n, err
}

// minAnswerTTL returns the minimum TTL of the answer records in a DNS message (RFC 1035 4.1). The
// result is at least 1 ns. ok is false if there are no answers or the message is malformed.
func minAnswerTTL(b []byte) (ttl time.Duration, ok bool) {
	const header, question, record = 12, 4, 10 // lengths in bytes, without the name
	if len(b) < header {
		return 0, false
	}
	questions, answers := binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	rest := b[header:]
	for range questions {
		if rest, ok = skipName(rest, question); !ok {
			return 0, false
		}
		rest = rest[question:]
	}
	minSeconds := ^uint32(0)
	for range answers {
		if rest, ok = skipName(rest, record); !ok {
			return 0, false
		}
		seconds, length := binary.BigEndian.Uint32(rest[4:]), int(binary.BigEndian.Uint16(rest[8:]))
		minSeconds = min(minSeconds, seconds)
		if rest = rest[record:]; len(rest) < length {
			return 0, false
		}
		rest = rest[length:]
	}
	if minSeconds > 1<<31-1 { // no answers, or a TTL that counts as 0 (RFC 2181 8)
		return time.Nanosecond, answers > 0
	}
	return max(time.Duration(minSeconds)*time.Second, time.Nanosecond), true
}

// skipName returns the rest of b after the name at its start. ok is false if the name is malformed
// or the rest has fewer than minRest bytes.
func skipName(b []byte, minRest int) (rest []byte, ok bool) {
	for len(b) > 0 {
		n := int(b[0])
		switch {
		case n == 0: // the root label ends the name
			return b[1:], len(b)-1 >= minRest
		case n&0xc0 == 0xc0: // a compression pointer also ends it (RFC 1035 4.1.4)
			return b[min(2, len(b)):], len(b)-2 >= minRest
		case n&0xc0 != 0 || len(b) < 1+n:
			return nil, false
		}
		b = b[1+n:]
	}
	return nil, false
}
