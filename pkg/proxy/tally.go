package proxy

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// batchObserver accounts for the exchanges of one listener that one goroutine ends, as
// serving.Observe does: of those in a row that went one way and ended alike it keeps
// the sum. Where many end at once that is most of what counting costs. It is a
// stream.BatchObserver.
type batchObserver struct {
	serving *livePipeline

	by  *pipeline // what served those in sum; nil if it is empty
	way recordKey
	sum metrics.Sum
}

// maxBatch is how many exchanges a sum holds: nobody who looks at the metrics of a
// busy listener should find them far behind.
const maxBatch = 1024

// Enter is stream.BatchObserver's. Metrics count the exchange by its listener only, so that they do
// not need its request.
func (t *batchObserver) Enter(x *protocol.Exchange) (readsRequest bool) {
	c := t.serving.take()
	c.record.listener.Active.Add(1)
	x.Record.Listener, x.Record.Method = c, noMethod{}
	return len(c.record.logs) > 0 || len(c.record.observers) > 0
}

// noMethod stands for the RPC method of an exchange that metrics count by no method.
type noMethod struct{}

// Name is protocol.Named's.
func (noMethod) Name() string { return "" }

// Observe is stream.BatchObserver's.
func (t *batchObserver) Observe(x *protocol.Exchange) {
	c, ok := x.Record.Listener.(*pipeline)
	if !ok {
		t.serving.Observe(x)
		return
	}
	counted := false
	defer func() {
		if !counted { // a panic is on its way
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

// Flush is stream.BatchObserver's.
func (t *batchObserver) Flush() {
	c := t.by
	if c == nil {
		return
	}
	n := t.sum.Len()
	defer c.releaseAll(n)
	defer t.clear() // also if an account panics: nothing is released twice
	c.record.listener.Active.Add(-int64(n))
	c.record.add(&t.way, t.sum)
}

func (t *batchObserver) clear() { t.by, t.way, t.sum = nil, recordKey{}, metrics.Sum{} }
