package dubbo

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/registry"
)

// slowRegistry is a registry that reports a provider of each service a second after a
// subscription.
type slowRegistry struct{ registry.Registry }

func (slowRegistry) Register(context.Context, registry.URL) error   { return nil }
func (slowRegistry) Unregister(context.Context, registry.URL) error { return nil }
func (slowRegistry) State() registry.State                          { return registry.State{Connected: true, SessionCount: 1} }
func (slowRegistry) Close(context.Context)                          {}

func (slowRegistry) Subscribe(s registry.Service, notify func(registry.Snapshot)) (stop func()) {
	u, err := registry.Parse("dubbo://10.0.0.1:20880/" + s.Interface + "?interface=" + s.Interface)
	if err != nil {
		panic(err)
	}
	timer := time.AfterFunc(time.Second, func() { notify(registry.Snapshot{Providers: []registry.URL{u}}) })
	return func() { timer.Stop() }
}

// hookedSource calls hook once, when a service without subscriptions is planned.
type hookedSource struct {
	planSource

	hook func()
}

func (i *hookedSource) planInput(key registry.Service, now time.Time, awaitFirst bool) planInput {
	input := i.planSource.planInput(key, now, awaitFirst)
	if callback := i.hook; callback != nil && input.awaitUntil.IsZero() && len(input.snapshots) == 0 {
		i.hook = nil
		callback()
	}
	return input
}

// TestSubscribeAgainWaitsForTheFirstSnapshot covers a subscription that starts while the loop plans
// the end of the previous one.
func TestSubscribeAgainWaitsForTheFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		hosts := -1 // of the active cluster; -1: none
		d, err := New(Options{
			Registries: map[string]registry.OpenFunc{"fake": func(registry.Options) (registry.Registry, error) { return slowRegistry{}, nil }},
			Config:     config.DubboRegistry{Enable: true, Host: "10.1.1.1", ServerPort: 20080},
			Apply: func(_ context.Context, c layers.Change) error {
				mu.Lock()
				defer mu.Unlock()
				if len(c.Removed) > 0 {
					hosts = -1
				}
				for _, cluster := range c.Clusters {
					hosts = len(cluster.Hosts)
				}
				return nil
			},
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		req := Request{Registry: Registry{Type: "fake", Address: "h:1"}, Service: Service{Interface: "x", Methods: []string{"get"}}}
		var calls sync.WaitGroup
		d.planner.input = &hookedSource{d.subscriber, func() {
			calls.Go(func() {
				start := time.Now()
				if err := d.Subscribe(t.Context(), req); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if hosts != 1 {
					t.Errorf("Subscribe returned after %v with a cluster of %d hosts, want the provider that the registry reports after 1s", time.Since(start), hosts)
				}
			})
			<-time.After(time.Millisecond) // by then Subscribe has subscribed
		}}
		ctx, end := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = d.Run(ctx) })
		synctest.Wait()

		shortCtx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := d.Subscribe(shortCtx, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first Subscribe: %v, want %v", err, context.DeadlineExceeded)
		}
		if err := d.Unsubscribe(t.Context(), req); err != nil {
			t.Error(err)
		}
		calls.Wait()
		end()
		run.Wait()
	})
}
