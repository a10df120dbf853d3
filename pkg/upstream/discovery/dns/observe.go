package dns

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// clock keeps the least time to live of the answers that passed. The zero value has
// seen none.
type clock struct{ least atomic.Int64 } // ns; 0: none

// see takes note of the answers of a message, if it has any.
func (c *clock) see(message []byte) {
	ttl, ok := leastAnswerTTL(message)
	if !ok {
		return
	}
	for {
		old := c.least.Load()
		if old != 0 && old <= int64(ttl) || c.least.CompareAndSwap(old, int64(ttl)) {
			return
		}
	}
}

// observe returns a connection to a server whose answers are looked into. It also
// makes conn end with ctx: net.Resolver itself would go on waiting for the server
// after its caller has given up.
func observe(ctx context.Context, conn net.Conn, c *clock) net.Conn {
	unhook := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Now()) // fails if it was closed, which is as good
	})
	if udp, ok := conn.(*net.UDPConn); ok {
		return &observedDatagrams{UDPConn: udp, clock: c, unhook: unhook}
	}
	return &observedStream{Conn: conn, clock: c, unhook: unhook}
}

// observedDatagrams is a connection whose messages are datagrams: net.Resolver tells
// by its type.
type observedDatagrams struct {
	*net.UDPConn
	clock  *clock
	unhook func() bool
}

func (o *observedDatagrams) Close() error {
	o.unhook()
	return o.UDPConn.Close()
}

func (o *observedDatagrams) Read(p []byte) (int, error) {
	n, err := o.UDPConn.Read(p)
	o.clock.see(p[:n])
	return n, err
}

// observedStream is a connection whose messages come one after the other, each behind
// its length (RFC 1035 4.2.2): what did not fit into a datagram is asked for again on
// one.
type observedStream struct {
	net.Conn
	clock  *clock
	unhook func() bool
	rest   []byte // of the message that has begun, with its length
}

func (o *observedStream) Close() error {
	o.unhook()
	return o.Conn.Close()
}

func (o *observedStream) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	o.rest = append(o.rest, p[:n]...)
	for len(o.rest) >= 2 {
		end := 2 + int(binary.BigEndian.Uint16(o.rest))
		if len(o.rest) < end {
			break
		}
		o.clock.see(o.rest[2:end])
		o.rest = o.rest[end:]
	}
	return n, err
}

// leastAnswerTTL returns the least time to live of the answer records in a DNS
// message (RFC 1035 4.1), at least 1 ns; ok is false if there are none or the
// message is cut short.
func leastAnswerTTL(b []byte) (ttl time.Duration, ok bool) {
	const header, question, record = 12, 4, 10 // bytes beside the name
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
	if least > 1<<31-1 { // none, or a value that RFC 2181 8 says to take as 0
		return time.Nanosecond, answers > 0
	}
	return max(time.Duration(least)*time.Second, time.Nanosecond), true
}

// skipName returns what follows the name at the start of b; ok is false if that
// is less than need bytes.
func skipName(b []byte, need int) (rest []byte, ok bool) {
	for len(b) > 0 {
		n := int(b[0])
		switch {
		case n == 0: // the root ends a name
			return b[1:], len(b)-1 >= need
		case n&0xc0 == 0xc0: // so does a pointer to another name (4.1.4)
			return b[min(2, len(b)):], len(b)-2 >= need
		case n&0xc0 != 0 || len(b) < 1+n:
			return nil, false
		}
		b = b[1+n:]
	}
	return nil, false
}
