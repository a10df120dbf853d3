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

// benchEnv is a Discovery of these sizes, with the registry in memory.
type benchEnv struct {
	b         *testing.B
	server    *memory.Server
	peers     registry.Registry // registers the providers that the Discovery uses
	discovery *dubbo.Discovery
	end       func()
	file      string // the state file; "": none

	applied chan layers.Change // receives changes if not nil
	changes int
}

// providerURL returns a provider URL of typical content and length, as Java writes it.
func providerURL(service, provider int, more string) registry.URL {
	name := fmt.Sprintf("com.example.inventory.Service%d", service)
	u, err := registry.Parse(fmt.Sprintf("dubbo://10.%d.%d.%d:20880/%s?anyhost=true&application=inventory-provider&background=false&deprecated=false"+
		"&dubbo=2.0.2&dynamic=true&generic=false&interface=%s&methods=create,get,list,update&pid=%d&release=2.7.23&revision=1.4.2&side=provider"+
		"&timeout=1000&timestamp=1700000000000&version=1.0.0%s", service>>8, service&255, provider+1, name, name, 1000+provider, more))
	if err != nil {
		panic(err)
	}
	return u
}

func newBenchEnv(b *testing.B) *benchEnv {
	s := &benchEnv{b: b, server: memory.NewServer()}
	var err error
	if s.peers, err = s.server.Open(registry.Options{}); err != nil {
		b.Fatal(err)
	}
	for service := range benchSubscribed {
		for provider := range benchProviders {
			if err := s.peers.Register(b.Context(), providerURL(service, provider, "")); err != nil {
				b.Fatal(err)
			}
		}
	}
	return s
}

func (s *benchEnv) newDiscovery() {
	var err error
	s.discovery, err = dubbo.New(dubbo.Options{
		Registries: map[string]registry.OpenFunc{"memory": s.server.Open},
		Config:     config.DubboRegistry{Enable: true, Host: "10.200.0.1", ServerPort: 20080, StateFile: s.file},
		Apply: func(_ context.Context, c layers.Change) error {
			s.changes++
			if s.applied != nil {
				s.applied <- c
			}
			return nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.b.Fatal(err)
	}
}

// start creates a Discovery and makes all requests, several concurrently.
func (s *benchEnv) start() {
	s.newDiscovery()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.discovery.Run(ctx); err != nil {
			s.b.Error(err)
		}
	}()
	s.end = func() {
		cancel()
		<-ended
	}
	work := make(chan func() error)
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			for f := range work {
				if err := f(); err != nil {
					s.b.Error(err)
				}
			}
		})
	}
	for i := range max(benchPublished, benchSubscribed) {
		if i < benchPublished {
			q := dubbo.Request{Service: dubbo.Service{Interface: fmt.Sprintf("com.example.order.Service%d", i), Methods: []string{"create", "get"}, Version: "1.0.0"}}
			work <- func() error { return s.discovery.Publish(ctx, q) }
		}
		q := dubbo.Request{Service: dubbo.Service{Interface: fmt.Sprintf("com.example.inventory.Service%d", i), Version: "1.0.0"}}
		work <- func() error { return s.discovery.Subscribe(ctx, q) }
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
	s := newBenchEnv(b)
	for b.Loop() {
		b.StopTimer()
		s.discovery = nil // drop the Discovery of the previous round
		before := heap()
		b.StartTimer()
		s.start()
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/(1<<20), "MB")
		b.ReportMetric(float64(s.changes), "changes")
		s.changes = 0
		if t := s.discovery.Totals(); t.Registered != benchPublished || t.Subscribed != benchSubscribed || t.Providers != benchSubscribed*benchProviders {
			b.Fatalf("the totals are %+v", t)
		}
		s.end()
		b.StartTimer()
	}
}

// BenchmarkScrape measures a scrape of the metrics of 3,000 services.
func BenchmarkScrape(b *testing.B) {
	s := newBenchEnv(b)
	s.start()
	defer s.end()
	r := metrics.New(metrics.Options{})
	r.Discovery(func() metrics.Discovery { return metrics.Discovery(s.discovery.Totals()) })
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
	s := newBenchEnv(b)
	s.start()
	defer s.end()
	s.applied = make(chan layers.Change)
	u := providerURL(7, benchProviders, "")
	there := false
	for b.Loop() {
		var err error
		if there = !there; there {
			err = s.peers.Register(b.Context(), u)
		} else {
			err = s.peers.Unregister(b.Context(), u)
		}
		if err != nil {
			b.Fatal(err)
		}
		if c := <-s.applied; len(c.Clusters) != 1 || c.Routes != nil {
			b.Fatalf("the change is %+v, want one cluster", c)
		}
	}
}

// BenchmarkRestart measures the time to restore a state file, including clusters and routes.
func BenchmarkRestart(b *testing.B) {
	s := newBenchEnv(b)
	s.file = filepath.Join(b.TempDir(), "state.json")
	s.start()
	s.end()
	for b.Loop() {
		s.newDiscovery()
		if clusters, _ := s.discovery.Resources(); len(clusters) != benchSubscribed {
			b.Fatalf("%d clusters, want %d", len(clusters), benchSubscribed)
		}
	}
	info, err := os.Stat(s.file)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/(1<<20), "file-MB")
}

// BenchmarkSubscribe measures one Subscribe and Unsubscribe among these services.
func BenchmarkSubscribe(b *testing.B) {
	s := newBenchEnv(b)
	s.start()
	defer s.end()
	q := dubbo.Request{Service: dubbo.Service{Interface: "com.example.order.Service1", Version: "1.0.0"}}
	var longest time.Duration
	for b.Loop() {
		began := time.Now()
		if err := s.discovery.Subscribe(b.Context(), q); err != nil {
			b.Fatal(err)
		}
		if err := s.discovery.Unsubscribe(b.Context(), q); err != nil {
			b.Fatal(err)
		}
		longest = max(longest, time.Since(began))
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
}
