package metrics

import "time"

// Account takes what requests come to. Safe for concurrent use.
type Account interface{ Add(s Sum) }

// Outcome is how a request ended.
type Outcome struct {
	Protocol string // its name; one of few, and kept
	Reason   uint8  // position in Options.Reasons; 0: it did not fail
	Status   int    // HTTP status, or its equivalent; 0: no answer
	Code     int    // status of an RPC request in the protocol's own numbers; negative: none
	// Answer is what the last host answered, as Status is: what the caller is told may be
	// another. 0: no host answered.
	Answer int
}

// Sum is what requests come to that ended alike: one, or many that an account is told
// of at once. The zero value is empty, of no outcome.
type Sum struct {
	Outcome

	count, attempts uint32
	low, high       uint8 // cells from low up to and without high are those that are not 0
	cells           [bucketCount]uint32
	nanoseconds     uint64
	in, out         uint64
}

// Request is what a Sum counts of a request.
type Request struct {
	Duration time.Duration // from its first byte to its answer's last
	BytesIn  int64         // content bytes of the request
	BytesOut int64         // content bytes of the answer
	Attempts int           // hosts tried
}

// Count adds a request that ended as s says.
func (s *Sum) Count(r Request) {
	d := max(r.Duration, 0)
	bucket := uint8(bucketOf(d))
	if s.count == 0 {
		s.low, s.high = bucket, bucket+1
	} else {
		s.low, s.high = min(s.low, bucket), max(s.high, bucket+1)
	}
	s.count++
	s.cells[bucket]++
	s.nanoseconds += uint64(d)
	s.in += uint64(max(r.BytesIn, 0))
	s.out += uint64(max(r.BytesOut, 0))
	s.attempts += uint32(max(r.Attempts, 1)) //nolint:gosec // a handful
}

// Len returns how many requests have been counted.
func (s *Sum) Len() int { return int(s.count) }

// Retries returns how many attempts beyond each request's first have been counted.
func (s *Sum) Retries() int { return int(s.attempts - s.count) }

// addTo adds the durations to the cells of an account.
func (s *Sum) addTo(of *row) {
	for i := s.low; i < s.high; i++ {
		if n := s.cells[i]; n > 0 {
			of[i].Add(uint64(n))
		}
	}
}
