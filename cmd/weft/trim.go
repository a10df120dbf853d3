package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// trimEvery is how often memory that is not needed any more is looked for.
	trimEvery = 15 * time.Second
	// trimFrom is from how many bytes of it on it is worth a collection.
	trimFrom = 4 << 20
)

// trim gives memory back that a burst of traffic has left behind. On a proxy
// that hardly allocates, the runtime collects garbage so seldom that buffers and
// stacks of thousands of connections would stay for minutes. It acts only when
// the runtime has not collected since the last look: then the process is quiet.
func trim(ctx context.Context) {
	ticker := time.NewTicker(trimEvery)
	defer ticker.Stop()
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	var cycles uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(samples)
		value := func(i int) uint64 { return samples[i].Value.Uint64() }
		unneeded := value(2) + value(3) + value(4) - min(value(1), value(2))
		if quiet := value(0) == cycles; quiet && unneeded > trimFrom {
			runtime.GC() // pools give up what was not used between two collections
			debug.FreeOSMemory()
			metrics.Read(samples[:1])
		}
		cycles = value(0)
	}
}
