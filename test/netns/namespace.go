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

// dialTimeout is the timeout of Dial.
const dialTimeout = 10 * time.Second

// Namespace is one host of a Network. Do, Listen, ListenConfig, ListenPacket, Dial and DialContext
// are safe for concurrent use; only the test's goroutine may call the methods that fail the test.
type Namespace struct {
	network *Network
	name    string
	file    *os.File // keeps a reference to the namespace
}

// Name returns the name of the namespace in ip(8).
func (ns *Namespace) Name() string { return ns.name }

// Do calls f on a thread in the namespace and returns its result. Sockets that f creates stay in
// the namespace. Goroutines that f starts do not run in the namespace, so f must not resolve names.
func (ns *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends, and /proc/self refers to its network namespace.
			err := ns.Do(f) // uses another thread, because this thread is locked
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

// Listen is net.Listen in the namespace. A host in the address must be an IP address.
func (ns *Namespace) Listen(network, address string) (net.Listener, error) {
	return ns.ListenConfig(&net.ListenConfig{}, network, address)
}

// ListenConfig is config.Listen in the namespace, for socket options such as IP_TRANSPARENT.
func (ns *Namespace) ListenConfig(config *net.ListenConfig, network, address string) (listener net.Listener, err error) {
	err = ns.Do(func() error {
		listener, err = config.Listen(context.Background(), network, address)
		return err
	})
	return listener, err
}

// ListenPacket is net.ListenPacket in the namespace. A host in the address must be an IP address.
func (ns *Namespace) ListenPacket(network, address string) (conn net.PacketConn, err error) {
	err = ns.Do(func() error {
		var config net.ListenConfig
		conn, err = config.ListenPacket(context.Background(), network, address)
		return err
	})
	return conn, err
}

// Dial is DialContext with a timeout of 10 seconds.
func (ns *Namespace) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return ns.DialContext(ctx, network, address)
}

// DialContext is the DialContext of a net.Dialer in the namespace. The host in the address must be
// an IP address. It can be the DialContext of an http.Transport.
func (ns *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = ns.Do(func() error {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Command returns a command that runs in the namespace; the caller starts it. ip(8) executes the
// program in its own process, so signals to the command reach the program. The process is killed
// when the namespace is removed: at the end of the test, or by a later test if this one was killed.
// Command does not use Pdeathsig, which would fire when the thread that started the process ends.
func (ns *Namespace) Command(program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", ns.name, program}, args...)...)
}

// Run runs a program in the namespace and returns its stdout and stderr. It fails the test if the
// program fails.
func (ns *Namespace) Run(program string, args ...string) string {
	ns.network.t.Helper()
	return ns.runWithInput("", program, args...)
}

// runWithInput is Run with stdin.
func (ns *Namespace) runWithInput(input, program string, args ...string) string {
	ns.network.t.Helper()
	command := exec.Command("ip", append([]string{"netns", "exec", ns.name, program}, args...)...)
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		ns.network.t.Fatalf("%s: %s %s: %v: %s%s", ns.name, program, strings.Join(args, " "), err, out, input)
	}
	return string(out)
}

// Sysctl sets a kernel parameter of the namespace, for example "net.ipv4.ip_forward" to "1". It
// fails the test on an error.
func (ns *Namespace) Sysctl(name, value string) {
	ns.network.t.Helper()
	file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	if err := ns.Do(func() error { return os.WriteFile(file, []byte(value), 0) }); err != nil {
		ns.network.t.Fatal(err)
	}
}

// EnableForwarding enables forwarding of IPv4 and IPv6 between the links of the namespace.
func (ns *Namespace) EnableForwarding() {
	ns.network.t.Helper()
	ns.Sysctl("net.ipv4.ip_forward", "1")
	ns.Sysctl("net.ipv6.conf.all.forwarding", "1")
}

// Nftables adds an nft(8) ruleset to the namespace. It skips the test if nft is not installed, and
// fails it if the kernel rejects the ruleset.
func (ns *Namespace) Nftables(ruleset string) {
	ns.network.t.Helper()
	RequirePrograms(ns.network.t, "nft")
	ns.runWithInput(ruleset, "nft", "-f", "-")
}

// IPtables runs iptables(8) in the namespace with arguments like "-t nat -A PREROUTING -p tcp -j
// REDIRECT --to-ports 1". It skips the test if iptables is not installed, and fails it if the
// kernel rejects the rule.
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
	RequirePrograms(ns.network.t, program)
	// Another process may hold the iptables lock for a moment.
	ns.Run(program, append([]string{"-w", "10"}, strings.Fields(args)...)...)
}
