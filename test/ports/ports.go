// Package ports owns the TCP ports of tests whose packages run at once: each has a range of
// its own, below those that the kernel gives to outgoing connections, and beside those of
// examples, of guides and of what Dubbo opens by itself (20,000 to 22,999).
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Range is ports that one package of tests walks through, from a place of its own in each
// run. Its methods may be called at once.
type Range struct {
	first, count uint32 // immutable
	next         atomic.Uint32
}

// EndToEnd is the range of test/e2e.
func EndToEnd() *Range { return between(10_000, 20_000) }

// Dubbo is the range of test/dubbo.
func Dubbo() *Range { return between(23_000, 25_000) }

// Interop is the range of test/interop.
func Interop() *Range { return between(25_000, 27_000) }

// Chaos is the range of test/chaos.
func Chaos() *Range { return between(27_000, 32_000) }

func between(first, end uint32) *Range {
	r := &Range{first: first, count: end - first}
	r.next.Store(rand.Uint32N(r.count)) //nolint:gosec // it is no secret
	return r
}

// Free returns a port of an IP address, "" of all, on which nothing listens, and that no
// connection gets.
func (r *Range) Free(ip string) (port int, err error) {
	for range r.count {
		port = int(r.first + r.next.Add(1)%r.count)
		l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free port of %q from %d on", ip, r.first)
}
