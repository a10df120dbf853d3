package metrics

import (
	"testing"
	"time"
)

// requestOutcome describes one request.
type requestOutcome struct {
	Protocol          string
	Reason            uint8
	Status, Code      int
	Duration          time.Duration
	BytesIn, BytesOut int64
}

// batchOf returns the Batch of one request.
func batchOf(s requestOutcome) Batch {
	sum := Batch{Outcome: Outcome{Protocol: s.Protocol, Reason: s.Reason, Status: s.Status, Code: s.Code}}
	sum.AddRequest(Request{Duration: s.Duration, BytesIn: s.BytesIn, BytesOut: s.BytesOut, Attempts: 1})
	return sum
}

func TestBatchEqualsSingleRequests(t *testing.T) {
	requests := []Request{
		{Duration: 3 * time.Millisecond, BytesIn: 1, BytesOut: 10, Attempts: 1},
		{Duration: 3 * time.Millisecond, BytesIn: 2, BytesOut: 20, Attempts: 3},
		{Duration: time.Hour, Attempts: 2},
		{Duration: -time.Second, BytesIn: -1, BytesOut: -1},
		{Duration: 70 * time.Millisecond, BytesIn: 4, BytesOut: 40, Attempts: 1},
	}
	outcome := Outcome{Protocol: "dubbo", Reason: 1, Status: 200, Code: 20}
	separate, batched := testRegistry(), testRegistry()
	sum := Batch{Outcome: outcome}
	for _, r := range requests {
		single := Batch{Outcome: outcome}
		single.AddRequest(r)
		sum.AddRequest(r)
		addToAll(separate, single)
	}
	addToAll(batched, sum)
	if sum.Len() != 5 || sum.Retries() != 3 {
		t.Errorf("the batch has %d requests and %d retries, want 5 and 3", sum.Len(), sum.Retries())
	}
	for _, prefix := range [...]string{"host_", "route_", "rpc_"} {
		wantLines(t, exported(t, batched, prefix), exported(t, separate, prefix)...)
	}
}

// addToAll adds b to a Recorder of each type.
func addToAll(r *Registry, b Batch) {
	h, _ := r.Host("c", "h")
	h.Add(b)
	var route Route
	route.Open(r.Routes("t"), "v", "r")
	route.Add("v", "r", b)
	r.RPC().Method("s", "m").Add(b)
}
