package adaptiveconcurrency

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets of a histogram: of a microsecond each up to fine, then fine for each
// doubling, so that a bucket is at most a thirty-second of what falls into it.
const (
	fine      = 32
	fineBits  = 5
	octaves   = 27 // beyond fine: up to more than an hour
	bucketSum = fine * octaves
)

// histogram counts durations until they are drained. The zero histogram is empty. Safe
// for concurrent use; what is added while it is drained counts then or the next time.
type histogram struct {
	buckets [bucketSum]atomic.Uint32
}

// add counts d.
func (h *histogram) add(d time.Duration) { h.buckets[bucketOf(d)].Add(1) }

// bucketOf returns the bucket that d falls into. What is shorter than nothing falls into
// the first, what is longer than all into the last.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0)) / uint64(time.Microsecond)
	if v < fine {
		return int(v)
	}
	shift := bits.Len64(v) - fineBits - 1
	return min(fine*shift+int(v>>shift), bucketSum-1)
}

// bounds returns the shortest duration that falls into a bucket, and how many do.
func bounds(bucket int) (first, width time.Duration) {
	if bucket < 2*fine {
		return time.Duration(bucket) * time.Microsecond, time.Microsecond
	}
	shift := bucket/fine - 1
	return time.Duration(bucket-fine*shift) << shift * time.Microsecond, time.Microsecond << shift
}

// atLeast reports whether h has so many durations.
func (h *histogram) atLeast(count int) bool {
	for i := range h.buckets {
		if count -= int(h.buckets[i].Load()); count <= 0 {
			return true
		}
	}
	return false
}

// drain empties h and returns how many durations it had, and which so many percent of
// them do not exceed; 0 if there were none.
func (h *histogram) drain(percent float64) (value time.Duration, count int) {
	var taken [bucketSum]uint32
	for i := range h.buckets {
		if h.buckets[i].Load() != 0 {
			taken[i] = h.buckets[i].Swap(0)
			count += int(taken[i])
		}
	}
	rank := float64(count) * percent / 100
	below := 0.0
	for i, n := range taken {
		if n == 0 {
			continue
		}
		if share := (rank - below) / float64(n); share <= 1 {
			first, width := bounds(i)
			return first + time.Duration(max(share, 0)*float64(width)), count
		}
		below += float64(n)
	}
	return 0, count
}
