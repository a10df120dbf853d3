package netns

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair returns two namespaces and a veth link between them.
func pair(t *testing.T) (n *Network, a, b *Namespace, l *Link) {
	t.Helper()
	n = New(t)
	a, b = n.Namespace("a"), n.Namespace("b")
	return n, a, b, n.Connect(a, b)
}

// echo starts a server in the namespace and returns its port. The server echoes the first 4 bytes
// of each connection.
func echo(t *testing.T, ns *Namespace) string {
	t.Helper()
	listener, err := ns.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyN(conn, conn, 4) // the client detects a missing response
			_ = conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// ping sends "ping" to the address from the namespace, and returns the time until the response is
// complete.
func ping(ns *Namespace, addr netip.Addr, port string) (time.Duration, error) {
	start := time.Now()
	conn, err := ns.Dial("tcp", net.JoinHostPort(addr.String(), port))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(start.Add(dialTimeout))
	if _, err := conn.Write([]byte("ping")); err != nil {
		return 0, err
	}
	response, err := io.ReadAll(conn)
	if err != nil || string(response) != "ping" {
		return 0, fmt.Errorf("the response is %q, %w", response, err)
	}
	return time.Since(start), nil
}

func TestLinkCarriesIPv4AndIPv6(t *testing.T) {
	n, a, b, l := pair(t)
	isolated := n.Namespace("isolated")
	port := echo(t, b)
	for _, addr := range []netip.Addr{l.B.IPv4, l.B.IPv6} {
		if _, err := ping(a, addr, port); err != nil {
			t.Errorf("over the link to %v: %v", addr, err)
		}
		if _, err := ping(isolated, addr, port); err == nil {
			t.Errorf("a namespace without links reaches %v", addr)
		}
	}
}

func TestForwardingBetweenLinks(t *testing.T) {
	n := New(t)
	a, router, b := n.Namespace("a"), n.Namespace("router"), n.Namespace("b")
	linkA, linkB := n.Connect(a, router), n.Connect(router, b)
	router.EnableForwarding()
	for _, prefix := range []string{"0.0.0.0/0", "::/0"} {
		linkA.Route(a, prefix)
		linkB.Route(b, prefix)
	}
	port := echo(t, b)
	for _, addr := range []netip.Addr{linkB.B.IPv4, linkB.B.IPv6} {
		if _, err := ping(a, addr, port); err != nil {
			t.Errorf("through the router to %v: %v", addr, err)
		}
	}
}

func TestCommandsRunInNamespace(t *testing.T) {
	_, a, _, l := pair(t)
	out := a.Run("ip", "-o", "addr", "show")
	if !strings.Contains(out, l.A.IPv4.String()+"/24") || !strings.Contains(out, l.A.Device) {
		t.Errorf("ip addr in the namespace prints %q, want %v on %s", out, l.A.IPv4, l.A.Device)
	}
	if strings.Contains(out, "eth0") {
		t.Errorf("ip addr in the namespace shows the machine's devices: %q, want only the namespace's", out)
	}
	command := a.Command("cat")
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = stdin.Close()
	if err := command.Wait(); err != nil {
		t.Errorf("cat: %v", err)
	}
}

func TestPacketFiltersAreLocal(t *testing.T) {
	tests := []struct {
		name string
		rule func(b *Namespace, from, to string)
	}{
		{"nftables", func(b *Namespace, from, to string) {
			b.Nftables(fmt.Sprintf("table inet t { chain c { type nat hook prerouting priority dstnat; tcp dport %s redirect to :%s; }; }", from, to))
		}},
		{"iptables", func(b *Namespace, from, to string) {
			rule := fmt.Sprintf("-t nat -A PREROUTING -p tcp --dport %s -j REDIRECT --to-ports %s", from, to)
			b.IPtables(rule)
			b.IP6tables(rule)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, a, b, l := pair(t)
			port := echo(t, b)
			if _, err := ping(a, l.B.IPv4, "9"); err == nil {
				t.Fatal("port 9 responds before the rule")
			}
			test.rule(b, "9", port)
			for _, addr := range []netip.Addr{l.B.IPv4, l.B.IPv6} {
				if _, err := ping(a, addr, "9"); err != nil {
					t.Errorf("port 9 of %v, redirected: %v", addr, err)
				}
			}
		})
	}
}

func TestLinkDelay(t *testing.T) {
	tests := []struct {
		name    string
		connect func(n *Network, a, b *Namespace) *Link
	}{
		{"netem", (*Network).Connect},
		{"TUN", func(n *Network, a, b *Namespace) *Link { return n.ConnectTUN(a, b, 1) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := New(t)
			RequirePrograms(t, "tc")
			a, b := n.Namespace("a"), n.Namespace("b")
			l := test.connect(n, a, b)
			port := echo(t, b)
			const delay = 150 * time.Millisecond
			if err := l.Impair(b, Impairment{Delay: delay}); errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			for _, addr := range []netip.Addr{l.B.IPv4, l.B.IPv6} {
				// The handshake and the response are each delayed once.
				if elapsed, err := ping(a, addr, port); err != nil || elapsed < 2*delay {
					t.Errorf("with delay: %v took %v, %v, want at least %v", addr, elapsed, err, 2*delay)
				}
			}
			if err := l.Impair(b, Impairment{}); err != nil {
				t.Fatal(err)
			}
			// A busy machine also causes delays, but not every time.
			var fastest time.Duration
			for range 20 {
				elapsed, err := ping(a, l.B.IPv4, port)
				if err != nil {
					t.Fatal(err)
				}
				if fastest == 0 || elapsed < fastest {
					fastest = elapsed
				}
				if fastest < delay {
					return
				}
			}
			t.Errorf("without delay: at least %v, want less than %v", fastest, delay)
		})
	}
}

func TestLinkLosesAllPackets(t *testing.T) {
	n := New(t)
	a, b := n.Namespace("a"), n.Namespace("b")
	l := n.ConnectTUN(a, b, 1)
	sender, err := a.Dial("udp", net.JoinHostPort(l.B.IPv4.String(), "9"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }()
	receiver, err := b.ListenPacket("udp", net.JoinHostPort(l.B.IPv4.String(), "9"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = receiver.Close() }()
	if err := l.Impair(a, Impairment{Loss: 1}); err != nil {
		t.Fatal(err)
	}
	send(t, sender, "lost")
	_ = receiver.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	buffer := make([]byte, 16)
	if n, _, err := receiver.ReadFrom(buffer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("received %q, %v over a link that loses all packets, want a timeout", buffer[:n], err)
	}
	if err := l.Impair(a, Impairment{}); err != nil {
		t.Fatal(err)
	}
	send(t, sender, "found")
	_ = receiver.SetReadDeadline(time.Now().Add(dialTimeout))
	if n, _, err := receiver.ReadFrom(buffer); string(buffer[:n]) != "found" {
		t.Errorf("received %q, %v, want the datagram that was sent without loss", buffer[:n], err)
	}
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestScheduleIsDeterministic(t *testing.T) {
	const packets = 10_000
	now := time.Unix(1, 0)
	schedule := func(seed uint64) (lost []bool, last time.Time) {
		d := newDirection(nil, nil, rand.New(rand.NewPCG(seed, 1)))
		d.impairment = Impairment{Delay: time.Second, Loss: 0.3, Rate: 8_000}
		for range packets {
			due, dropped := d.schedule(100, now)
			lost = append(lost, dropped)
			if !dropped {
				last = due
			}
		}
		return lost, last
	}
	lost, last := schedule(7)
	count := 0
	for _, dropped := range lost {
		if dropped {
			count++
		}
	}
	if count < packets*28/100 || count > packets*32/100 {
		t.Errorf("lost %d of %d packets, want 30 %%", count, packets)
	}
	// A packet of 100 bytes takes 100 ms at 8 kbit/s.
	if want := now.Add(time.Duration(packets-count)*100*time.Millisecond + time.Second); !last.Equal(want) {
		t.Errorf("the last packet is due at %v, want %v", last, want)
	}
	if repeated, _ := schedule(7); fmt.Sprint(repeated) != fmt.Sprint(lost) {
		t.Error("the same seed loses different packets, want the same")
	}
	if other, _ := schedule(8); fmt.Sprint(other) == fmt.Sprint(lost) {
		t.Error("another seed loses the same packets, want others")
	}
}

func TestStaleNamespacesAreRemoved(t *testing.T) {
	var name string
	var command *exec.Cmd
	t.Run("test with a namespace", func(t *testing.T) {
		ns := New(t).Namespace("a")
		name = ns.Name()
		command = ns.Command("sh", "-c", "echo here; exec sleep 1000")
		stdout, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		// The removal of the namespace kills only processes that have entered the namespace.
		if _, err := stdout.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	})
	if command == nil || command.Process == nil {
		t.Skip("no namespaces")
	}
	if err := command.Wait(); err == nil {
		t.Error("a command kept running after the removal of its namespace, want it killed")
	}
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(directory, name))
		return err == nil
	}
	if exists(name) {
		t.Errorf("%s remains after its test, want it removed", name)
	}
	// A process that has exited.
	exited := exec.Command("true")
	if err := exited.Run(); err != nil {
		t.Fatal(err)
	}
	stale := fmt.Sprintf("%s%d-stale", prefix, exited.Process.Pid)
	if out, err := exec.Command("ip", "netns", "add", stale).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	active := New(t).Namespace("active")
	if exists(stale) {
		remove(stale)
		t.Errorf("%s remains after removeStale, want it removed", stale)
	}
	New(t)
	if !exists(active.Name()) {
		t.Errorf("removeStale removed %s, whose process runs, want it kept", active.Name())
	}
}

func TestOwnerPID(t *testing.T) {
	tests := []struct {
		name string
		pid  int
		ok   bool
	}{
		{prefix + "12-0a0b0c-weft", 12, true},
		{prefix + "12", 0, false},
		{prefix + "x-a", 0, false},
		{prefix + "-1-a", 0, false},
		{prefix + "0-a", 0, false},
		{"cni-12-a", 0, false},
	}
	for _, test := range tests {
		if pid, ok := ownerPID(test.name); ok != test.ok || ok && pid != test.pid {
			t.Errorf("ownerPID(%q) = %d, %v, want %d, %v", test.name, pid, ok, test.pid, test.ok)
		}
	}
}
