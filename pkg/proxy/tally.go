package proxy

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// batchObserver accounts for the exchanges of one listener that one goroutine ends, like
// livePipeline.Observe. It sums consecutive exchanges with equal keys, which avoids most of the
// cost when many end together. It implements stream.BatchObserver.
type batchObserver struct {
	serving *livePipeline

	by  *pipeline // pipeline of the sum; nil: the sum is empty
	way recordKey
	sum metrics.Sum
}

// maxBatch is the maximum number of exchanges in a sum. It limits how far metrics of a busy
// listener lag.
const maxBatch = 1024

// Enter implements stream.BatchObserver. Metrics count the exchange only for its listener, so they
// do not need its request.
func (t *batchObserver) Enter(x *protocol.Exchange) (readsRequest bool) {
	c := t.serving.take()
	c.record.listener.Active.Add(1)
	x.Record.Listener, x.Record.Method = c, noMethod{}
	return len(c.record.logs) > 0 || len(c.record.observers) > 0
}

// noMethod is the method of an exchange that metrics count for no RPC method.
type noMethod struct{}

// Name implements protocol.Named.
func (noMethod) Name() string { return "" }

// Observe implements stream.BatchObserver.
func (t *batchObserver) Observe(x *protocol.Exchange) {
	c, ok := x.Record.Listener.(*pipeline)
	if !ok {
		t.serving.Observe(x)
		return
	}
	counted := false
	defer func() {
		if !counted { // a panic is in progress
			c.record.listener.Active.Add(-1)
			c.release()
		}
	}()
	w := c.record.way(x)
	if t.by != c || !t.way.equal(&w) || t.sum.Len() == maxBatch {
		t.Flush()
		t.by, t.way, t.sum.Outcome = c, w, w.outcome
	}
	t.sum.Count(request(x))
	counted = true
	c.record.write(x)
}

// Flush implements stream.BatchObserver.
func (t *batchObserver) Flush() {
	c := t.by
	if c == nil {
		return
	}
	n := t.sum.Len()
	defer c.releaseAll(n)
	defer t.clear() // deferred in case a recorder panics: nothing is released twice
	c.record.listener.Active.Add(-int64(n))
	c.record.add(&t.way, t.sum)
}

func (t *batchObserver) clear() { t.by, t.way, t.sum = nil, recordKey{}, metrics.Sum{} }
