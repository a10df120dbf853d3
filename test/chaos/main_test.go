// Package chaos holds Weft to what it promises while everything around it fails:
// hosts die and come back, links lose packets, answers break off, names and
// certificates change, the processor is taken away. Each test puts real processes
// under a constant load, states what it allows, and looks afterwards for what was
// left behind: requests, connections, goroutines, memory.
//
// The load of a test lasts 20 seconds, or WEFT_CHAOS_DURATION. Each test prints the seed of
// its randomness; WEFT_CHAOS_SEED repeats one.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/subject"
)

// root is the checkout.
const root = "../.."

// program is the weft under test, built once; with "go test -race", the checked one.
var program string

func TestMain(m *testing.M) {
	if spec := os.Getenv(hostKey); spec != "" {
		os.Exit(beHost(spec))
	}
	if os.Getenv(busyKey) != "" {
		beBusy()
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weft-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the temporary directory
	program = filepath.Join(dir, "weft")
	if err := subject.Weft(root, program, subject.Checked()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// trial is one test: how long it lasts and what its chance is.
type trial struct {
	*testing.T
	lasts   time.Duration
	seed    uint64
	pid     int           // of Weft
	past    *web          // caller of a host without Weft between; nil: not yet
	machine time.Duration // p99 of such requests in the last load
}

// begin begins a test, beside the others.
func begin(t *testing.T) *trial {
	t.Helper()
	t.Parallel()
	r := &trial{T: t, lasts: 20 * time.Second, seed: rand.Uint64()}
	if text := os.Getenv("WEFT_CHAOS_DURATION"); text != "" {
		lasts, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("WEFT_CHAOS_DURATION: %v", err)
		}
		r.lasts = lasts
	}
	if text := os.Getenv("WEFT_CHAOS_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("WEFT_CHAOS_SEED: %v", err)
		}
		r.seed = seed
	}
	t.Logf("WEFT_CHAOS_SEED=%d", r.seed)
	return r
}

// chance returns a source of randomness for one purpose, of one goroutine.
func (r *trial) chance(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, purpose)) }

// meanwhile has something done beside the test until end is called, or the test ends;
// then stop is closed. end returns when it is done.
func (r *trial) meanwhile(do func(stop <-chan struct{})) (end func()) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { do(stop) })
	end = sync.OnceFunc(func() {
		close(stop)
		done.Wait()
	})
	r.Cleanup(end)
	return end
}

// pause waits, and returns false if stop was closed meanwhile.
func pause(stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stop:
		return false
	case <-timer.C:
		return true
	}
}
