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
	// minTrimInterval and maxTrimInterval bound the interval between checks for unneeded memory. The
	// interval doubles with each collection by trim. It is minTrimInterval again when a check finds
	// too little unneeded memory, or a collection by the runtime.
	minTrimInterval = 5 * time.Second
	maxTrimInterval = 2 * time.Minute
	// minTrimBytes and minTrimDivisor define how much unneeded memory justifies a collection. It must
	// be more than minTrimBytes bytes and more than 1/minTrimDivisor of the live memory, which
	// determines the cost of a collection.
	minTrimBytes   = 4 << 20
	minTrimDivisor = 4
)

// trim returns the memory of a traffic burst to the system. A proxy that hardly allocates triggers
// so few collections that buffers and stacks of thousands of connections would stay for minutes.
// trim collects only if the runtime has not done so since the last check. It unmaps the program's
// pages after each of its collections and after the first check, because the process needs most of
// these pages only during the start.
func trim(ctx context.Context, log *slog.Logger) {
	wait := minTrimInterval
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var cycles, unfreed uint64
	unmappedOnce := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		m := readMemory()
		threshold, trimmed := max(minTrimBytes, m.liveBytes/minTrimDivisor), false
		switch {
		case m.cycles != cycles || m.unneededBytes <= threshold:
			wait = minTrimInterval
		case wait == maxTrimInterval && m.unneededBytes <= unfreed+threshold:
			// Earlier collections could not free this memory.
		default:
			runtime.GC() // empties pools that were not used between two collections
			debug.FreeOSMemory()
			wait, trimmed = min(2*wait, maxTrimInterval), true
			unfreed = readMemory().unneededBytes
		}
		if trimmed || !unmappedOnce {
			unmappedOnce = true
			n, err := dropProgramPages()
			log.Debug("unmapped pages of the program", "bytes", n, "error", err)
		}
		cycles = readMemory().cycles
		timer.Reset(wait)
	}
}

// memoryStats holds the runtime values that trim uses.
type memoryStats struct {
	cycles        uint64 // collections so far
	liveBytes     uint64 // bytes that the last collection found live
	unneededBytes uint64 // bytes of the heap that are not live
}

func readMemory() memoryStats {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return memoryStats{cycles: value(0), liveBytes: value(1), unneededBytes: value(2) + value(3) + value(4) - min(value(1), value(2))}
}
