package dubbo

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/registry"
)

// scriptedRegistry is a registry whose snapshots and session number a test sets.
type scriptedRegistry struct {
	registry.Registry

	mu       sync.Mutex
	sessions int
	watchers map[string]func(registry.Snapshot) // by interface
}

func (*scriptedRegistry) Register(context.Context, registry.URL) error   { return nil }
func (*scriptedRegistry) Unregister(context.Context, registry.URL) error { return nil }
func (*scriptedRegistry) Close(context.Context)                          {}

func (r *scriptedRegistry) State() registry.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return registry.State{Connected: true, SessionCount: r.sessions}
}

func (r *scriptedRegistry) Subscribe(s registry.Service, notify func(registry.Snapshot)) (stop func()) {
	r.mu.Lock()
	r.watchers[s.Interface] = notify
	r.mu.Unlock()
	r.report(s.Interface, 3)
	return func() {}
}

// report reports that an interface has hosts providers.
func (r *scriptedRegistry) report(iface string, hosts int) {
	var snapshot registry.Snapshot
	for i := range hosts {
		u, err := registry.Parse(fmt.Sprintf("dubbo://10.0.0.%d:20880/%s?interface=%s", i+1, iface, iface))
		if err != nil {
			panic(err)
		}
		snapshot.Providers = append(snapshot.Providers, u)
	}
	r.mu.Lock()
	notify := r.watchers[iface]
	r.mu.Unlock()
	notify(snapshot)
}

// beforePlan calls do with each service before its input is read.
type beforePlan struct {
	planSource

	do func(iface string)
}

func (b *beforePlan) planInput(key registry.Service, now time.Time, awaitFirst bool) planInput {
	b.do(key.Interface)
	return b.planSource.planInput(key, now, awaitFirst)
}

// TestSessionChangesWhilePlanning covers the first snapshot of another session, in which most
// providers are missing, that arrives while the loop plans another service.
func TestSessionChangesWhilePlanning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &scriptedRegistry{sessions: 1, watchers: map[string]func(registry.Snapshot){}}
		var mu sync.Mutex
		hosts := map[string]int{} // of the active clusters
		d, err := New(Options{
			Registries: map[string]registry.OpenFunc{"fake": func(registry.Options) (registry.Registry, error) { return fake, nil }},
			Config:     config.DubboRegistry{Enable: true, Host: "10.1.1.1", ServerPort: 20080},
			Apply: func(_ context.Context, c layers.Change) error {
				mu.Lock()
				defer mu.Unlock()
				for _, cluster := range c.Clusters {
					hosts[cluster.Name] = len(cluster.Hosts)
				}
				return nil
			},
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		active, planned := false, "" // owned by the loop while it plans
		d.planner.input = &beforePlan{d.subscriber, func(iface string) {
			if !active {
				return
			}
			if planned == "" { // the first service of the pass
				planned = iface
				return
			}
			active = false
			fake.mu.Lock()
			fake.sessions = 2
			fake.mu.Unlock()
			fake.report(iface, 1) // two of three are missing
		}}
		ctx, end := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = d.Run(ctx) })
		synctest.Wait()
		for _, iface := range []string{"x", "y"} {
			req := Request{Registry: Registry{Type: "fake", Address: "h:1"}, Service: Service{Interface: iface, Methods: []string{"get"}}}
			if err := d.Subscribe(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the loop waits
		active = true
		d.planner.start() // plans both services in one pass
		synctest.Wait()
		<-time.After(time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if active || hosts["x"] != 3 || hosts["y"] != 3 {
			t.Errorf("after a reconnection that lost most providers, the clusters have %v hosts, want 3 each, with retained ones", hosts)
		}
		end()
		run.Wait()
	})
}
