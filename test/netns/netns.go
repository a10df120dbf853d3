// Package netns creates networks for tests from the kernel's network namespaces: hosts with a
// loopback device and the links that the test creates. Addresses, routes, packet filters and packet
// loss in them affect neither the machine's network nor other tests.
//
// A test calls New, which skips the test with a message if the machine has no network namespaces.
// The network is removed at the end of the test. If the test is killed, the next call of New
// removes its namespaces: their names contain the process id.
package netns

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const (
	// prefix starts the names of all namespaces of tests.
	prefix = "wefttest-"
	// directory is where ip(8) keeps the names of namespaces.
	directory = "/var/run/netns"
)

// Network holds the namespaces and links of one test. Only the test's goroutine may call its
// methods. They fail the test on an error.
type Network struct {
	t     testing.TB
	name  string // prefix of the names of this network's namespaces
	links int    // number of links created
}

// New returns an empty network, which is removed at the end of the test. It skips the test if the
// process is not root, ip(8) is missing or the kernel has no network namespaces.
func New(t testing.TB) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	RequirePrograms(t, "ip")
	removeStale()
	n := &Network{t: t, name: fmt.Sprintf("%s%d-%06x-", prefix, os.Getpid(), rand.Uint32()&0xffffff)}
	probe := n.name + "probe"
	if out, err := exec.Command("ip", "netns", "add", probe).CombinedOutput(); err != nil {
		t.Skipf("the kernel provides no network namespace: %v: %s", err, out)
	}
	remove(probe)
	return n
}

// RequirePrograms skips the test if one of the programs is not installed.
func RequirePrograms(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: test/scripts/packages.txt names its package", program)
		}
	}
}

// removeStale removes the namespaces of dead processes.
func removeStale() {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return // the directory does not exist before the first namespace
	}
	for _, entry := range entries {
		if pid, ok := ownerPID(entry.Name()); ok && syscall.Kill(pid, 0) == syscall.ESRCH {
			remove(entry.Name())
		}
	}
}

// ownerPID returns the id of the process that created the namespace, or false if it is not a
// namespace of a test.
func ownerPID(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	digits, _, ok := strings.Cut(rest, "-")
	if !ok {
		return 0, false
	}
	pid, err := strconv.Atoi(digits)
	return pid, err == nil && pid > 0
}

// remove kills the processes that a test started in the namespace, and deletes the namespace's
// name. The kernel then removes the namespace with its links.
func remove(name string) {
	out, err := exec.Command("ip", "netns", "pids", name).Output()
	if err == nil {
		for field := range strings.FieldsSeq(string(out)) {
			// Do not kill this process, which may have a thread in the namespace.
			if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have exited
			}
		}
	}
	// Two processes may remove a stale namespace at the same time. Then one of them fails here.
	_ = exec.Command("ip", "netns", "del", name).Run()
}

// Namespace adds a host to the network: a namespace with a loopback device that is up, and no
// links. The name, for ip(8) and error messages, must be unique within the network.
func (n *Network) Namespace(name string) *Namespace {
	n.t.Helper()
	fullName := n.name + name
	n.must("ip", "netns", "add", fullName)
	n.t.Cleanup(func() { remove(fullName) })
	file, err := os.Open(filepath.Join(directory, fullName))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = file.Close() })
	ns := &Namespace{network: n, name: fullName, file: file}
	ns.Run("ip", "link", "set", "lo", "up")
	return ns
}

// must runs a program outside of the network's namespaces. It fails the test if the program fails.
func (n *Network) must(program string, args ...string) {
	n.t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
}
