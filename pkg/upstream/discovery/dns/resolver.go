package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// System returns a resolver that asks the given servers (ip:port), or without
// any those of the system. Hosts files and search domains are the system's in
// either case.
func System(servers []string) Resolver {
	return &system{servers: servers}
}

// system is a Resolver by net.Resolver.
type system struct {
	servers []string // immutable; empty: the system's
	good    atomic.Int64
}

// serverTimeout is how long one of several servers may take before the next is
// asked.
const serverTimeout = 3 * time.Second

// Lookup is Resolver's. Servers are asked in order, beginning with the one that
// answered last; that a name does not exist is an answer.
func (s *system) Lookup(ctx context.Context, family Family, name string) ([]netip.Addr, time.Duration, error) {
	if len(s.servers) == 0 {
		return lookup(ctx, "", family, name)
	}
	first := s.good.Load()
	var err error
	for i := range int64(len(s.servers)) {
		turn := (first + i) % int64(len(s.servers))
		var addresses []netip.Addr
		var ttl time.Duration
		addresses, ttl, err = s.ask(ctx, s.servers[turn], family, name)
		var e *net.DNSError
		if err == nil || errors.As(err, &e) && e.IsNotFound {
			s.good.Store(turn)
			return addresses, ttl, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, 0, err
}

func (s *system) ask(ctx context.Context, server string, family Family, name string) ([]netip.Addr, time.Duration, error) {
	if len(s.servers) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, serverTimeout)
		defer cancel()
	}
	return lookup(ctx, server, family, name)
}

// lookup asks one server, "" for those of the system. net.Resolver does not tell
// how long an answer holds: that is read from the messages as they pass.
func lookup(ctx context.Context, server string, family Family, name string) ([]netip.Addr, time.Duration, error) {
	var ttl atomic.Int64 // ns; the least seen
	r := net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if server != "" {
				address = server
			}
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, address)
			if udp, ok := conn.(*net.UDPConn); ok {
				return observe(ctx, udp, &ttl), nil
			}
			return conn, err
		},
	}
	addresses, err := r.LookupNetIP(ctx, family.network(), name)
	if err != nil {
		var e *net.DNSError
		if server != "" && errors.As(err, &e) {
			e.Server = server // it knows of the system's only
		}
		return nil, 0, err
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	return family.choose(addresses), time.Duration(ttl.Load()), nil
}

// network is the family as package net spells it.
func (f Family) network() string {
	switch f {
	case V4Only:
		return "ip4"
	case V6Only:
		return "ip6"
	default:
		return "ip"
	}
}

// choose returns the addresses that the family wants of those found.
func (f Family) choose(addresses []netip.Addr) []netip.Addr {
	if f != Auto {
		return addresses
	}
	var v4 []netip.Addr
	for _, a := range addresses {
		if a.Is4() {
			v4 = append(v4, a)
		}
	}
	if len(v4) > 0 {
		return v4
	}
	return addresses
}

// observedConn is a connection to a server whose answers are looked into. Answers
// that are too long for a datagram come again over TCP, where nobody looks: what
// came of them as a datagram has told enough.
type observedConn struct {
	*net.UDPConn
	ttl    *atomic.Int64
	unhook func() bool
}

// observe also makes conn end with ctx: net.Resolver itself would go on waiting
// for the server after its caller has given up.
func observe(ctx context.Context, conn *net.UDPConn, ttl *atomic.Int64) *observedConn {
	unhook := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Now()) // fails if it was closed, which is as good
	})
	return &observedConn{UDPConn: conn, ttl: ttl, unhook: unhook}
}

func (c *observedConn) Close() error {
	c.unhook()
	return c.UDPConn.Close()
}

func (c *observedConn) Read(p []byte) (int, error) {
	n, err := c.UDPConn.Read(p)
	if ttl, ok := leastAnswerTTL(p[:n]); ok {
		for {
			old := c.ttl.Load()
			if old != 0 && old <= int64(ttl) || c.ttl.CompareAndSwap(old, int64(ttl)) {
				break
			}
		}
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
