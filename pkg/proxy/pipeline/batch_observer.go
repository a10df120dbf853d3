package pipeline

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// NewBatchObserver returns an observer for a goroutine that ends many exchanges of the chain.
func (s *Live) NewBatchObserver() *BatchObserver { return &BatchObserver{live: s} }

// BatchObserver records the exchanges of one listener that one goroutine ends, like Live.Observe.
// It sums consecutive exchanges with equal keys, which avoids most of the cost when many end
// together. It implements stream.BatchObserver.
type BatchObserver struct {
	live *Live

	pipeline *Pipeline // pipeline of the sum; nil: the sum is empty
	key      recordKey
	sum      metrics.Batch
}

// maxBatch is the maximum number of exchanges in a sum. It limits how far metrics of a busy
// listener lag.
const maxBatch = 1024

// Enter implements stream.BatchObserver. Metrics count the exchange only for its listener, so they
// do not need its request.
func (t *BatchObserver) Enter(x *protocol.Exchange) (readsRequest bool) {
	c := t.live.acquire()
	c.recorder.listener.Active.Add(1)
	x.Record.Listener, x.Record.Method = c, noMethod{}
	return len(c.recorder.logs) > 0 || len(c.recorder.observers) > 0
}

// noMethod is the method of an exchange that metrics count for no RPC method.
type noMethod struct{}

// Name implements protocol.Named.
func (noMethod) Name() string { return "" }

// Observe implements stream.BatchObserver.
func (t *BatchObserver) Observe(x *protocol.Exchange) {
	c, ok := x.Record.Listener.(*Pipeline)
	if !ok {
		t.live.Observe(x)
		return
	}
	counted := false
	defer func() {
		if !counted { // a panic is in progress
			c.recorder.listener.Active.Add(-1)
			c.releaseN(1)
		}
	}()
	w := c.recorder.keyOf(x)
	if t.pipeline != c || !t.key.equal(&w) || t.sum.Len() == maxBatch {
		t.Flush()
		t.pipeline, t.key, t.sum.Outcome = c, w, w.outcome
	}
	t.sum.AddRequest(requestMetrics(x))
	counted = true
	c.recorder.write(x)
}

// Flush implements stream.BatchObserver.
func (t *BatchObserver) Flush() {
	c := t.pipeline
	if c == nil {
		return
	}
	n := t.sum.Len()
	defer c.releaseN(n)
	defer t.clear() // deferred in case a recorder panics: nothing is released twice
	c.recorder.listener.Active.Add(-int64(n))
	c.recorder.add(&t.key, t.sum)
}

func (t *BatchObserver) clear() { t.pipeline, t.key, t.sum = nil, recordKey{}, metrics.Batch{} }
