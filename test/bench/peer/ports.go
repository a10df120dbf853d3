package peer

import (
	"fmt"
	"net"
	"net/netip"
	"os"
)

// The ports that are given out lie below those that the kernel gives to
// connections, so that none of these takes one before it is used.
const (
	firstPort = 20000
	lastPort  = 32000
)

// Ports gives out ports of 127.0.0.1, none twice. It is not safe for concurrent
// use.
type Ports struct{ next int }

// NewPorts returns Ports that begin at another place in every process, for two
// runs at one time.
func NewPorts() *Ports {
	return &Ports{next: firstPort + os.Getpid()*16%(lastPort-firstPort)}
}

// Take returns n ports that nobody listens at.
func (p *Ports) Take(n int) ([]netip.AddrPort, error) {
	var free []netip.AddrPort
	for range lastPort - firstPort {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(p.next))
		if p.next++; p.next == lastPort {
			p.next = firstPort
		}
		listener, err := net.Listen("tcp", address.String())
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return nil, err
		}
		if free = append(free, address); len(free) == n {
			return free, nil
		}
	}
	return nil, fmt.Errorf("%d of %d ports are free between %d and %d", len(free), n, firstPort, lastPort)
}
