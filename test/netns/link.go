package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"
)

// ErrUnsupported is the error of an impairment that the kernel knows nothing of: a
// Link of Connect needs its netem, one of ConnectRough does not.
var ErrUnsupported = errors.New("the kernel has no netem")

// Link is a link between two namespaces, whose ends have an address of IPv4 and one
// of IPv6 each.
type Link struct {
	A, B End   // in the order of the arguments of Connect
	wire *wire // nil: a veth pair
}

// End is one end of a link.
type End struct {
	Namespace *Namespace
	Device    string // its name in the namespace
	IPv4      netip.Addr
	IPv6      netip.Addr
}

// Impairment is what befalls the packets that leave one end. The zero value is a
// link that is in order.
type Impairment struct {
	Delay time.Duration // of every packet
	Loss  float64       // share of the packets that are lost, 0 to 1
	Rate  int           // bits a second; 0: no limit
}

// Connect joins two namespaces by a veth pair: all that the kernel does to packets
// it does to these. Each link is a subnet of its own. A namespace reaches by itself
// only what it has a link to; see Route and Namespace.Forward.
func (n *Network) Connect(a, b *Namespace) *Link {
	n.t.Helper()
	l := n.link(a, b, "veth")
	n.must("ip", "link", "add", l.A.Device, "netns", a.name, "type", "veth", "peer", "name", l.B.Device, "netns", b.name)
	l.up()
	return l
}

// ConnectRough joins two namespaces by a pair of TUN devices whose packets this
// process carries, so that they can be impaired whatever the kernel is built with.
// Which packets are lost follows from the seed and their order. It is for some ten
// thousand packets a second. It skips the test where the kernel has no TUN devices.
func (n *Network) ConnectRough(a, b *Namespace, seed uint64) *Link {
	n.t.Helper()
	l := n.link(a, b, "tun")
	wire, err := newWire(l.A, l.B, seed)
	if err != nil {
		n.t.Skipf("the kernel gives no TUN device: %v", err)
	}
	n.t.Cleanup(wire.close)
	l.wire = wire
	l.up()
	return l
}

// link returns the next link, of which there is nothing yet but names.
func (n *Network) link(a, b *Namespace, kind string) *Link {
	n.t.Helper()
	if n.links == 250 {
		n.t.Fatal("netns: a network has at most 250 links")
	}
	n.links++
	end := func(ns *Namespace, i int) End {
		return End{
			Namespace: ns,
			Device:    fmt.Sprintf("%s%d%c", kind, n.links, 'a'+i),
			IPv4:      netip.AddrFrom4([4]byte{10, 77, byte(n.links), byte(i + 1)}),
			IPv6:      netip.MustParseAddr(fmt.Sprintf("fd77:%x::%d", n.links, i+1)),
		}
	}
	return &Link{A: end(a, 0), B: end(b, 1)}
}

// up gives the ends their addresses.
func (l *Link) up() {
	for _, end := range []End{l.A, l.B} {
		// Without the detection of duplicates, during which an address cannot be used.
		end.Namespace.Run("ip", "addr", "add", end.IPv4.String()+"/24", "dev", end.Device)
		end.Namespace.Run("ip", "addr", "add", end.IPv6.String()+"/64", "dev", end.Device, "nodad")
		end.Namespace.Run("ip", "link", "set", end.Device, "up")
	}
}

// Route sends what the namespace of the end has for a prefix over this link to its
// other end; "0.0.0.0/0" and "::/0" make that the way to everything. A prefix that
// cannot be routed ends the test.
func (l *Link) Route(from *Namespace, prefix string) {
	t := from.network.t
	t.Helper()
	to, err := netip.ParsePrefix(prefix)
	if err != nil {
		t.Fatal(err)
	}
	end, other := l.ends(from)
	via := other.IPv4
	if to.Addr().Is6() {
		via = other.IPv6
	}
	from.Run("ip", "route", "add", to.String(), "via", via.String(), "dev", end.Device)
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

// Impair makes the packets that leave the namespace over the link suffer from now
// on, in place of what they suffered before; the other direction stays as it was.
// On a link of Connect the error is ErrUnsupported if the kernel has no netem; on
// one of ConnectRough there is none, and any goroutine may call it.
func (l *Link) Impair(from *Namespace, how Impairment) error {
	end, _ := l.ends(from)
	if l.wire != nil {
		l.wire.impair(from == l.A.Namespace, how)
		return nil
	}
	args := []string{"netns", "exec", from.name, "tc", "qdisc", "replace", "dev", end.Device, "root", "netem", "limit", fmt.Sprint(queue)}
	if how.Delay > 0 {
		args = append(args, "delay", fmt.Sprintf("%dus", how.Delay.Microseconds()))
	}
	if how.Loss > 0 {
		args = append(args, "loss", fmt.Sprintf("%g%%", how.Loss*100))
	}
	if how.Rate > 0 {
		args = append(args, "rate", fmt.Sprintf("%dbit", how.Rate))
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
