package dubbo_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/memory"
)

// The sizes behind the figures in the README.
const (
	benchPublished  = 1000
	benchSubscribed = 2000
	benchProviders  = 20
)

// benchEnv is a Discovery of these sizes, with a registry in memory.
type benchEnv struct {
	b         *testing.B
	server    *memory.Server
	peers     registry.Registry // registers the providers
	discovery *dubbo.Discovery
	end       func()
	file      string // the state file; "": none

	applied chan layers.Change // receives changes if not nil
	changes int
}

// providerURL returns a provider URL of typical content and length, as Java writes it.
func providerURL(service, provider int, extra string) registry.URL {
	name := fmt.Sprintf("com.example.inventory.Service%d", service)
	u, err := registry.Parse(fmt.Sprintf("dubbo://10.%d.%d.%d:20880/%s?anyhost=true&application=inventory-provider&background=false&deprecated=false"+
		"&dubbo=2.0.2&dynamic=true&generic=false&interface=%s&methods=create,get,list,update&pid=%d&release=2.7.23&revision=1.4.2&side=provider"+
		"&timeout=1000&timestamp=1700000000000&version=1.0.0%s", service>>8, service&255, provider+1, name, name, 1000+provider, extra))
	if err != nil {
		panic(err)
	}
	return u
}

func newBenchEnv(b *testing.B) *benchEnv {
	env := &benchEnv{b: b, server: memory.NewServer()}
	var err error
	if env.peers, err = env.server.Open(registry.Options{}); err != nil {
		b.Fatal(err)
	}
	for service := range benchSubscribed {
		for provider := range benchProviders {
			if err := env.peers.Register(b.Context(), providerURL(service, provider, "")); err != nil {
				b.Fatal(err)
			}
		}
	}
	return env
}

func (env *benchEnv) newDiscovery() {
	var err error
	env.discovery, err = dubbo.New(dubbo.Options{
		Registries: map[string]registry.OpenFunc{"memory": env.server.Open},
		Config:     config.DubboRegistry{Enable: true, Host: "10.200.0.1", ServerPort: 20080, StateFile: env.file},
		Apply: func(_ context.Context, c layers.Change) error {
			env.changes++
			if env.applied != nil {
				env.applied <- c
			}
			return nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		env.b.Fatal(err)
	}
}

// start creates a Discovery and makes all requests, several concurrently.
func (env *benchEnv) start() {
	env.newDiscovery()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := env.discovery.Run(ctx); err != nil {
			env.b.Error(err)
		}
	}()
	env.end = func() {
		cancel()
		<-ended
	}
	work := make(chan func() error)
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			for f := range work {
				if err := f(); err != nil {
					env.b.Error(err)
				}
			}
		})
	}
	for i := range max(benchPublished, benchSubscribed) {
		if i < benchPublished {
			req := dubbo.Request{Service: dubbo.Service{Interface: fmt.Sprintf("com.example.order.Service%d", i), Methods: []string{"create", "get"}, Version: "1.0.0"}}
			work <- func() error { return env.discovery.Publish(ctx, req) }
		}
		req := dubbo.Request{Service: dubbo.Service{Interface: fmt.Sprintf("com.example.inventory.Service%d", i), Version: "1.0.0"}}
		work <- func() error { return env.discovery.Subscribe(ctx, req) }
	}
	close(work)
	workers.Wait()
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkReady measures the time from the start until all requests are applied. MB is the heap of
// the Discovery and of what it has applied.
func BenchmarkReady(b *testing.B) {
	env := newBenchEnv(b)
	for b.Loop() {
		b.StopTimer()
		env.discovery = nil // drop the Discovery of the previous round
		heapBefore := heap()
		b.StartTimer()
		env.start()
		b.StopTimer()
		b.ReportMetric(float64(heap()-heapBefore)/(1<<20), "MB")
		b.ReportMetric(float64(env.changes), "changes")
		env.changes = 0
		if t := env.discovery.Totals(); t.RegisteredServices != benchPublished || t.Subscribed != benchSubscribed || t.Providers != benchSubscribed*benchProviders {
			b.Fatalf("totals %+v, want all services registered and subscribed, with all providers", t)
		}
		env.end()
		b.StartTimer()
	}
}

// BenchmarkScrape measures a scrape of the metrics of 3,000 services.
func BenchmarkScrape(b *testing.B) {
	env := newBenchEnv(b)
	env.start()
	defer env.end()
	r := metrics.New(metrics.Options{})
	r.Discovery(func() metrics.Discovery { return metrics.Discovery(env.discovery.Totals()) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOneChange measures the time from the registration or removal of one provider until it is
// applied.
func BenchmarkOneChange(b *testing.B) {
	env := newBenchEnv(b)
	env.start()
	defer env.end()
	env.applied = make(chan layers.Change)
	u := providerURL(7, benchProviders, "")
	registered := false
	for b.Loop() {
		var err error
		if registered = !registered; registered {
			err = env.peers.Register(b.Context(), u)
		} else {
			err = env.peers.Unregister(b.Context(), u)
		}
		if err != nil {
			b.Fatal(err)
		}
		if c := <-env.applied; len(c.Clusters) != 1 || c.Routes != nil {
			b.Fatalf("the change is %+v, want one cluster", c)
		}
	}
}

// BenchmarkRestart measures the time to restore a state file, including clusters and routes.
func BenchmarkRestart(b *testing.B) {
	env := newBenchEnv(b)
	env.file = filepath.Join(b.TempDir(), "state.json")
	env.start()
	env.end()
	for b.Loop() {
		env.newDiscovery()
		if clusters, _ := env.discovery.Resources(); len(clusters) != benchSubscribed {
			b.Fatalf("%d clusters, want %d", len(clusters), benchSubscribed)
		}
	}
	info, err := os.Stat(env.file)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/(1<<20), "file-MB")
}

// BenchmarkSubscribe measures one Subscribe and one Unsubscribe while all services of benchEnv are
// active.
func BenchmarkSubscribe(b *testing.B) {
	env := newBenchEnv(b)
	env.start()
	defer env.end()
	req := dubbo.Request{Service: dubbo.Service{Interface: "com.example.order.Service1", Version: "1.0.0"}}
	var longest time.Duration
	for b.Loop() {
		start := time.Now()
		if err := env.discovery.Subscribe(b.Context(), req); err != nil {
			b.Fatal(err)
		}
		if err := env.discovery.Unsubscribe(b.Context(), req); err != nil {
			b.Fatal(err)
		}
		longest = max(longest, time.Since(start))
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
}
