package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/process"
)

// report holds the results of a run. In its JSON form, report.json, durations are nanoseconds and
// memory is bytes.
type report struct {
	Time     time.Time         `json:"time"`
	Seconds  float64           `json:"seconds"` // duration of the run
	Commit   string            `json:"commit,omitempty"`
	Command  string            `json:"command"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Skipped  []string          `json:"skipped,omitempty"`
	Loads    []*loadRow        `json:"loads,omitempty"`
	Idle     []idleResult      `json:"idle,omitempty"`
	Inflight []inflightResult  `json:"inflight,omitempty"`
	Streams  []streamsResult   `json:"streams,omitempty"`
	Scale    []scaleResult     `json:"scale,omitempty"`
	Verdicts []verdict         `json:"verdicts"`

	BootstrapScale []bootstrapScaleResult `json:"bootstrap_scale,omitempty"`

	wefts []string // names of the builds of Weft
}

type machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// loadRow is a row with its measurements.
type loadRow struct {
	Name     string  `json:"name"`
	Title    string  `json:"title"`
	Protocol string  `json:"protocol,omitempty"` // empty: HTTP/1.1 on both sides
	Rate     float64 `json:"rate,omitempty"`     // of the half load, requests per second
	Cells    []*cell `json:"cells"`

	targets []target
}

// cell is one program under one load; the samples are in the order of rounds.
type cell struct {
	Proxy    string             `json:"proxy"`
	Note     string             `json:"note,omitempty"` // reason if nothing was measured
	Rounds   []sample           `json:"rounds"`
	Half     []sample           `json:"half,omitempty"`
	Syscalls map[string]float64 `json:"syscalls,omitempty"` // per request; keys are the names of the calls; "all" is the total
	Tool     string             `json:"syscalls_by,omitempty"`
}

// sample is one measurement.
type sample struct {
	load.Result
	Memory process.Memory `json:"memory"`
}

// verdict compares one figure with its target, or reports a ratio without a target.
type verdict struct {
	Row     string  `json:"row"`
	Proxy   string  `json:"proxy"`
	What    string  `json:"what"`
	Value   stat    `json:"value"`
	Target  float64 `json:"target"`
	Unit    string  `json:"unit"`
	Rounds  string  `json:"rounds,omitempty"` // number of undisturbed rounds and of all rounds
	Outcome outcome `json:"outcome"`
}

// newReport returns a report with the time, the command and the machine.
func newReport(ctx context.Context, opts options) *report {
	r := &report{
		Time:     time.Now().UTC().Truncate(time.Second),
		Command:  "go run ./test/bench " + strings.Join(os.Args[1:], " "),
		Machine:  machine{CPU: cpuModel(), CPUs: runtime.NumCPU(), Go: runtime.Version()},
		Versions: map[string]string{},
		wefts:    opts.wefts(),
	}
	r.Command = strings.TrimSpace(r.Command)
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		r.Machine.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	// Outside a repository there is no commit.
	if text, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		r.Commit = string(bytes.TrimSpace(text))
	}
	return r
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// write writes report.json and report.md into the directory.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return cmp.Or(
		os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.markdown()), 0o644),
	)
}

// missedCount returns how many targets were missed.
func (r *report) missedCount() int {
	n := 0
	for _, v := range r.Verdicts {
		if v.Outcome == missed {
			n++
		}
	}
	return n
}

// samples returns the samples that a figure of a program is computed from; it returns none if the
// program was not measured.
func (r *loadRow) samples(proxy string, f metric) []sample {
	for _, c := range r.Cells {
		if c.Proxy == proxy && f == halfP99 {
			return c.Half
		}
		if c.Proxy == proxy {
			return c.Rounds
		}
	}
	return nil
}

// slowest returns the lowest median rate of the proxies, in requests per second, or the rate
// without a proxy if no proxy was measured.
func (r *loadRow) slowest() float64 {
	var rates []float64
	directRate := 0.0
	for _, c := range r.Cells {
		switch {
		case len(c.Rounds) == 0:
		case c.Proxy == direct:
			directRate = summarize(c.Rounds, rate).Median
		default:
			rates = append(rates, summarize(c.Rounds, rate).Median)
		}
	}
	if len(rates) == 0 {
		return directRate
	}
	return slices.Min(rates)
}

// Values of a sample.
func cpu(s sample) float64  { return microseconds(s.CPU) / float64(s.Requests) } // µs per request
func rate(s sample) float64 { return float64(s.Requests) / s.Elapsed.Seconds() }
func p50(s sample) float64  { return microseconds(s.P50) }
func p99(s sample) float64  { return microseconds(s.P99) }
func peak(s sample) float64 { return float64(s.Memory.Peak) / megabyte }
func pss(s sample) float64  { return float64(s.Memory.Proportional) / megabyte }
func waits(s sample) float64 {
	return float64(s.Switches.Voluntary) / float64(s.Requests)
}

func preemptions(s sample) float64 {
	return float64(s.Switches.Involuntary) / float64(s.Requests)
}

const megabyte = 1 << 20

// stat summarizes a value over the rounds.
type stat struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// summarize returns the stat of value over the undisturbed samples, or over all samples if every
// one was disturbed; samples must not be empty.
func summarize(samples []sample, value func(sample) float64) stat {
	samples = undisturbed(samples)
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = value(s)
	}
	return summarizeValues(values)
}

// summarizeValues returns the stat of the values and sorts them; there must be at least one.
func summarizeValues(values []float64) stat {
	slices.Sort(values)
	n := len(values)
	return stat{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

// format formats the median, and the range if the values differ.
func (s stat) format(digits int) string {
	text := fmt.Sprintf("%.*f", digits, s.Median)
	if s.Min != s.Max {
		text += fmt.Sprintf(" (%.*f–%.*f)", digits, s.Min, digits, s.Max)
	}
	return text
}
