package dns

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// ttlTracker records the minimum TTL of DNS answers. The zero value has seen none. It is safe for
// concurrent use.
type ttlTracker struct{ minTTL atomic.Int64 } // minimum TTL in ns; 0: none

// observe records the minimum TTL of the answers in a DNS message, if it has any.
func (c *ttlTracker) observe(message []byte) {
	ttl, ok := minAnswerTTL(message)
	if !ok {
		return
	}
	for {
		old := c.minTTL.Load()
		if old != 0 && old <= int64(ttl) || c.minTTL.CompareAndSwap(old, int64(ttl)) {
			return
		}
	}
}

// observeTTL wraps a connection to a DNS server. The result passes the messages that it reads to c.
// When ctx ends, reads and writes fail; net.Resolver would continue to wait for the server.
func observeTTL(ctx context.Context, conn net.Conn, c *ttlTracker) net.Conn {
	unhook := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Now()) // fails only if conn is closed
	})
	if udp, ok := conn.(*net.UDPConn); ok {
		return &ttlPacketConn{UDPConn: udp, clock: c, stop: unhook}
	}
	return &ttlStreamConn{Conn: conn, clock: c, stop: unhook}
}

// ttlPacketConn is a UDP connection. It embeds *net.UDPConn because net.Resolver recognizes
// datagram connections by their type.
type ttlPacketConn struct {
	*net.UDPConn
	clock *ttlTracker
	stop  func() bool
}

func (o *ttlPacketConn) Close() error {
	o.stop()
	return o.UDPConn.Close()
}

func (o *ttlPacketConn) Read(p []byte) (int, error) {
	n, err := o.UDPConn.Read(p)
	o.clock.observe(p[:n])
	return n, err
}

// ttlStreamConn is a stream connection, on which each message follows its length (RFC 1035 4.2.2).
// net.Resolver repeats a query over TCP if the response does not fit into a datagram.
type ttlStreamConn struct {
	net.Conn
	clock   *ttlTracker
	stop    func() bool
	partial []byte // incomplete message, with its length prefix
}

func (o *ttlStreamConn) Close() error {
	o.stop()
	return o.Conn.Close()
}

func (o *ttlStreamConn) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	o.partial = append(o.partial, p[:n]...)
	for len(o.partial) >= 2 {
		end := 2 + int(binary.BigEndian.Uint16(o.partial))
		if len(o.partial) < end {
			break
		}
		o.clock.observe(o.partial[2:end])
		o.partial = o.partial[end:]
	}
	return n, err
}

// minAnswerTTL returns the minimum TTL of the answer records in a DNS message (RFC 1035 4.1). The
// result is at least 1 ns. ok is false if there are no answers or the message is malformed.
func minAnswerTTL(b []byte) (ttl time.Duration, ok bool) {
	const header, question, record = 12, 4, 10 // bytes in addition to the name
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
	least := ^uint32(0)
	for range answers {
		if rest, ok = skipName(rest, record); !ok {
			return 0, false
		}
		seconds, length := binary.BigEndian.Uint32(rest[4:]), int(binary.BigEndian.Uint16(rest[8:]))
		least = min(least, seconds)
		if rest = rest[record:]; len(rest) < length {
			return 0, false
		}
		rest = rest[length:]
	}
	if least > 1<<31-1 { // no answers, or a TTL that counts as 0 (RFC 2181 8)
		return time.Nanosecond, answers > 0
	}
	return max(time.Duration(least)*time.Second, time.Nanosecond), true
}

// skipName returns the rest of b after the name at its start. ok is false if the name is malformed
// or the rest has fewer than need bytes.
func skipName(b []byte, need int) (rest []byte, ok bool) {
	for len(b) > 0 {
		n := int(b[0])
		switch {
		case n == 0: // the root label ends the name
			return b[1:], len(b)-1 >= need
		case n&0xc0 == 0xc0: // a compression pointer also ends it (RFC 1035 4.1.4)
			return b[min(2, len(b)):], len(b)-2 >= need
		case n&0xc0 != 0 || len(b) < 1+n:
			return nil, false
		}
		b = b[1+n:]
	}
	return nil, false
}
