// Package histogram records latencies without allocating and answers quantiles
// of them with a bounded relative error.
package histogram

import (
	"math/bits"
	"time"
)

const (
	// precision is the number of bits kept of a value below its leading one: the
	// relative error of a quantile is at most 2^-precision, 0.8 %.
	precision = 7
	steps     = 1 << precision
	// largest is the highest leading bit that is told apart: 2^40 ns are 18
	// minutes, longer than any run.
	largest = 40
	buckets = (largest - precision + 2) * steps
)

// Histogram counts durations in buckets whose width grows with the value. The
// zero value is empty and ready. It is not safe for concurrent use.
type Histogram struct {
	counts [buckets]uint64
	total  uint64
	sum    time.Duration
	max    time.Duration
}

// Record counts d once. A negative d counts as 0, one above 2^41 ns as that.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[index(uint64(d))]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.total }

// Max returns the longest recorded duration, exactly; 0 if there is none.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean returns the mean of the recorded durations, exactly; 0 if there is none.
func (h *Histogram) Mean() time.Duration {
	if h.total == 0 {
		return 0
	}
	return h.sum / time.Duration(h.total)
}

// Quantile returns the smallest bucket's upper bound that at least the share q
// of the recorded durations do not exceed, q between 0 and 1; 0 if nothing was
// recorded. It is never more than Max.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := max(uint64(q*float64(h.total)+0.5), 1)
	seen := uint64(0)
	for i, n := range h.counts {
		seen += n
		if seen >= rank {
			return min(time.Duration(upper(i)), h.max)
		}
	}
	return h.max
}

// index returns the bucket of v: values below 2*steps have one each, above them
// every power of two has steps of them.
func index(v uint64) int {
	if v < 2*steps {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - precision
	return min(shift*steps+int(v>>shift), buckets-1)
}

// upper returns the largest value of bucket i.
func upper(i int) uint64 {
	if i < 2*steps {
		return uint64(i)
	}
	shift := i/steps - 1
	return (uint64(i-shift*steps)+1)<<shift - 1
}
