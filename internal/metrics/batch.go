package metrics

import "time"

// Recorder counts requests. Safe for concurrent use.
type Recorder interface{ Add(b Batch) }

// Outcome is the result of a request.
type Outcome struct {
	Protocol string // name from a small set; retained
	Reason   uint8  // index into Options.Reasons; 0: no failure
	Status   int    // HTTP status or its equivalent; 0: no response
	Code     int    // status of an RPC request in the protocol's own numbers; negative: none
	// UpstreamStatus is the status of the last host's response, as in Status. It may differ from
	// the status that the client got. 0: no host responded.
	UpstreamStatus int
}

// Batch counts one or more requests with the same outcome, which are added to a Recorder together.
// The zero value is empty and has a zero Outcome.
type Batch struct {
	Outcome

	count, attempts   uint32
	low, high         uint8 // cells outside [low, high) are 0
	cells             [bucketCount]uint32
	nanoseconds       uint64
	bytesIn, bytesOut uint64
}

// Request holds the values of one request that a Batch counts.
type Request struct {
	Duration time.Duration // from the first byte of the request to the last byte of the response
	BytesIn  int64         // body bytes of the request
	BytesOut int64         // body bytes of the response
	Attempts int           // attempts, including the first
}

// AddRequest adds a request with the outcome of b.
func (b *Batch) AddRequest(r Request) {
	d := max(r.Duration, 0)
	bucket := uint8(bucketOf(d))
	if b.count == 0 {
		b.low, b.high = bucket, bucket+1
	} else {
		b.low, b.high = min(b.low, bucket), max(b.high, bucket+1)
	}
	b.count++
	b.cells[bucket]++
	b.nanoseconds += uint64(d)
	b.bytesIn += uint64(max(r.BytesIn, 0))
	b.bytesOut += uint64(max(r.BytesOut, 0))
	b.attempts += uint32(max(r.Attempts, 1)) //nolint:gosec // at most a few
}

// Len returns the number of counted requests.
func (b *Batch) Len() int { return int(b.count) }

// Retries returns the number of counted attempts beyond the first of each request.
func (b *Batch) Retries() int { return int(b.attempts - b.count) }

// addTo adds the counts by duration to dst.
func (b *Batch) addTo(dst *row) {
	for i := b.low; i < b.high; i++ {
		if n := b.cells[i]; n > 0 {
			dst[i].Add(uint64(n))
		}
	}
}
