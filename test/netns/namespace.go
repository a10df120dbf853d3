package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout is how long Dial waits for a connection.
const dialTimeout = 10 * time.Second

// Namespace is one host of a Network. Do, Listen, ListenPacket, Dial and
// DialContext may be called by any goroutine; what reports to the test, by the
// test's own.
type Namespace struct {
	network *Network
	name    string
	file    *os.File // of the namespace
}

// Name returns the name by which ip(8) knows the namespace.
func (ns *Namespace) Name() string { return ns.name }

// Do calls f on a thread that is in the namespace, and returns what f returns.
// Sockets that f makes stay in the namespace, whoever uses them later. A goroutine
// that f starts is not in the namespace; so f must not resolve names.
func (ns *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends, and what /proc/self tells is of its network.
			err := ns.Do(f) // on another one, as this is taken
			runtime.UnlockOSThread()
			done <- err
			return
		}
		if err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the namespace %s: %w", ns.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Listen is net.Listen in the namespace. The address has an IP address or none.
func (ns *Namespace) Listen(network, address string) (net.Listener, error) {
	return ns.ListenConfig(&net.ListenConfig{}, network, address)
}

// ListenConfig is the Listen of config in the namespace: for options of the socket,
// as IP_TRANSPARENT.
func (ns *Namespace) ListenConfig(config *net.ListenConfig, network, address string) (listener net.Listener, err error) {
	err = ns.Do(func() error {
		listener, err = config.Listen(context.Background(), network, address)
		return err
	})
	return listener, err
}

// ListenPacket is net.ListenPacket in the namespace. The address has an IP address
// or none.
func (ns *Namespace) ListenPacket(network, address string) (conn net.PacketConn, err error) {
	err = ns.Do(func() error {
		var config net.ListenConfig
		conn, err = config.ListenPacket(context.Background(), network, address)
		return err
	})
	return conn, err
}

// Dial is DialContext with 10 seconds to succeed.
func (ns *Namespace) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return ns.DialContext(ctx, network, address)
}

// DialContext is the DialContext of a net.Dialer in the namespace. The address has
// an IP address. It fits the DialContext of http.Transport.
func (ns *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = ns.Do(func() error {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Command returns a command that will run in the namespace, to be started by the
// caller; its process is the program itself. It is killed with the namespace, of which
// the next test sweeps what this one left. (A signal of the parent's death would come when
// the thread ends that has started it.)
func (ns *Namespace) Command(program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", ns.name, program}, args...)...)
}

// Run runs a program in the namespace to its end and returns what it wrote to both
// outputs. If it fails the test ends.
func (ns *Namespace) Run(program string, args ...string) string {
	ns.network.t.Helper()
	return ns.feed("", program, args...)
}

// feed is Run with an input.
func (ns *Namespace) feed(input, program string, args ...string) string {
	ns.network.t.Helper()
	command := exec.Command("ip", append([]string{"netns", "exec", ns.name, program}, args...)...)
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		ns.network.t.Fatalf("%s: %s %s: %v: %s%s", ns.name, program, strings.Join(args, " "), err, out, input)
	}
	return string(out)
}

// Sysctl sets a parameter of the namespace, as "net.ipv4.ip_forward" to "1". If
// the kernel refuses, the test ends.
func (ns *Namespace) Sysctl(name, value string) {
	ns.network.t.Helper()
	file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	if err := ns.Do(func() error { return os.WriteFile(file, []byte(value), 0) }); err != nil {
		ns.network.t.Fatal(err)
	}
}

// Forward makes the namespace a router between its links, of IPv4 and IPv6.
func (ns *Namespace) Forward() {
	ns.network.t.Helper()
	ns.Sysctl("net.ipv4.ip_forward", "1")
	ns.Sysctl("net.ipv6.conf.all.forwarding", "1")
}

// Nftables loads a ruleset, in the language of nft(8), into the namespace in
// addition to what is there. It skips the test where nft is not installed; a
// ruleset that the kernel refuses ends the test.
func (ns *Namespace) Nftables(ruleset string) {
	ns.network.t.Helper()
	Need(ns.network.t, "nft")
	ns.feed(ruleset, "nft", "-f", "-")
}

// IPtables runs iptables(8) with the arguments, as those of "-t nat -A PREROUTING
// -p tcp -j REDIRECT --to-ports 1", in the namespace. It skips the test where
// iptables is not installed; a rule that the kernel refuses ends the test.
func (ns *Namespace) IPtables(args string) {
	ns.network.t.Helper()
	ns.iptables("iptables", args)
}

// IP6tables is IPtables for IPv6.
func (ns *Namespace) IP6tables(args string) {
	ns.network.t.Helper()
	ns.iptables("ip6tables", args)
}

func (ns *Namespace) iptables(program, args string) {
	ns.network.t.Helper()
	Need(ns.network.t, program)
	// Whoever else holds the lock of iptables holds it for a moment.
	ns.Run(program, append([]string{"-w", "10"}, strings.Fields(args)...)...)
}
