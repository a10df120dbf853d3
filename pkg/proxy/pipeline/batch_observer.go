package pipeline

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// NewBatchObserver returns an observer for a goroutine that ends many exchanges of the chain.
func (l *Live) NewBatchObserver() *BatchObserver { return &BatchObserver{live: l} }

// BatchObserver records the exchanges of one filter chain that one goroutine ends, like
// Live.Observe. It sums consecutive exchanges with equal keys, which avoids most of the cost when
// many end together. It implements stream.BatchObserver.
type BatchObserver struct {
	live *Live

	pipeline *Pipeline // pipeline of the sum; nil: the sum is empty
	key      recordKey
	sum      metrics.Batch
}

// maxBatch is the maximum number of exchanges in a sum. It limits how far metrics of a busy
// listener lag.
const maxBatch = 1024

// BindConfig implements stream.BatchObserver. Metrics count the exchange only for its listener, so
// only access logs and observers need its request.
func (o *BatchObserver) BindConfig(x *protocol.Exchange) (readsRequest bool) {
	p := o.live.acquire()
	p.recorder.listener.Active.Add(1)
	x.Record.Listener, x.Record.Method = p, noMethod{}
	return len(p.recorder.logs) > 0 || len(p.recorder.observers) > 0
}

// noMethod is the method of an exchange that metrics count for no RPC method.
type noMethod struct{}

// Name implements protocol.Named.
func (noMethod) Name() string { return "" }

// Observe implements stream.BatchObserver.
func (o *BatchObserver) Observe(x *protocol.Exchange) {
	p, ok := x.Record.Listener.(*Pipeline)
	if !ok {
		o.live.Observe(x)
		return
	}
	counted := false
	defer func() {
		if !counted { // a panic is in progress
			p.recorder.listener.Active.Add(-1)
			p.releaseN(1)
		}
	}()
	key := p.recorder.keyOf(x)
	if o.pipeline != p || !o.key.equal(&key) || o.sum.Len() == maxBatch {
		o.Flush()
		o.pipeline, o.key, o.sum.Outcome = p, key, key.outcome
	}
	o.sum.AddRequest(requestMetrics(x))
	counted = true
	p.recorder.write(x)
}

// Flush implements stream.BatchObserver.
func (o *BatchObserver) Flush() {
	p := o.pipeline
	if p == nil {
		return
	}
	n := o.sum.Len()
	defer p.releaseN(n)
	defer o.clear() // deferred in case a recorder panics: nothing is released twice
	p.recorder.listener.Active.Add(-int64(n))
	p.recorder.add(&o.key, o.sum)
}

func (o *BatchObserver) clear() { o.pipeline, o.key, o.sum = nil, recordKey{}, metrics.Batch{} }
