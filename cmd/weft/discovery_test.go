package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/layers"
)

// TestServiceNamedLikeClusterIsRejected verifies that subscribe rejects a service whose
// cluster would have the name of a cluster of the file, for each spelling of the service.
func TestServiceNamedLikeClusterIsRejected(t *testing.T) {
	stack := layers.New(func(context.Context, config.Delta) error { return nil })
	s := &dubboServices{layer: layers.NewOverlay(stack, "a service", config.DubboRouteTable)}
	if err := stack.SetFile(t.Context(), &config.Snapshot{Clusters: []*config.Cluster{{Name: "g/x:1"}, {Name: "y"}}}); err != nil {
		t.Fatal(err)
	}
	for _, service := range []dubbo.Service{
		{Interface: "x", Group: "g", Version: "1"},
		{Interface: "y"},
		{Interface: "y", Version: "0.0.0"},
	} {
		var fieldErr *dubbo.FieldError
		if err := s.subscribe(t.Context(), dubbo.Request{Service: service}); !errors.As(err, &fieldErr) {
			t.Errorf("%+v: %v, want a name conflict", service, err)
		}
	}
}

// TestRestoredServicesDoNotPreventStart verifies that a process starts although the configuration
// now has a cluster, possibly in static_resources, with the name of a service of the state file.
func TestRestoredServicesDoNotPreventStart(t *testing.T) {
	for name, clusters := range map[string]string{
		"cluster_manager": `"cluster_manager": {"clusters": [{"name": "com.example.Hello", "type": "SIMPLE", "lb_type": "LB_RANDOM", "hosts": [{"address": "127.0.0.1:1"}]}]}`,
		"static_resources": `"node": {"id": "n", "cluster": "c"}, "static_resources": {"clusters": [{"name": "com.example.Hello", "connect_timeout": "1s", "load_assignment": {
			"cluster_name": "com.example.Hello", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}]}]}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "static_resources" && !hasXDS {
				t.Skip("this build does not support static_resources")
			}
			testRestoredServicesDoNotPreventStart(t, clusters)
		})
	}
}

func testRestoredServicesDoNotPreventStart(t *testing.T, clusters string) {
	t.Helper()
	dir := t.TempDir()
	path, state := filepath.Join(dir, "config.json"), filepath.Join(dir, "state.json")
	discovery, err := dubbo.New(dubbo.Options{
		Registries: registries(), Config: config.DubboRegistry{Enable: true, StateFile: state},
		Apply: func(context.Context, layers.Change) error { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = discovery.Run(ctx) })
	for _, name := range []string{"com.example.Hello", "com.example.Other"} {
		if err := discovery.Subscribe(ctx, dubbo.Request{Service: dubbo.Service{Interface: name}}); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait() // Run has written the state file

	text := `{"servers": [{"default_log_path": "stderr", "default_log_level": "OFF"}],
		` + clusters + `,
		"extends": [{"type": "dubbo_registry", "config": {"enable": true, "api_port": 0, "api_socket": "` + filepath.Join(dir, "api.sock") + `", "state_file": "` + state + `"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := startFlags{source: source{path: path}, drainSeconds: -1}
	file, problems := flags.open()
	if file == nil {
		t.Fatal(problems)
	}
	p, err := newProcess(flags, file)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	if err := p.start(t.Context(), file); err != nil {
		t.Fatalf("start: %v", err)
	}
	if c := p.server.Clusters().Find("com.example.Hello"); c == nil || len(c.Config().Hosts) != 1 {
		t.Errorf("the cluster of the file is %v, want one host", c)
	}
	ctx, cancel = context.WithCancel(t.Context())
	wg.Go(func() { _ = p.services.discovery.Run(ctx) })
	if err := p.services.subscribe(ctx, dubbo.Request{Service: dubbo.Service{Interface: "com.example.Other"}}); err != nil {
		t.Errorf("the other service is not active: %v", err)
	}
	if p.server.Clusters().Find("com.example.Other") == nil {
		t.Error("the other service has no cluster")
	}
	cancel()
	wg.Wait()
}
