package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
)

func clustersNamed(names ...string) (all []*config.Cluster) {
	for _, n := range names {
		all = append(all, &config.Cluster{Name: n})
	}
	return all
}

// tableOf returns a route table of services; hosts have the form "domain: route route".
func tableOf(hosts ...string) *config.RouteTable {
	t := &config.RouteTable{Name: config.DubboRouteTable}
	for i, h := range hosts {
		domain, routes, _ := strings.Cut(h, ": ")
		v := &config.VirtualHost{Name: fmt.Sprint("host", i), Domains: []string{domain}}
		for r := range strings.FieldsSeq(routes) {
			v.Routes = append(v.Routes, &config.Route{Name: r})
		}
		t.VirtualHosts = append(t.VirtualHosts, v)
	}
	return t
}

// describe returns the text that tests compare: clusters, then route tables with their virtual
// hosts.
func describe(s *config.Snapshot) string {
	var words []string
	for _, c := range s.Clusters {
		words = append(words, c.Name)
	}
	for _, t := range s.Routes {
		words = append(words, "|", t.Name)
		for _, v := range t.VirtualHosts {
			words = append(words, v.Name+"("+strings.Join(v.Domains, ","))
			for _, r := range v.Routes {
				words = append(words, r.Name)
			}
			words[len(words)-1] += ")"
		}
	}
	return strings.Join(words, " ")
}

func TestOverlayMergesServices(t *testing.T) {
	other := &config.RouteTable{Name: "other"}
	tests := []struct {
		name string
		file *config.Snapshot
		want string
	}{
		{"a file without the table", &config.Snapshot{}, "A B | dubbo host0(* r1 r2)"},
		{
			"an empty table", &config.Snapshot{Clusters: clustersNamed("z"), Routes: []*config.RouteTable{tableOf(), other}},
			"z A B | dubbo host0(* r1 r2) | other",
		},
		{
			"a table with routes, which come first", &config.Snapshot{Routes: []*config.RouteTable{other, tableOf("a.example: x", "*: y z")}},
			"A B | other | dubbo host0(a.example x) host1(* y z r1 r2)",
		},
		{
			"a table for other domains", &config.Snapshot{Routes: []*config.RouteTable{tableOf("a.example: x")}},
			"A B | dubbo host0(a.example x) host0#2(* r1 r2)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := describe(tt.file)
			o := overlay{clusters: map[string]*config.Cluster{}}
			if err := o.rebase(&config.Snapshot{}); err != nil {
				t.Fatal(err)
			}
			if _, err := o.change(dubbo.Change{Clusters: clustersNamed("B", "A", "C"), Routes: tableOf("*: r1 r2")}); err != nil {
				t.Fatal(err)
			}
			if err := o.rebase(tt.file); err != nil {
				t.Fatal(err)
			}
			if _, err := o.change(dubbo.Change{Removed: []string{"C"}}); err != nil {
				t.Fatal(err)
			}
			if got := describe(o.snapshot()); got != tt.want {
				t.Errorf("active: %s, want %s", got, tt.want)
			}
			if after := describe(tt.file); after != before {
				t.Errorf("the file has become %s, it was %s", after, before)
			}
		})
	}
}

func TestOverlayRejectsNamesOfFile(t *testing.T) {
	o := overlay{clusters: map[string]*config.Cluster{}}
	file := &config.Snapshot{Clusters: clustersNamed("a"), Routes: []*config.RouteTable{tableOf("*: x")}}
	if err := o.rebase(file); err != nil {
		t.Fatal(err)
	}
	if _, err := o.change(dubbo.Change{Clusters: clustersNamed("A"), Routes: tableOf("*: r1")}); err != nil {
		t.Fatal(err)
	}
	before := describe(o.snapshot())
	for name, do := range map[string]func() error{
		`cluster "a"`: func() error {
			_, err := o.change(dubbo.Change{Clusters: clustersNamed("B", "a"), Removed: []string{"A"}})
			return err
		},
		`route "x"`: func() error {
			_, err := o.change(dubbo.Change{Clusters: clustersNamed("B"), Removed: []string{"A"}, Routes: tableOf("*: r1 x")})
			return err
		},
		`cluster "A"`: func() error { return o.rebase(&config.Snapshot{Clusters: clustersNamed("b", "A")}) },
		`route "r1"`:  func() error { return o.rebase(&config.Snapshot{Routes: []*config.RouteTable{tableOf("*: r1")}}) },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the conflict of %s is not reported: %v", name, err)
		}
		if got := describe(o.snapshot()); got != before {
			t.Errorf("after %s, active: %s, want %s", name, got, before)
		}
	}
}

