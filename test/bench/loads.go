package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/peer"
)

// systemUnderTest is one column of a row: a running program, one that does not support the row, or
// no proxy.
type systemUnderTest struct {
	name    string
	note    string // why the program does not run; empty: it runs
	address netip.AddrPort
	pids    []int
	running *peer.RunningProgram // nil: direct, or not running
}

// runLoads measures the rows, grouped by protocol.
func (env *environment) runLoads(ctx context.Context, rows []row) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].protocolGroup() == rows[0].protocolGroup() {
			n++
		}
		if err := env.runGroup(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// runGroup measures rows of one protocol. All programs run during the whole group and are loaded
// one after another in each round, so that changes of the machine over time affect all of them.
func (env *environment) runGroup(ctx context.Context, rows []row) error {
	subjects, err := env.startAll(ctx, rows[0])
	defer stopAll(subjects)
	if err != nil {
		return err
	}
	firstGroup := len(env.report.Loads) == 0
	var results []*loadRow
	for _, r := range rows {
		result := &loadRow{Name: r.name, Title: r.title, Protocol: r.protocolGroup(), targets: r.targets}
		for _, s := range subjects {
			result.Cells = append(result.Cells, &cell{Proxy: s.name, Note: s.note})
		}
		results = append(results, result)
	}
	env.report.Loads = append(env.report.Loads, results...)
	for round := range env.options.rounds {
		for i, r := range rows {
			if err := env.runRound(ctx, round, r, subjects, results[i], 0); err != nil {
				return err
			}
		}
	}
	if env.options.half {
		if err := env.runHalfLoads(ctx, rows, subjects, results); err != nil {
			return err
		}
	}
	if env.options.syscalls {
		for i, r := range rows {
			if err := env.countSyscalls(ctx, r, subjects, results[i]); err != nil {
				return err
			}
		}
	}
	if env.options.profile != "" && firstGroup {
		return env.takeProfile(ctx, rows[0], subjects)
	}
	return nil
}

// runHalfLoads measures the rows whose halfLoad is true, at a fixed rate that is the same for all
// subjects.
func (env *environment) runHalfLoads(ctx context.Context, rows []row, subjects []systemUnderTest, results []*loadRow) error {
	for round := range env.options.rounds {
		for i, r := range rows {
			result := results[i]
			if !r.halfLoad {
				continue
			}
			if result.Rate == 0 {
				var err error
				if result.Rate, err = env.halfRate(ctx, r, subjects, result); err != nil {
					return err
				}
			}
			if err := env.runRound(ctx, round, r, subjects, result, result.Rate); err != nil {
				return err
			}
		}
	}
	return nil
}

// halfRate returns the rate of half load. For HTTP/1.1 it is half of the rate of the slowest proxy.
// For other protocols it is reduced, at most four times, while a proxy uses more than usageLimit of
// one CPU: in a closed loop, requests of one connection share reads and writes, while random
// arrivals share fewer and cost more CPU.
func (env *environment) halfRate(ctx context.Context, r row, subjects []systemUnderTest, result *loadRow) (float64, error) {
	rate := result.slowest() / 2
	if r.protocolGroup() == "" {
		return rate, nil
	}
	const usageLimit, attempts = 0.55, 4
	for range attempts {
		maxUsage := 0.0
		for _, s := range subjects {
			if s.running == nil {
				continue
			}
			measured, err := env.measureUndisturbed(ctx, r, s, rate)
			if err != nil {
				return 0, fmt.Errorf("row %s, %s: %w", r.name, s.name, err)
			}
			maxUsage = max(maxUsage, measured.CPU.Seconds()/measured.Elapsed.Seconds())
		}
		if maxUsage <= usageLimit {
			break
		}
		rate *= 0.5 / maxUsage
	}
	return rate, nil
}

// runRound measures every subject once, starting with a different subject in each round. rate is
// the rate of an open loop; 0 means a closed loop.
func (env *environment) runRound(ctx context.Context, round int, r row, subjects []systemUnderTest, result *loadRow, rate float64) error {
	for i := range subjects {
		index := (round + i) % len(subjects)
		s := subjects[index]
		if s.note != "" {
			continue
		}
		best, err := env.measureUndisturbed(ctx, r, s, rate)
		if err != nil {
			return fmt.Errorf("row %s, %s: %w", r.name, s.name, err)
		}
		c := result.Cells[index]
		if rate > 0 {
			c.Half = append(c.Half, best)
		} else {
			c.Rounds = append(c.Rounds, best)
		}
		env.logf("round %d  %-12s %-8s %s", round+1, r.name, s.name, progress(best.Result, rate))
	}
	return nil
}

// progress formats one sample as a line.
func progress(r load.Result, rate float64) string {
	text := fmt.Sprintf("%7.0f req/s  p50 %s  p99 %s", float64(r.Requests)/r.Elapsed.Seconds(), formatMicroseconds(r.P50), formatMicroseconds(r.P99))
	if r.CPU > 0 {
		text = fmt.Sprintf("%6.2f µs CPU  ", microseconds(r.CPU)/float64(r.Requests)) + text
	}
	if rate > 0 {
		text += "  half load"
	}
	if r.Others >= disturbanceThreshold {
		text += fmt.Sprintf("  disturbed: %.2f CPUs", r.Others)
	}
	return text
}

// startAll starts every program that supports the row. On an error it also returns the subjects
// that run.
func (env *environment) startAll(ctx context.Context, r row) ([]systemUnderTest, error) {
	if r.comparesXDS {
		return env.startFileAndXDS(ctx, r)
	}
	var subjects []systemUnderTest
	for _, name := range env.options.proxies {
		if r.http.Sidecar && name != "envoy" && !env.options.isWeft(name) {
			continue // reads no bootstrap file
		}
		if (name == direct || name == "relay") && !r.http.SameProtocol() {
			continue // without a program, or with the relay, nothing translates protocols
		}
		if name == direct {
			subjects = append(subjects, systemUnderTest{name: direct, address: env.programEnv.Origin})
			continue
		}
		i := slices.IndexFunc(env.programs, func(p peer.Program) bool { return p.Name == name })
		if i < 0 || r.protocol != nil && env.programs[i].HTTPOnly {
			continue // skipped, or HTTP only
		}
		running, err := env.start(ctx, env.programs[i], r)
		if env.skipIfUnsupported(err, name, r.protocolGroup()) {
			subjects = append(subjects, systemUnderTest{name: name, note: peer.ErrNotSupported.Error()})
			continue
		}
		if err != nil {
			return subjects, err
		}
		subjects = append(subjects, systemUnderTest{name: name, address: running.Listen, pids: running.PIDs, running: running})
	}
	return subjects, nil
}

// start starts one program for the row.
func (env *environment) start(ctx context.Context, p peer.Program, r row) (*peer.RunningProgram, error) {
	if r.protocol != nil {
		return env.programEnv.Start(ctx, p, r.protocol)
	}
	if r.http.Sidecar && env.options.isWeft(p.Name) {
		p = peer.WeftBootstrap(p.Name, p.Path)
	}
	return env.programEnv.StartHTTP(ctx, p, r.http)
}

// skipIfUnsupported reports whether a start failed because the program does not support the
// protocol, and records it in the report. HTTP/1.1, the empty protocol, is never missing.
func (env *environment) skipIfUnsupported(err error, program, protocol string) bool {
	if protocol == "" || !errors.Is(err, peer.ErrNotSupported) {
		return false
	}
	env.skip(fmt.Sprintf("%s of %s: %v", protocol, program, peer.ErrNotSupported))
	return true
}

func stopAll(subjects []systemUnderTest) {
	for _, s := range subjects {
		if s.running != nil {
			s.running.Stop()
		}
	}
}

// microseconds returns d in microseconds.
func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// formatMicroseconds formats d in microseconds, with one decimal below 100 µs and none above.
func formatMicroseconds(d time.Duration) string {
	us := microseconds(d)
	if us < 100 {
		return fmt.Sprintf("%.1f µs", us)
	}
	return fmt.Sprintf("%.0f µs", math.Round(us))
}
