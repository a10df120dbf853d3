package main

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/peer"
)

// subject is one column of a row: a program that runs, or no proxy at all.
type subject struct {
	name    string
	address netip.AddrPort
	pids    []int
	running *peer.Running // nil: direct
}

// runLoads measures the rows: all programs run from the beginning to the end,
// and are asked one after the other, round by round, so that what changes with
// time changes for all.
func (b *bed) runLoads(ctx context.Context, rows []row) error {
	subjects, err := b.startAll(ctx)
	defer stopAll(subjects)
	if err != nil {
		return err
	}
	for _, r := range rows {
		one := &loadRow{Name: r.name, Title: r.title, targets: r.targets}
		for _, s := range subjects {
			one.Cells = append(one.Cells, &cell{Proxy: s.name})
		}
		b.report.Loads = append(b.report.Loads, one)
	}
	for round := range b.options.rounds {
		for i, r := range rows {
			if err := b.round(ctx, round, r, subjects, b.report.Loads[i], 0); err != nil {
				return err
			}
		}
	}
	if b.options.half {
		if err := b.halfLoads(ctx, rows, subjects); err != nil {
			return err
		}
	}
	if b.options.syscalls {
		for i, r := range rows {
			if err := b.countSyscalls(ctx, r, subjects, b.report.Loads[i]); err != nil {
				return err
			}
		}
	}
	if b.options.profile != "" {
		return b.takeProfile(ctx, rows[0], subjects)
	}
	return nil
}

// halfLoads measures the rows that ask for it at a fixed rate: half of what the
// slowest proxy answers at most, the same for all.
func (b *bed) halfLoads(ctx context.Context, rows []row, subjects []subject) error {
	for round := range b.options.rounds {
		for i, r := range rows {
			result := b.report.Loads[i]
			if !r.half {
				continue
			}
			if result.Rate == 0 {
				result.Rate = result.slowest() / 2
			}
			if err := b.round(ctx, round, r, subjects, result, result.Rate); err != nil {
				return err
			}
		}
	}
	return nil
}

// round measures every subject once, beginning with another one in each round.
// The rate is that of the open loop; 0 is the closed one.
func (b *bed) round(ctx context.Context, round int, r row, subjects []subject, result *loadRow, rate float64) error {
	for i := range subjects {
		at := (round + i) % len(subjects)
		s := subjects[at]
		best, err := b.calmest(ctx, r, s, rate)
		if err != nil {
			return fmt.Errorf("row %s, %s: %w", r.name, s.name, err)
		}
		c := result.Cells[at]
		if rate > 0 {
			c.Half = append(c.Half, best)
		} else {
			c.Rounds = append(c.Rounds, best)
		}
		b.say("round %d  %-8s %-8s %s", round+1, r.name, s.name, progress(best.Result, rate))
	}
	return nil
}

// progress tells of one sample in a line.
func progress(r load.Result, rate float64) string {
	text := fmt.Sprintf("%7.0f req/s  p50 %s  p99 %s", float64(r.Requests)/r.Elapsed.Seconds(), micros(r.P50), micros(r.P99))
	if r.CPU > 0 {
		text = fmt.Sprintf("%6.1f µs CPU  ", micro(r.CPU)/float64(r.Requests)) + text
	}
	if rate > 0 {
		text += "  half load"
	}
	if r.Others >= disturbed {
		text += fmt.Sprintf("  disturbed: %.2f CPUs", r.Others)
	}
	return text
}

// startAll starts every program. On an error it returns those that run.
func (b *bed) startAll(ctx context.Context) ([]subject, error) {
	var subjects []subject
	for _, name := range b.options.proxies {
		if name == direct {
			subjects = append(subjects, subject{name: direct, address: b.host.Origin})
			continue
		}
		i := slices.IndexFunc(b.programs, func(p peer.Program) bool { return p.Name == name })
		if i < 0 {
			continue // skipped
		}
		running, err := b.host.Start(ctx, b.programs[i], "/b/1")
		if err != nil {
			return subjects, err
		}
		subjects = append(subjects, subject{name: name, address: running.Listen, pids: running.PIDs, running: running})
	}
	return subjects, nil
}

func stopAll(subjects []subject) {
	for _, s := range subjects {
		if s.running != nil {
			s.running.Stop()
		}
	}
}

// micro returns d in microseconds.
func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// micros prints d with the digits that mean something.
func micros(d time.Duration) string {
	us := micro(d)
	if us < 100 {
		return fmt.Sprintf("%.1f µs", us)
	}
	return fmt.Sprintf("%.0f µs", math.Round(us))
}
