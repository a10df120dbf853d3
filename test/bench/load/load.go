// Package load generates HTTP/1.1, HTTP/2 or RPC load from one thread, except over TLS. It measures
// the latency of the responses and the resource usage of the processes under test.
//
// In a closed loop every connection sends its next request after a response, so the slowest part is
// saturated. In an open loop requests arrive at a given rate regardless of earlier ones, and a
// latency counts from the arrival: it includes the wait for a free connection (no coordinated
// omission). A burst is RPC only: it sends all requests without waiting for responses, and the
// origin responds after the last one has arrived.
package load

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/test/bench/certs"
	"github.com/weft-proxy/weft/test/bench/epoll"
	"github.com/weft-proxy/weft/test/bench/frame"
	"github.com/weft-proxy/weft/test/bench/histogram"
	"github.com/weft-proxy/weft/test/bench/process"
)

// Job describes one measurement.
type Job struct {
	Address     netip.AddrPort `json:"address"`     // the server; IPv4
	Protocol    string         `json:"protocol"`    // a name of package frame, HTTP2, GRPC, GRPCStream, HTTPS or HTTPSFresh; empty: HTTP/1.1
	Request     []byte         `json:"request"`     // of HTTP/1.1: one complete request, sent unchanged
	Body        int            `json:"body"`        // of HTTP: required size of each response body, in bytes
	Connections int            `json:"connections"` // kept alive, except by HTTPSFresh; without TLS, all are open before the first request
	Depth       int            `json:"depth"`       // of RPC and HTTP/2: requests in flight on each connection
	Burst       bool           `json:"burst"`       // of RPC: no loop, each connection sends Depth requests once
	Rate        float64        `json:"rate"`        // arrivals per second in an open loop; 0: a closed loop
	Warmup      time.Duration  `json:"warmup"`      // duration of the load before the measurement
	Measure     time.Duration  `json:"measure"`     // duration of the measurement; of a burst: its timeout
	PIDs        []int          `json:"pids"`        // the processes under test; empty: do not measure CPU time
	CPUs        []int          `json:"cpus"`        // CPUs that only the measurement should use
	Helpers     []int          `json:"helpers"`     // other processes of the measurement: the origin

	Certificates certs.Dir `json:"certificates"` // of HTTPS
}

// Result holds the measured values. Requests is the number of responses that became complete within
// the measured time.
type Result struct {
	Requests   uint64           `json:"requests"`
	Elapsed    time.Duration    `json:"elapsed_ns"`
	CPU        time.Duration    `json:"cpu_ns"` // of the processes under test
	Switches   process.Switches `json:"switches"`
	Others     float64          `json:"others"` // average number of Job.CPUs that other processes used
	Mean       time.Duration    `json:"mean_ns"`
	P50        time.Duration    `json:"p50_ns"`
	P90        time.Duration    `json:"p90_ns"`
	P99        time.Duration    `json:"p99_ns"`
	P999       time.Duration    `json:"p999_ns"`
	Max        time.Duration    `json:"max_ns"`
	Reconnects int              `json:"reconnects"` // connections that the server closed between requests
	All        uint64           `json:"all"`        // requests of the whole run, including the warm-up
}

// check returns an error if the job cannot run.
func (j *Job) check() error {
	switch {
	case !j.Address.Addr().Is4():
		return fmt.Errorf("address %v, want IPv4", j.Address)
	case j.Protocol == "" && len(j.Request) == 0:
		return errors.New("no request")
	case j.Protocol != "" && (j.Depth < 1 || j.Depth > maxDepth):
		return fmt.Errorf("%d requests in flight, want 1 to %d", j.Depth, maxDepth)
	case j.Burst && (j.Protocol == "" || j.Rate > 0 || j.Warmup > 0):
		return errors.New("a burst requires RPC, and allows neither a rate nor a warm-up")
	case (j.Protocol == HTTPS || j.Protocol == HTTPSFresh) && (len(j.Request) == 0 || j.Rate > 0):
		return errors.New("TLS requires a request, and allows no rate")
	case j.Connections < 1:
		return fmt.Errorf("%d connections, want at least 1", j.Connections)
	case j.Measure <= 0:
		return fmt.Errorf("%v to measure, want more than 0", j.Measure)
	case j.Rate < 0:
		return fmt.Errorf("%v arrivals per second, want at least 0", j.Rate)
	}
	return nil
}

