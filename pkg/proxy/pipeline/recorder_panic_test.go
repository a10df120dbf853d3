package pipeline

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// panickingScope is a scope whose first Add panics.
type panickingScope struct{ armed bool }

func (*panickingScope) Name() string { return "faulty" }

func (p *panickingScope) Add(metrics.Batch) {
	if p.armed {
		p.armed = false
		panic("panic in a scope")
	}
}

// panickingLog is an access log whose first Observe panics.
type panickingLog struct {
	armed bool
	lines int
}

func (s *panickingLog) Observe(*protocol.Exchange) {
	if s.armed {
		s.armed = false
		panic("panic in an access log")
	}
	s.lines++
}

func (*panickingLog) Close() {}

// TestRecorderPanicReleasesPipeline verifies that a panic in a scope, an access log or an observer
// leaves no references to the pipeline and that later exchanges are recorded, with and without a
// BatchObserver. The test recovers panics as engines do.
func TestRecorderPanicReleasesPipeline(t *testing.T) {
	for _, point := range []string{"scope", "access log", "observer"} {
		for _, tallied := range []string{"", ", batch of one", ", batch of many"} {
			name := point + tallied
			t.Run(name, func(t *testing.T) {
				r := newTestMetrics(t)
				rec := newTestRecorder(t, r)
				place, sink, observing := &panickingScope{point == "scope"}, &panickingLog{armed: point == "access log"}, point == "observer"
				rec.logs = []exchangeLog{sink}
				rec.observers = []Observer{func(*protocol.Exchange) {
					if observing {
						observing = false
						panic("panic in an observer")
					}
				}}
				s := new(Live)
				c := New("in", protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), rec, nil)
				s.Activate(c)
				tallies := s.NewBatchObserver()
				panics := 0
				contained := func(f func()) {
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
					if err := x.Serve(t.Context(), s); err != nil {
						t.Fatal(err)
					}
					x.Record.Route = place
					if tallied == "" {
						contained(func() { s.Observe(x) })
						continue
					}
					contained(func() { tallies.Observe(x) })
					if tallied == ", batch of one" {
						contained(tallies.Flush)
					}
				}
				contained(tallies.Flush)
				if panics != 1 {
					t.Errorf("%d panics, want 1", panics)
				}
				if held, active := c.refs.Load(), rec.listener.Active.Value(); held != 1 || active != 0 {
					t.Errorf("%d references and %d active exchanges, want 1 and 0", held, active)
				}
				if sink.lines < 2 {
					t.Errorf("%d exchanges were logged, want at least 2", sink.lines)
				}
			})
		}
	}
}
