package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"
)

// ErrUnsupported reports that the kernel has no netem. Link.Impair returns it only for links of
// Connect, because links of ConnectTUN do not use netem.
var ErrUnsupported = errors.New("the kernel has no netem")

// Link connects two namespaces. Each end has an IPv4 and an IPv6 address.
type Link struct {
	A, B End      // in the order of the arguments of Connect or ConnectTUN
	tun  *tunPair // nil: a veth pair
}

// End is one end of a link.
type End struct {
	Namespace *Namespace
	Device    string // device name in the namespace
	IPv4      netip.Addr
	IPv6      netip.Addr
}

// Impairment describes what happens to packets that leave one end. The zero value impairs nothing.
type Impairment struct {
	Delay time.Duration // of every packet
	Loss  float64       // fraction of lost packets, 0 to 1
	Rate  int           // bits per second; 0: no limit
}

// Connect joins two namespaces with a veth pair, so that packets pass through the complete network
// stack of the kernel. Each link is a separate subnet. Without routes a namespace reaches only the
// other ends of its links; see Route and Namespace.EnableForwarding.
func (n *Network) Connect(a, b *Namespace) *Link {
	n.t.Helper()
	l := n.link(a, b, "veth")
	n.must("ip", "link", "add", l.A.Device, "netns", a.name, "type", "veth", "peer", "name", l.B.Device, "netns", b.name)
	l.up()
	return l
}

// ConnectTUN joins two namespaces with a pair of TUN devices. This process forwards their packets,
// so Impair works without netem. The seed and the order of packets determine which packets are
// lost. A link forwards at most about ten thousand packets per
// second. ConnectTUN skips the test if the kernel has no TUN devices.
func (n *Network) ConnectTUN(a, b *Namespace, seed uint64) *Link {
	n.t.Helper()
	l := n.link(a, b, "tun")
	pair, err := newTUNPair(l.A, l.B, seed)
	if err != nil {
		n.t.Skipf("the kernel provides no TUN device: %v", err)
	}
	n.t.Cleanup(pair.close)
	l.tun = pair
	l.up()
	return l
}

// link returns the next link, without creating its devices.
func (n *Network) link(a, b *Namespace, devicePrefix string) *Link {
	n.t.Helper()
	if n.links == 250 {
		n.t.Fatal("netns: a network has at most 250 links")
	}
	n.links++
	end := func(ns *Namespace, i int) End {
		return End{
			Namespace: ns,
			Device:    fmt.Sprintf("%s%d%c", devicePrefix, n.links, 'a'+i),
			IPv4:      netip.AddrFrom4([4]byte{10, 77, byte(n.links), byte(i + 1)}),
			IPv6:      netip.MustParseAddr(fmt.Sprintf("fd77:%x::%d", n.links, i+1)),
		}
	}
	return &Link{A: end(a, 0), B: end(b, 1)}
}

// up assigns the addresses of both ends and brings the devices up.
func (l *Link) up() {
	for _, end := range []End{l.A, l.B} {
		// nodad: without duplicate address detection the address is usable immediately.
		end.Namespace.Run("ip", "addr", "add", end.IPv4.String()+"/24", "dev", end.Device)
		end.Namespace.Run("ip", "addr", "add", end.IPv6.String()+"/64", "dev", end.Device, "nodad")
		end.Namespace.Run("ip", "link", "set", end.Device, "up")
	}
}

// Route adds a route for the prefix from a namespace of the link to the other end; "0.0.0.0/0" and
// "::/0" are default routes. It fails the test on an error.
func (l *Link) Route(from *Namespace, prefix string) {
	t := from.network.t
	t.Helper()
	dst, err := netip.ParsePrefix(prefix)
	if err != nil {
		t.Fatal(err)
	}
	end, other := l.ends(from)
	via := other.IPv4
	if dst.Addr().Is6() {
		via = other.IPv6
	}
	from.Run("ip", "route", "add", dst.String(), "via", via.String(), "dev", end.Device)
}

// ends returns the end in the namespace, and the other one.
func (l *Link) ends(ns *Namespace) (end, other End) {
	switch ns {
	case l.A.Namespace:
		return l.A, l.B
	case l.B.Namespace:
		return l.B, l.A
	}
	panic("netns: the link has no end in " + ns.name)
}

// Impair replaces the impairment of packets that leave the namespace over the link; the other
// direction does not change. On a link of Connect it returns ErrUnsupported if the kernel has no
// netem. On a link of ConnectTUN it always succeeds and is safe for concurrent use.
func (l *Link) Impair(from *Namespace, impairment Impairment) error {
	end, _ := l.ends(from)
	if l.tun != nil {
		l.tun.impair(from == l.A.Namespace, impairment)
		return nil
	}
	args := []string{"netns", "exec", from.name, "tc", "qdisc", "replace", "dev", end.Device, "root", "netem", "limit", fmt.Sprint(queueSize)}
	if impairment.Delay > 0 {
		args = append(args, "delay", fmt.Sprintf("%dus", impairment.Delay.Microseconds()))
	}
	if impairment.Loss > 0 {
		args = append(args, "loss", fmt.Sprintf("%g%%", impairment.Loss*100))
	}
	if impairment.Rate > 0 {
		args = append(args, "rate", fmt.Sprintf("%dbit", impairment.Rate))
	}
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil && strings.Contains(string(out), "qdisc kind is unknown") {
		return ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("tc: %w: %s", err, out)
	}
	return nil
}