// Run opens the connections, generates the load for Warmup and Measure, and closes them. It returns
// an error at the first wrong response or broken connection. It needs a process of its own: see
// package epoll.
func Run(job Job) (Result, error) {
	if err := job.check(); err != nil {
		return Result{}, err
	}
	m := &meter{base: time.Now()}
	g, err := newGenerator(job, m)
	if err != nil {
		return Result{}, err
	}
	defer g.close()
	if job.Warmup > 0 {
		if err := g.runUntil(job.Warmup); err != nil {
			return Result{}, fmt.Errorf("warm-up: %w", err)
		}
	}
	before, err := readUsage(job)
	if err != nil {
		return Result{}, err
	}
	m.histogram = histogram.Histogram{} // requests of the warm-up are not counted
	start := m.now()
	if err := g.runUntil(start + job.Measure); err != nil {
		return Result{}, err
	}
	// On a busy machine the first response may arrive later.
	for deadline := start + job.Measure + stallTimeout; m.histogram.Count() == 0 && m.now() < deadline; {
		if err := g.runUntil(m.now() + time.Millisecond); err != nil {
			return Result{}, err
		}
	}
	end := m.now()
	after, err := readUsage(job)
	if err != nil {
		return Result{}, err
	}
	h := &m.histogram
	if h.Count() == 0 {
		return Result{}, fmt.Errorf("no response in %v", end-start)
	}
	return Result{
		Requests: h.Count(),
		Elapsed:  end - start,
		CPU:      after.cpu - before.cpu,
		Switches: process.Switches{
			Voluntary:   after.switches.Voluntary - before.switches.Voluntary,
			Involuntary: after.switches.Involuntary - before.switches.Involuntary,
		},
		Others:     max(0, (after.others-before.others).Seconds()/(end-start).Seconds()),
		Mean:       h.Mean(),
		P50:        h.Quantile(0.5),
		P90:        h.Quantile(0.9),
		P99:        h.Quantile(0.99),
		P999:       h.Quantile(0.999),
		Max:        h.Max(),
		Reconnects: m.reconnects,
		All:        m.all,
	}, nil
}

// generator loads a server from one event loop, or from goroutines over TLS.
type generator interface {
	// runUntil generates load until the deadline, or until the end of a burst.
	runUntil(deadline time.Duration) error
	// close closes the connections.
	close()
}

func newGenerator(job Job, m *meter) (generator, error) {
	if job.Protocol == "" {
		return newHTTP1(job, m)
	}
	switch job.Protocol {
	case HTTP2, GRPC, GRPCStream:
		return newHTTP2(job, m)
	case HTTPS, HTTPSFresh:
		return newHTTPS(job, m)
	}
	p, err := frame.Find(job.Protocol)
	if err != nil {
		return nil, err
	}
	return newRPC(job, p, m)
}

// stallTimeout is the maximum time without any response before a run fails.
const stallTimeout = 10 * time.Second

// meter is the clock and the counters of a generator. All times are since base.
type meter struct {
	base       time.Time
	histogram  histogram.Histogram
	reconnects int
	all        uint64
}

// now returns the time since base. It is never 0, because 0 means no request.
func (m *meter) now() time.Duration { return time.Since(m.base) + 1 }

// count records a response with its latency.
func (m *meter) count(latency time.Duration) {
	m.histogram.Record(latency)
	m.all++
}

// dial opens a nonblocking connection and registers it with the poller for reading, with the token.
func dial(poller *epoll.Poller, addr netip.AddrPort, token int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	err = errors.Join(
		unix.Connect(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}),
		unix.SetNonblock(fd, true),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		poller.Add(fd, int32(token), epoll.Readable),
	)
	if err != nil {
		_ = unix.Close(fd) // the first error matters more
		return -1, fmt.Errorf("connect to %v: %w", addr, err)
	}
	return fd, nil
}

// usage holds cumulative resource usage.
type usage struct {
	cpu      time.Duration // of the processes under test
	switches process.Switches
	others   time.Duration // of Job.CPUs, by processes outside the measurement
}

func readUsage(job Job) (u usage, err error) {
	// The values that take many file reads come first: at the start of the measurement, the CPU
	// clock is then read immediately before the requests count.
	if u.switches, err = process.ReadSwitches(job.PIDs); err != nil {
		return usage{}, err
	}
	busy, err := process.BusyTime(job.CPUs)
	if err != nil {
		return usage{}, err
	}
	helpers, err := process.CPUTime(append([]int{os.Getpid()}, job.Helpers...))
	if err != nil {
		return usage{}, err
	}
	u.cpu, err = process.CPUTime(job.PIDs)
	u.others = busy - helpers - u.cpu
	return u, err
}
