package metrics

import (
	"math/bits"
	"slices"
	"time"
)

// durationBounds are the upper bounds of the duration buckets. They range from the overhead of a
// sidecar (fractions of a millisecond) to client timeouts. Each bound is at least twice the
// previous one: bucketOf relies on it.
//
//nolint:gochecknoglobals // a constant table
var durationBounds = [...]time.Duration{
	100 * time.Microsecond,
	250 * time.Microsecond,
	500 * time.Microsecond,
	1 * time.Millisecond,
	2500 * time.Microsecond,
	5 * time.Millisecond,
	10 * time.Millisecond,
	25 * time.Millisecond,
	50 * time.Millisecond,
	100 * time.Millisecond,
	250 * time.Millisecond,
	500 * time.Millisecond,
	1 * time.Second,
	2500 * time.Millisecond,
	10 * time.Second,
	60 * time.Second,
}

// Bounds returns the upper bounds of the duration buckets, in increasing order. One more bucket
// follows the last bound.
func Bounds() []time.Duration { return slices.Clone(durationBounds[:]) }

// bucketCount includes the bucket beyond the last bound.
const bucketCount = len(durationBounds) + 1

// firstBucket maps the bit width of a duration in nanoseconds to the bucket of the shortest
// duration of that width.
//
//nolint:gochecknoglobals // a constant table
var firstBucket = func() (table [64]uint8) {
	for width := 1; width < len(table); width++ {
		shortest := time.Duration(1) << (width - 1)
		for int(table[width]) < len(durationBounds) && durationBounds[table[width]] < shortest {
			table[width]++
		}
	}
	return table
}()

// bucketOf returns the bucket of d: the first whose bound is not less than d. d must not be
// negative.
//
// Durations of one bit width span less than a factor of two, so at most one bound lies among them
// and one comparison is enough.
func bucketOf(d time.Duration) int {
	i := int(firstBucket[bits.Len64(uint64(d))&63])
	if i < len(durationBounds) && d > durationBounds[i] {
		i++
	}
	return i
}
