// Package ports assigns TCP ports to test packages that run concurrently. Each package has a
// separate range below the kernel's ephemeral ports. No range contains the ports 20,000 to 22,999,
// because examples, guides and Dubbo itself use some of them.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Range is the port range of one test package. Free tries the ports in order, from a random start
// in each process. A Range is safe for concurrent use.
type Range struct {
	first, count uint32 // immutable
	next         atomic.Uint32
}

// EndToEnd returns the range of test/e2e.
func EndToEnd() *Range { return newRange(10_000, 20_000) }

// Dubbo returns the range of test/dubbo.
func Dubbo() *Range { return newRange(23_000, 25_000) }

// Interop returns the range of test/interop.
func Interop() *Range { return newRange(25_000, 27_000) }

// Chaos returns the range of test/chaos.
func Chaos() *Range { return newRange(27_000, 31_000) }

// Corpora returns the range of test/corpora.
func Corpora() *Range { return newRange(31_000, 32_000) }

// Envoy returns the range of test/envoy, which needs some 500 ports. The ports have five digits that
// no case contains.
func Envoy() *Range { return newRange(32_000, 32_768) }

func newRange(first, end uint32) *Range {
	r := &Range{first: first, count: end - first}
	r.next.Store(rand.Uint32N(r.count)) //nolint:gosec // not a secret
	return r
}

// Free returns a port without a listener on the IP address; "" means all addresses. The kernel does
// not use the port for outgoing connections.
func (r *Range) Free(ip string) (port int, err error) {
	for range r.count {
		port = int(r.first + r.next.Add(1)%r.count)
		l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free port on %q from %d", ip, r.first)
}
