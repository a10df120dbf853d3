package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/bench/frame"
	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/peer"
	"github.com/weft-proxy/weft/test/bench/process"
)

// inflightResult measures a program with many calls in flight at the same time: the origin responds
// when the last call of a burst has arrived.
type inflightResult struct {
	Protocol string `json:"protocol"`
	Proxy    string `json:"proxy"`
	Note     string `json:"note,omitempty"` // reason if nothing was measured
	Requests int    `json:"requests"`       // of one burst

	Missing stat   `json:"missing"` // requests without a response
	Seconds stat   `json:"seconds"` // until the last response
	CPU     stat   `json:"cpu_us"`  // per request
	Peak    stat   `json:"peak_mb"` // highest RSS
	Failure string `json:"failure,omitempty"`
}

// These are the size of the burst, the project's target for its peak memory, and limits of the
// measurement.
const (
	inflightConnections = 100
	inflightDepth       = 1000
	maxInflightPeakMB   = 600
	maxInflightRounds   = 3
	inflightTimeout     = 40 * time.Second
	inflightMaxQueued   = 256 << 20 // bytes: all calls, before the origin has read one
)

func (r inflightResult) verdicts() []verdict {
	name := fmt.Sprintf("%s, %s", inflightRow, r.Protocol)
	verdicts := []verdict{
		upperBoundVerdict(name, r.Proxy, "requests without a response", r.Missing, 0, ""),
		upperBoundVerdict(name, r.Proxy, "peak RSS", r.Peak, maxInflightPeakMB, "MB"),
	}
	if r.Note != "" {
		return markUnmeasured(verdicts)
	}
	return verdicts
}

func inflightMarkdown(results []inflightResult) string {
	text := fmt.Sprintf("%d connections with %d calls of 1 KB each, with responses after the last call has arrived.\n\n", inflightConnections, inflightDepth)
	t := newTable("", "requests", "without a response", "peak RSS MB", "s to the last response", "CPU µs", "failure")
	for _, r := range results {
		name := r.Protocol + ", " + r.Proxy
		if r.Note != "" {
			t.row(name, r.Note)
			continue
		}
		t.row(name, fmt.Sprint(r.Requests), r.Missing.format(0), r.Peak.format(0), r.Seconds.format(2), r.CPU.format(2), r.Failure)
	}
	return text + t.text.String()
}

// runInflight measures one program after another; each is started anew for each burst.
func (env *environment) runInflight(ctx context.Context) error {
	for _, name := range []string{"dubbo", "bolt"} {
		protocol, err := frame.Find(name)
		if err != nil {
			return err
		}
		for _, p := range env.programs {
			if p.HTTPOnly {
				continue
			}
			r, err := env.inflight(ctx, p, protocol)
			if err != nil {
				return fmt.Errorf("row %s, %s of %s: %w", inflightRow, name, p.Name, err)
			}
			env.report.Inflight = append(env.report.Inflight, r)
			if r.Note == "" {
				env.logf("%s  %-5s %-8s %.0f of %d without a response, %.2f s, peak %.0f MB %s", inflightRow, name, p.Name,
					r.Missing.Median, r.Requests, r.Seconds.Median, r.Peak.Median, r.Failure)
			}
		}
	}
	return nil
}

func (env *environment) inflight(ctx context.Context, p peer.Program, protocol *frame.Protocol) (inflightResult, error) {
	r := inflightResult{Protocol: protocol.Name(), Proxy: p.Name, Requests: inflightConnections * inflightDepth}
	var bursts []sample
	var missing []float64
	for range min(env.options.rounds, maxInflightRounds) {
		burst, failure, err := env.burst(ctx, p, protocol)
		if env.skipIfUnsupported(err, p.Name, protocol.Name()) {
			r.Note = peer.ErrNotSupported.Error()
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if failure != nil {
			r.Failure, _, _ = strings.Cut(failure.Error(), "\n")
		}
		missing = append(missing, float64(r.Requests)-float64(burst.Requests))
		bursts = append(bursts, burst)
	}
	median := func(value func(sample) float64) stat {
		var values []float64
		for _, burst := range bursts {
			values = append(values, value(burst))
		}
		return summarizeValues(values)
	}
	r.Peak = median(peak)
	if r.Missing = summarizeValues(missing); r.Missing.Max > 0 {
		// Every request must complete: a median would hide a burst with missing responses.
		r.Missing.Median = r.Missing.Max
		return r, nil
	}
	r.Seconds = median(func(s sample) float64 { return s.Elapsed.Seconds() })
	r.CPU = median(cpu)
	return r, nil
}

// burst starts the program and sends it one burst. If the burst times out, the Result counts the
// responses until then. burst returns a failure, and no Result, if the load fails, for example
// because the program closed a connection; err reports a failure of the benchmark itself.
func (env *environment) burst(ctx context.Context, p peer.Program, protocol *frame.Protocol) (result sample, failure, err error) {
	programEnv := *env.programEnv
	programEnv.MaxQueued = inflightMaxQueued
	running, err := programEnv.Start(ctx, p, protocol)
	if err != nil {
		return sample{}, nil, err
	}
	defer running.Stop()
	if err := process.ResetPeak(running.PIDs); err != nil {
		return sample{}, nil, err
	}
	job := env.job(row{protocol: protocol, connections: inflightConnections, depth: inflightDepth}, running.Listen, running.PIDs)
	job.Burst, job.Warmup, job.Measure = true, 0, inflightTimeout
	if result.Result, failure = env.load(ctx, job); failure != nil {
		result.Result = load.Result{}
	}
	if result.Memory, err = process.ReadMemory(running.PIDs); err != nil && failure != nil {
		failure, err = errors.Join(failure, err), nil // the program has exited
	}
	return result, failure, errors.Join(err, ctx.Err())
}
