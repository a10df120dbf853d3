package adaptiveconcurrency

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets of a histogram: below 2*bucketsPerOctave microseconds, each is one microsecond wide.
// Above, there are bucketsPerOctave buckets per power of two, so that the width of a bucket is at
// most 1/32 of its values.
const (
	bucketsPerOctave = 32
	octaveBits       = 5
	octaves          = 27 // the last bucket begins at about 35 minutes
	bucketCount      = bucketsPerOctave * octaves
)

// histogram counts durations until drain. The zero histogram is empty. It is safe for concurrent
// use: drain may miss a duration that is added concurrently, and then the next drain returns it.
type histogram struct {
	buckets [bucketCount]atomic.Uint32
}

// add counts d.
func (h *histogram) add(d time.Duration) { h.buckets[bucketOf(d)].Add(1) }

// bucketOf returns the index of the bucket of d. Negative durations are in the first bucket, and
// durations beyond the range in the last.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0)) / uint64(time.Microsecond)
	if v < bucketsPerOctave {
		return int(v)
	}
	shift := bits.Len64(v) - octaveBits - 1
	return min(bucketsPerOctave*shift+int(v>>shift), bucketCount-1)
}

// bucketBounds returns the shortest duration of a bucket, and the width of the bucket.
func bucketBounds(bucket int) (start, width time.Duration) {
	if bucket < 2*bucketsPerOctave {
		return time.Duration(bucket) * time.Microsecond, time.Microsecond
	}
	shift := bucket/bucketsPerOctave - 1
	return time.Duration(bucket-bucketsPerOctave*shift) << shift * time.Microsecond, time.Microsecond << shift
}

// hasAtLeast reports whether h holds at least count durations.
func (h *histogram) hasAtLeast(count int) bool {
	for i := range h.buckets {
		if count -= int(h.buckets[i].Load()); count <= 0 {
			return true
		}
	}
	return false
}

// drain empties h and returns a percentile of its durations, interpolated within a bucket, and
// their number. Both are 0 if h was empty.
func (h *histogram) drain(percent float64) (value time.Duration, count int) {
	var counts [bucketCount]uint32
	for i := range h.buckets {
		if h.buckets[i].Load() != 0 {
			counts[i] = h.buckets[i].Swap(0)
			count += int(counts[i])
		}
	}
	rank := float64(count) * percent / 100
	cumulative := 0.0
	for i, n := range counts {
		if n == 0 {
			continue
		}
		if fraction := (rank - cumulative) / float64(n); fraction <= 1 {
			start, width := bucketBounds(i)
			return start + time.Duration(max(fraction, 0)*float64(width)), count
		}
		cumulative += float64(n)
	}
	return 0, count
}
