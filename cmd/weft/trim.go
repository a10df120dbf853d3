package main

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// trimSoon and trimLate are how often memory that is not needed any more is
	// looked for: soon as long as there is none, seldom while there always is.
	trimSoon = 5 * time.Second
	trimLate = 2 * time.Minute
	// trimFrom is from how many bytes of it on it is worth a collection, and trimShare
	// from which part of what is in use on: that is what a collection costs.
	trimFrom  = 4 << 20
	trimShare = 4
)

// trim gives memory back that a burst of traffic has left behind. On a proxy
// that hardly allocates, the runtime collects garbage so seldom that buffers and
// stacks of thousands of connections would stay for minutes. It acts only when
// the runtime has not collected since the last look; but once, soon after the
// start, the pages of the program that only starting has needed go in any case.
func trim(ctx context.Context, log *slog.Logger) {
	wait := trimSoon
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var cycles, left uint64
	started := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		m := readMemory()
		least, trimmed := max(trimFrom, m.live/trimShare), false
		switch {
		case m.cycles != cycles || m.unneeded <= least:
			wait = trimSoon
		case wait == trimLate && m.unneeded <= left+least:
			// It has stayed however often it was looked for.
		default:
			runtime.GC() // pools give up what was not used between two collections
			debug.FreeOSMemory()
			wait, trimmed = min(2*wait, trimLate), true
			left = readMemory().unneeded
		}
		if trimmed || !started {
			started = true
			n, err := unmapProgram()
			log.Debug("pages of the program were unmapped", "bytes", n, "error", err)
		}
		cycles = readMemory().cycles
		timer.Reset(wait)
	}
}

// memory is what trim goes by.
type memory struct {
	cycles   uint64 // collections so far
	live     uint64 // bytes that the last collection found in use
	unneeded uint64 // bytes beyond these
}

func readMemory() memory {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return memory{cycles: value(0), live: value(1), unneeded: value(2) + value(3) + value(4) - min(value(1), value(2))}
}
