package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/subject"
)

// The limits of CPU time and latency are twice HAProxy's values, but at least maxCPUFloor and
// maxWaitFloor. maxFDs and maxBytes are fixed limits. Usual measurements stay below the limits, and
// a successful attack exceeds them.
const (
	maxCPUFloor  = time.Second
	maxWaitFloor = 100 * time.Millisecond
	maxFDs       = 500       // 50 attackers, at most as many host connections, and those of the process
	maxBytes     = 200 << 20 // resident memory
)

// TestRapidResetCost verifies, while 50 connections each open and reset 480 streams per second,
// that Weft's CPU time and the latency of an honest client of another listener are at most twice
// HAProxy's, or within the floors above, and that descriptors and memory stay below fixed limits.
// 480 is below the limit that closes a single connection.
func TestRapidResetCost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	path := filepath.Join(t.TempDir(), "weft")
	if err := subject.Weft(filepath.Join("..", ".."), path); err != nil {
		t.Fatal(err)
	}
	env, err := newEnvironment(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(env.close)
	l := load{connections: 50, interval: time.Second, duration: 3 * time.Second}
	a := attacks()[0]
	maxCPU, maxWait := maxCPUFloor, maxWaitFloor
	for _, p := range otherProxies() {
		r, err := env.runAttack(p, a, l)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-8s %v", p.name, r)
		if p.name == "haproxy" {
			maxCPU, maxWait = max(maxCPU, 2*r.cpu), max(maxWait, 2*r.p99)
		}
	}
	r, err := env.runAttack(weft("weft", path), a, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%-8s %v", "weft", r)
	if r.bursts < l.connections || r.requests < 10 {
		t.Fatalf("%d bursts and %d requests of the honest client: too few for a measurement", r.bursts, r.requests)
	}
	if r.cpu > maxCPU {
		t.Errorf("%v of CPU time, want at most %v", r.cpu, maxCPU)
	}
	if r.p99 > maxWait {
		t.Errorf("the honest client waited %v (p99), want at most %v", r.p99, maxWait)
	}
	if r.failures > 0 {
		t.Errorf("%d requests of the honest client failed, want none", r.failures)
	}
	if r.files > maxFDs {
		t.Errorf("%d descriptors were open, want at most %d", r.files, maxFDs)
	}
	if r.peak > maxBytes {
		t.Errorf("%d MB were resident, want at most %d", r.peak>>20, maxBytes>>20)
	}
}

// TestAttackBursts verifies that each burst has a plausible size for one write and that the
// names are unique.
func TestAttackBursts(t *testing.T) {
	names := map[string]bool{}
	for _, a := range attacks() {
		burst := a.burst(1)
		minimum := 4000
		if strings.HasPrefix(a.name, "HTTP/1.1") { // one request per connection
			minimum = 30
		}
		if len(burst) < minimum || len(burst) > 1<<20 {
			t.Errorf("%s: a burst of %d bytes, want %d to %d", a.name, len(burst), minimum, 1<<20)
		}
		if names[a.name] {
			t.Errorf("two attacks are called %s, want unique names", a.name)
		}
		names[a.name] = true
	}
}
