package proxy

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
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

// panickingLog is the file of an access log that panics, once.
type panickingLog struct {
	armed bool
	lines int
}

func (s *panickingLog) Write(p []byte) (int, error) {
	if s.armed {
		s.armed = false
		panic("a defect of an access log")
	}
	s.lines++
	return len(p), nil
}

func (*panickingLog) Close() error { return nil }

// TestRecorderPanicReleasesPipeline has what counts exchanges, writes
// them to an access log, or observes them panic, one at a time and for tallies. The engine
// contains it. The composition holds no exchange afterwards and the next ones are
// recorded.
func TestRecorderPanicReleasesPipeline(t *testing.T) {
	for _, point := range []string{"account", "access log", "observer"} {
		for _, tallied := range []string{"", ", behind a tally", ", behind a tally of many"} {
			name := point + tallied
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				rec := recordFor(r)
				line, err := variable.Compile("%method%")
				if err != nil {
					t.Fatal(err)
				}
				place, sink, observing := &panickingScope{point == "account"}, &panickingLog{armed: point == "access log"}, point == "observer"
				log := &AccessLog{out: sink, parts: []logPart{{value: line}, {text: "\n"}}}
				log.lines.New = func() any { return new([]byte) }
				rec.logs = []*AccessLog{log}
				rec.observers = []exchangeObserver{func(*protocol.Exchange) {
					if observing {
						observing = false
						panic("a defect of an observer")
					}
				}}
				s := new(livePipeline)
				c := newPipeline("in", protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), rec)
				s.active.Store(c)
				tallies := &batchObserver{live: s}
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
