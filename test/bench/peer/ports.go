package peer

import (
	"fmt"
	"net"
	"net/netip"
	"os"
)

// The assigned ports are below the kernel's ephemeral ports, so no outgoing connection uses an
// assigned port.
const (
	firstPort = 20000
	lastPort  = 32000
)

// Ports assigns ports of 127.0.0.1, each at most once until it wraps around. It is not safe for
// concurrent use.
type Ports struct{ next int }

// NewPorts returns Ports that start at a position derived from the process id, so that two runs can
// coexist.
func NewPorts() *Ports {
	return &Ports{next: firstPort + os.Getpid()*16%(lastPort-firstPort)}
}

// Take returns n ports without a listener.
func (p *Ports) Take(n int) ([]netip.AddrPort, error) {
	var taken []netip.AddrPort
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
		if taken = append(taken, address); len(taken) == n {
			return taken, nil
		}
	}
	return nil, fmt.Errorf("%d of %d ports are free between %d and %d", len(taken), n, firstPort, lastPort)
}
