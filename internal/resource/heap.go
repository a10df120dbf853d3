package resource

import "runtime/metrics"

// Heap returns how much memory the runtime has of the system and uses, in bytes:
// objects, those among them that are garbage, stacks and what manages them; not what
// is free, whether it was given back or not.
func Heap() int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	used := samples[0].Value.Uint64() - samples[1].Value.Uint64() - samples[2].Value.Uint64()
	return int64(used) //nolint:gosec // no machine has that much
}
