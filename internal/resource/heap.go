package resource

import "runtime/metrics"

// Heap returns the memory in bytes that the Go runtime has obtained from the system and uses: live
// objects, garbage, stacks and runtime structures. It excludes free memory, whether or not it was
// returned to the system.
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
