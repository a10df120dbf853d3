package proxy

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestDrainCancelsBackgroundTasks verifies that Drain cancels the background tasks of filters at
// its deadline and waits for them.
func TestDrainCancelsBackgroundTasks(t *testing.T) {
	started, ended := make(chan struct{}), false
	background := filter.StreamFilterFactory{
		Name: "background", Stage: filter.AfterRoute,
		Config: func() any { return new(mark) },
		New: func(_ any, env filter.Env) (filter.Filter, error) {
			return func(next protocol.Service) protocol.Service {
				return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					env.ClusterClient.Go(func(ctx context.Context) {
						close(started)
						<-ctx.Done()
						ended = true
					})
					return x.Serve(ctx, next)
				})
			}, nil
		},
	}
	r, address := setup{filters: `{"type": "background"}`, routes: directRoute("hello")}.run(t, background)
	if got := dialClient(t, address).roundTrip(get("/")); got.body != "hello" {
		t.Errorf("response %q, want %q", got.body, "hello")
	}
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.server.Drain(ctx)
	if !ended {
		t.Error("Drain did not wait for the background task")
	}
}

func TestBackgroundTaskPanicIsRecovered(t *testing.T) {
	r := newRig(t)
	clusterClient{server: r.server}.Go(func(context.Context) { panic("a defect") })
	r.server.tasks.Wait()
	if n := r.value("weft_panics_total"); n != 1 {
		t.Errorf("%v panics were counted, want 1", n)
	}
}
