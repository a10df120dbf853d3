// Package chaos tests Weft while its environment fails: hosts die and come back, links lose
// packets, hosts truncate responses, DNS records and certificates change, and CPU time becomes
// scarce. Each test runs real processes under a constant load, states its limits, and afterwards
// checks for leaks of requests, connections, goroutines and memory.
//
// The load of a test lasts 15 seconds, or WEFT_CHAOS_DURATION. Each test prints the seed of its
// random numbers; WEFT_CHAOS_SEED sets it.
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

// root is the root directory of the checkout.
const root = "../.."

// program is the path of the weft under test. TestMain builds it once, with -race if the tests run
// with "go test -race".
var program string

func TestMain(m *testing.M) {
	if spec := os.Getenv(hostEnv); spec != "" {
		os.Exit(runHost(spec))
	}
	if os.Getenv(busyEnv) != "" {
		burnCPU()
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weft-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system cleans up what remains
	program = filepath.Join(dir, "weft")
	if err := subject.Weft(root, program, subject.RaceFlags()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// testRun is one test with its duration and its seed.
type testRun struct {
	*testing.T
	duration   time.Duration
	seed       uint64
	pid        int           // of Weft
	directHTTP *httpClient   // client that connects to a host without Weft; nil: not started
	directP99  time.Duration // p99 of the requests of directHTTP in the last load
}

// newTestRun starts a test in parallel with the others.
func newTestRun(t *testing.T) *testRun {
	t.Helper()
	t.Parallel()
	r := &testRun{T: t, duration: 15 * time.Second, seed: rand.Uint64()}
	if text := os.Getenv("WEFT_CHAOS_DURATION"); text != "" {
		duration, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("WEFT_CHAOS_DURATION: %v", err)
		}
		r.duration = duration
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

// newRand returns a source of random numbers for one purpose. Only one goroutine may use it.
func (r *testRun) newRand(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, purpose)) }

// runInBackground runs do in a goroutine. end closes stop and waits for do to return. The end of
// the test also calls end.
func (r *testRun) runInBackground(do func(stop <-chan struct{})) (end func()) {
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

// sleep waits for d, and returns false if stop is closed earlier.
func sleep(stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stop:
		return false
	case <-timer.C:
		return true
	}
}
