package pipeline

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// panickingScope is a place whose account panics, once.
type panickingScope struct{ armed bool }

func (*panickingScope) Name() string { return "faulty" }

func (p *panickingScope) Add(metrics.Batch) {
	if p.armed {
		p.armed = false
		panic("a defect of an account")
	}
}

// panickingLog is an access log that panics, once.
type panickingLog struct {
	armed bool
	lines int
}

func (s *panickingLog) Observe(*protocol.Exchange) {
	if s.armed {
		s.armed = false
		panic("a defect of an access log")
	}
	s.lines++
}

func (*panickingLog) Close() {}

// TestRecorderPanicReleasesPipeline has what counts exchanges, writes
// them to an access log, or observes them panic, one at a time and for tallies. The engine
// contains it. The composition holds no exchange afterwards and the next ones are
// recorded.
func TestRecorderPanicReleasesPipeline(t *testing.T) {
	for _, point := range []string{"account", "access log", "observer"} {
		for _, tallied := range []string{"", ", behind a tally", ", behind a tally of many"} {
			name := point + tallied
			t.Run(name, func(t *testing.T) {
				r := newTestMetrics(t)
				rec := newTestRecorder(t, r)
				place, sink, observing := &panickingScope{point == "account"}, &panickingLog{armed: point == "access log"}, point == "observer"
				rec.logs = []exchangeLog{sink}
				rec.observers = []Observer{func(*protocol.Exchange) {
					if observing {
						observing = false
						panic("a defect of an observer")
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
					if tallied == ", behind a tally" {
						contained(tallies.Flush)
					}
				}
				contained(tallies.Flush)
				if panics != 1 {
					t.Errorf("%d panics, want 1", panics)
				}
				if held, active := c.refs.Load(), rec.listener.Active.Value(); held != 1 || active != 0 {
					t.Errorf("%d are held and %d are active, want the composition itself and none", held, active)
				}
				if sink.lines < 2 {
					t.Errorf("%d exchanges are logged, want 2 at least", sink.lines)
				}
			})
		}
	}
}
