package pipeline

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// panickingScope is a scope whose first Add panics if armed.
type panickingScope struct{ armed bool }

func (*panickingScope) Name() string { return "faulty" }

func (p *panickingScope) Add(metrics.Batch) {
	if p.armed {
		p.armed = false
		panic("panic in a scope")
	}
}

// panickingLog is an access log whose first Observe panics if armed.
type panickingLog struct {
	armed bool
	lines int
}

func (l *panickingLog) Observe(*protocol.Exchange) {
	if l.armed {
		l.armed = false
		panic("panic in an access log")
	}
	l.lines++
}

func (*panickingLog) Close() {}

// TestRecorderPanicReleasesPipeline verifies that after a panic in a scope, an access log or an
// observer no exchange keeps a reference to the pipeline, and that later exchanges are recorded,
// with and without a BatchObserver. The test recovers panics as engines do.
func TestRecorderPanicReleasesPipeline(t *testing.T) {
	for _, point := range []string{"scope", "access log", "observer"} {
		for _, batching := range []string{"", ", batch of one", ", batch of many"} {
			name := point + batching
			t.Run(name, func(t *testing.T) {
				r := newTestMetrics(t)
				rec := newTestRecorder(t, r)
				scope, log, observerPanics := &panickingScope{point == "scope"}, &panickingLog{armed: point == "access log"}, point == "observer"
				rec.logs = []exchangeLog{log}
				rec.observers = []Observer{func(*protocol.Exchange) {
					if observerPanics {
						observerPanics = false
						panic("panic in an observer")
					}
				}}
				live := new(Live)
				p := New("in", protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), rec, nil)
				live.Activate(p)
				observer := live.NewBatchObserver()
				panics := 0
				call := func(f func()) {
					var err error
					func() {
						defer protocol.RecoverPanic(&err)
						f()
					}()
					if protocol.PanicIn(err) != nil {
						panics++
					}
				}
				for i := range 3 {
					x := rpcExchange("shop.Items", "list", i)
					if err := x.Serve(t.Context(), live); err != nil {
						t.Fatal(err)
					}
					x.Record.Route = scope
					if batching == "" {
						call(func() { live.Observe(x) })
						continue
					}
					call(func() { observer.Observe(x) })
					if batching == ", batch of one" {
						call(observer.Flush)
					}
				}
				call(observer.Flush)
				if panics != 1 {
					t.Errorf("%d panics, want 1", panics)
				}
				if refs, active := p.refs.Load(), rec.listener.Active.Value(); refs != 1 || active != 0 {
					t.Errorf("%d references and %d active exchanges, want 1 and 0", refs, active)
				}
				if log.lines < 2 {
					t.Errorf("%d exchanges were logged, want at least 2", log.lines)
				}
			})
		}
	}
}
