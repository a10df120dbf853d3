// Package load generates load from one thread, of HTTP/1.1, of HTTP/2 or of an RPC
// protocol of package frame, and measures at the same time what the answers take and what
// the processes under test use.
//
// In a closed loop every connection sends its next request when it has an answer,
// so the slowest part is saturated. In an open loop requests arrive at a given
// rate whatever happens to earlier ones, and a latency counts from the arrival:
// what waits for a connection to be free has waited (no coordinated omission). A
// burst is RPC only: all requests at once, and no answer before the last of them
// has come to the origin.
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

// Job is one measurement.
type Job struct {
	Address     netip.AddrPort `json:"address"`     // the server; IPv4
	Protocol    string         `json:"protocol"`    // of package frame, HTTP2, GRPC, GRPCStream, HTTPS or HTTPSFresh; empty: HTTP/1.1
	Request     []byte         `json:"request"`     // of HTTP: sent as it is, one whole request
	Body        int            `json:"body"`        // of HTTP: bytes that each answer must have
	Connections int            `json:"connections"` // kept alive; all are open before the first request
	Depth       int            `json:"depth"`       // of RPC and HTTP/2: requests in flight on each connection
	Burst       bool           `json:"burst"`       // of RPC: no loop, each connection sends Depth requests once
	Rate        float64        `json:"rate"`        // arrivals per second, in an open loop; 0: a closed loop
	Warmup      time.Duration  `json:"warmup"`      // load before the measurement
	Measure     time.Duration  `json:"measure"`     // time that is measured; of a burst: after which it is given up
	PIDs        []int          `json:"pids"`        // the processes under test; none: no CPU time
	CPUs        []int          `json:"cpus"`        // those that the measurement is to have for itself
	Helpers     []int          `json:"helpers"`     // other processes that belong to it: the origin

	Certificates certs.Dir `json:"certificates"` // of HTTPS
}

// Result is what was measured. Requests are those whose answer came to its end
// within the measured time.
type Result struct {
	Requests   uint64           `json:"requests"`
	Elapsed    time.Duration    `json:"elapsed_ns"`
	CPU        time.Duration    `json:"cpu_ns"` // of the processes under test
	Switches   process.Switches `json:"switches"`
	Others     float64          `json:"others"` // CPUs' worth of work, on Job.CPUs, that was none of the measurement's
	Mean       time.Duration    `json:"mean_ns"`
	P50        time.Duration    `json:"p50_ns"`
	P90        time.Duration    `json:"p90_ns"`
	P99        time.Duration    `json:"p99_ns"`
	P999       time.Duration    `json:"p999_ns"`
	Max        time.Duration    `json:"max_ns"`
	Reconnects int              `json:"reconnects"` // connections that the server closed between requests
	All        uint64           `json:"all"`        // requests of the whole run, warm-up included
}

// check reports what cannot be run.
func (j *Job) check() error {
	switch {
	case !j.Address.Addr().Is4():
		return fmt.Errorf("address %v, want IPv4", j.Address)
	case j.Protocol == "" && len(j.Request) == 0:
		return errors.New("no request")
	case j.Protocol != "" && (j.Depth < 1 || j.Depth > maxDepth):
		return fmt.Errorf("%d requests in flight, want 1 to %d", j.Depth, maxDepth)
	case j.Burst && (j.Protocol == "" || j.Rate > 0 || j.Warmup > 0):
		return errors.New("a burst of HTTP, at a rate or with a warm-up")
	case (j.Protocol == HTTPS || j.Protocol == HTTPSFresh) && (len(j.Request) == 0 || j.Rate > 0):
		return errors.New("no request, or arrivals, over TLS")
	case j.Connections < 1:
		return fmt.Errorf("%d connections, want at least 1", j.Connections)
	case j.Measure <= 0:
		return fmt.Errorf("%v to measure, want more than 0", j.Measure)
	case j.Rate < 0:
		return fmt.Errorf("%v arrivals per second, want at least 0", j.Rate)
	}
	return nil
}

// Run opens the connections, generates the load for Warmup and Measure, and
// closes them. The first answer that is wrong, connection that breaks or
// descriptor that lacks is an error that ends the run. It is for a process of
// its own: see package epoll.
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
		if err := g.until(job.Warmup); err != nil {
			return Result{}, fmt.Errorf("warm-up: %w", err)
		}
	}
	from, err := read(job)
	if err != nil {
		return Result{}, err
	}
	m.histogram = histogram.Histogram{} // those of the warm-up are not counted
	begin := m.now()
	if err := g.until(begin + job.Measure); err != nil {
		return Result{}, err
	}
	// On a busy machine the first response may come later.
	for last := begin + job.Measure + stall; m.histogram.Count() == 0 && m.now() < last; {
		if err := g.until(m.now() + time.Millisecond); err != nil {
			return Result{}, err
		}
	}
	end := m.now()
	to, err := read(job)
	if err != nil {
		return Result{}, err
	}
	h := &m.histogram
	if h.Count() == 0 {
		return Result{}, fmt.Errorf("no answer in %v", end-begin)
	}
	return Result{
		Requests: h.Count(),
		Elapsed:  end - begin,
		CPU:      to.cpu - from.cpu,
		Switches: process.Switches{
			Voluntary:   to.switches.Voluntary - from.switches.Voluntary,
			Involuntary: to.switches.Involuntary - from.switches.Involuntary,
		},
		Others:     max(0, (to.others-from.others).Seconds()/(end-begin).Seconds()),
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

// generator is one event loop that loads a server.
type generator interface {
	// until runs the loop up to the time, or to the end of a burst.
	until(deadline time.Duration) error
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

// stall is how long a loop goes on without any answer before it is given up.
const stall = 10 * time.Second

// meter is the clock of a generator and what it counts. All times are since base.
type meter struct {
	base       time.Time
	histogram  histogram.Histogram
	reconnects int
	all        uint64
}

// now is never 0: that means no request.
func (m *meter) now() time.Duration { return time.Since(m.base) + 1 }

// count counts an answer that took so long.
func (m *meter) count(latency time.Duration) {
	m.histogram.Record(latency)
	m.all++
}

// dial opens a connection that does not block and that the poller watches for
// what can be read, with the token.
func dial(poller *epoll.Poller, to netip.AddrPort, token int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	err = errors.Join(
		unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}),
		unix.SetNonblock(fd, true),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		poller.Add(fd, int32(token), epoll.Readable),
	)
	if err != nil {
		_ = unix.Close(fd) // the first error tells more
		return -1, fmt.Errorf("connect to %v: %w", to, err)
	}
	return fd, nil
}

// usage is what has been used so far.
type usage struct {
	cpu      time.Duration // by the processes under test
	switches process.Switches
	others   time.Duration // of the CPUs, by processes that do not belong here
}

func read(job Job) (u usage, err error) {
	// What is read from many files comes first, so that the CPU clock is read as
	// near to the request counter as can be.
	if u.switches, err = process.ReadSwitches(job.PIDs); err != nil {
		return usage{}, err
	}
	busy, err := process.BusyTime(job.CPUs)
	if err != nil {
		return usage{}, err
	}
	own, err := process.CPUTime(append([]int{os.Getpid()}, job.Helpers...))
	if err != nil {
		return usage{}, err
	}
	u.cpu, err = process.CPUTime(job.PIDs)
	u.others = busy - own - u.cpu
	return u, err
}
