// Package histogram records latencies without allocating and returns quantiles with a bounded
// relative error.
package histogram

import (
	"math/bits"
	"time"
)

const (
	// precision is the number of bits kept of a value below its leading one: the relative error of
	// a quantile is at most 2^-precision, 0.8 %.
	precision  = 7
	subBuckets = 1 << precision
	// maxBits is the highest leading bit with buckets of its own: 2^40 ns is 18 minutes, longer
	// than any run.
	maxBits = 40
	buckets = (maxBits - precision + 2) * subBuckets
)

// Histogram counts durations in buckets whose width grows with the value. The zero value is empty
// and ready. It is not safe for concurrent use.
type Histogram struct {
	counts [buckets]uint64
	total  uint64
	sum    time.Duration
	max    time.Duration
}

// Record counts d once. It counts a negative d as 0 and puts a d of 2^41 ns or more into the last
// bucket.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketIndex(uint64(d))]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.total }

// Max returns the longest recorded duration exactly, or 0 if nothing was recorded.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean returns the mean of the recorded durations, or 0 if nothing was recorded.
func (h *Histogram) Mean() time.Duration {
	if h.total == 0 {
		return 0
	}
	return h.sum / time.Duration(h.total)
}

// Quantile returns the upper bound of the first bucket such that the fraction q of the recorded
// durations do not exceed it; q is between 0 and 1. It returns 0 if nothing was recorded, and never
// more than Max.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := max(uint64(q*float64(h.total)+0.5), 1)
	seen := uint64(0)
	for i, n := range h.counts {
		seen += n
		if seen >= rank {
			return min(time.Duration(bucketUpper(i)), h.max)
		}
	}
	return h.max
}

// bucketIndex returns the bucket of v. Each value below 2*subBuckets has its own bucket; above,
// every power of two has subBuckets buckets.
func bucketIndex(v uint64) int {
	if v < 2*subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - precision
	return min(shift*subBuckets+int(v>>shift), buckets-1)
}

// bucketUpper returns the largest value of bucket i.
func bucketUpper(i int) uint64 {
	if i < 2*subBuckets {
		return uint64(i)
	}
	shift := i/subBuckets - 1
	return (uint64(i-shift*subBuckets)+1)<<shift - 1
}
