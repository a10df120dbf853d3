// Package netns makes small networks for tests out of the kernel's network
// namespaces: hosts that have nothing but a loopback device and the links that the
// test gives them. What a test does there, addresses, routes, packet filters, lost
// packets, touches neither the machine's network nor that of another test.
//
// A test that needs a network calls New, which skips the test where there can be
// none and says why. All of it goes with the test. What a test left that was killed
// goes when the next one calls New: names carry the number of the process that
// made them.
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
	// prefix is how the names of all namespaces begin that tests make.
	prefix = "wefttest-"
	// directory is where ip(8) keeps the names of namespaces.
	directory = "/var/run/netns"
)

// Network is the namespaces and links of one test. Its methods belong to the
// goroutine of the test: what cannot be made ends the test.
type Network struct {
	t     testing.TB
	name  string // what the names of this network's namespaces begin with
	links int    // made so far
}

// New returns an empty network that ends with the test. It skips the test where
// the process is not root, ip(8) is missing or the kernel has no namespaces.
func New(t testing.TB) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	Need(t, "ip")
	sweep()
	n := &Network{t: t, name: fmt.Sprintf("%s%d-%06x-", prefix, os.Getpid(), rand.Uint32()&0xffffff)}
	probe := n.name + "probe"
	if out, err := exec.Command("ip", "netns", "add", probe).CombinedOutput(); err != nil {
		t.Skipf("the kernel gives no network namespace: %v: %s", err, out)
	}
	remove(probe)
	return n
}

// Need skips the test if one of the programs is not installed.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: test/scripts/packages.txt says of which package it is", program)
		}
	}
}

// sweep removes the namespaces of processes that live no more.
func sweep() {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return // there were never any
	}
	for _, entry := range entries {
		if pid, ok := owner(entry.Name()); ok && syscall.Kill(pid, 0) == syscall.ESRCH {
			remove(entry.Name())
		}
	}
}

// owner returns the process that made the namespace of this name; false if it was
// no test.
func owner(name string) (int, bool) {
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

// remove ends the processes in the namespace, which can only be what a test
// started there, and takes its name away: the kernel removes it with its links.
func remove(name string) {
	out, err := exec.Command("ip", "netns", "pids", name).Output()
	if err == nil {
		for field := range strings.FieldsSeq(string(out)) {
			// The test itself may have a thread there.
			if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended since
			}
		}
	}
	// Two tests may sweep at once: one of them comes too late.
	_ = exec.Command("ip", "netns", "del", name).Run()
}

// Namespace adds a host to the network: a namespace with a loopback device that
// is up, and no links. The name is for error messages and ip(8); it is unique
// within the network.
func (n *Network) Namespace(name string) *Namespace {
	n.t.Helper()
	full := n.name + name
	n.must("ip", "netns", "add", full)
	n.t.Cleanup(func() { remove(full) })
	file, err := os.Open(filepath.Join(directory, full))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = file.Close() }) // it was opened to name the namespace
	ns := &Namespace{network: n, name: full, file: file}
	ns.Run("ip", "link", "set", "lo", "up")
	return ns
}

// must runs a program outside of all namespaces of the network. If it fails the test
// ends.
func (n *Network) must(program string, args ...string) {
	n.t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
}