// TestServiceNamedLikeClusterIsRejected verifies that subscribe rejects a service whose
// cluster would have the name of a cluster of the file, however the service is written.
func TestServiceNamedLikeClusterIsRejected(t *testing.T) {
	s := &dubboServices{p: &process{}, overlay: overlay{fileClusters: map[string]bool{"g/x:1": true, "y": true}}}
	for _, service := range []dubbo.Service{
		{Interface: "x", Group: "g", Version: "1"},
		{Interface: "y"},
		{Interface: "y", Version: "0.0.0"},
	} {
		var field *dubbo.FieldError
		if err := s.subscribe(t.Context(), dubbo.Request{Service: service}); !errors.As(err, &field) {
			t.Errorf("%+v: %v, want a name conflict", service, err)
		}
	}
}

// TestRestoredServicesDoNotPreventStart verifies that a process starts although the
// file now has a cluster with the name of a service of the last run.
func TestRestoredServicesDoNotPreventStart(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "config.json"), filepath.Join(dir, "state.json")
	discovery, err := dubbo.New(dubbo.Options{
		Registries: registries(), Config: config.DubboRegistry{Enable: true, StateFile: state},
		Apply: func(context.Context, dubbo.Change) error { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = discovery.Run(ctx) })
	for _, name := range []string{"com.example.Hello", "com.example.Other"} {
		if err := discovery.Subscribe(ctx, dubbo.Request{Service: dubbo.Service{Interface: name}}); err != nil {
			t.Error(err)
		}
	}
	cancel()
	running.Wait() // Run has written the state file

	text := `{"servers": [{"default_log_path": "stderr", "default_log_level": "OFF"}],
		"cluster_manager": {"clusters": [{"name": "com.example.Hello", "type": "SIMPLE", "lb_type": "LB_RANDOM", "hosts": [{"address": "127.0.0.1:1"}]}]},
		"extends": [{"type": "dubbo_registry", "config": {"enable": true, "api_port": 0, "api_socket": "` + filepath.Join(dir, "api.sock") + `", "state_file": "` + state + `"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := startFlags{source: source{path: path}, drain: -1}
	file, problems := flags.open()
	if file == nil {
		t.Fatal(problems)
	}
	p, err := newProcess(flags, file)
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	if err := p.begin(t.Context(), file); err != nil {
		t.Fatalf("it does not start: %v", err)
	}
	if c := p.server.Clusters().Find("com.example.Hello"); c == nil || len(c.Config().Hosts) != 1 {
		t.Errorf("the cluster of the file is %v", c)
	}
	ctx, cancel = context.WithCancel(t.Context())
	running.Go(func() { _ = p.services.discovery.Run(ctx) })
	if err := p.services.subscribe(ctx, dubbo.Request{Service: dubbo.Service{Interface: "com.example.Other"}}); err != nil {
		t.Errorf("the other service is not active: %v", err)
	}
	if p.server.Clusters().Find("com.example.Other") == nil {
		t.Error("the other service has no cluster")
	}
	cancel()
	running.Wait()
}

func TestOverlayChangeRollback(t *testing.T) {
	o := overlay{clusters: map[string]*config.Cluster{}}
	if err := o.rebase(&config.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.change(dubbo.Change{Clusters: clustersNamed("A", "B"), Routes: tableOf("*: r1")}); err != nil {
		t.Fatal(err)
	}
	a, before := o.clusters["A"], describe(o.snapshot())
	undo, err := o.change(dubbo.Change{Clusters: clustersNamed("A", "C"), Removed: []string{"B", "D"}, Routes: tableOf("*: r2")})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describe(o.snapshot()), "A C | dubbo host0(* r2)"; got != want {
		t.Errorf("active: %s, want %s", got, want)
	}
	undo()
	if got := describe(o.snapshot()); got != before || o.clusters["A"] != a {
		t.Errorf("after the rollback, active: %s, want %s", got, before)
	}
}
