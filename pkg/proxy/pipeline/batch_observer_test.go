package pipeline

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestUnstartedExchangeCountsForListenerOnly verifies that metrics count an unstarted exchange only
// for its listener, whether or not an observer reads the request.
func TestUnstartedExchangeCountsForListenerOnly(t *testing.T) {
	for _, observed := range []bool{false, true} {
		r := newTestMetrics(t)
		rec, seen := newTestRecorder(t, r), 0
		if observed {
			rec.observers = append(rec.observers, func(*protocol.Exchange) { seen++ })
		}
		live := new(Live)
		p := New("in", nil, rec, nil)
		live.Activate(p)
		observer := live.NewBatchObserver()
		const n = 3
		for range n {
			x := rpcExchange("shop.Items", "list", protocol.NoCode)
			if got := observer.BindConfig(x); got != observed {
				t.Fatalf("observer %v: BindConfig = %v, want %v", observed, got, observed)
			}
			x.Abandon("disconnected")
			observer.Observe(x)
		}
		observer.Flush()
		for _, test := range []struct {
			metric string
			labels []string
			want   float64
		}{
			{"weft_listener_requests_total", []string{"in"}, n},
			{"weft_listener_request_failures_total", []string{"in", protocol.ReasonDownstreamDisconnect.String()}, n},
			{"weft_listener_requests_active", []string{"in"}, 0},
			{"weft_rpc_requests_total", nil, 0},
		} {
			if got := r.value(test.metric, test.labels...); got != test.want {
				t.Errorf("observer %v: %s%q = %v, want %v", observed, test.metric, test.labels, got, test.want)
			}
		}
		if observed && seen != n {
			t.Errorf("the observer saw %d exchanges, want %d", seen, n)
		}
		if refs := p.refs.Load(); refs != 1 {
			t.Errorf("observer %v: the pipeline has %d references, want 1", observed, refs)
		}
	}
}
