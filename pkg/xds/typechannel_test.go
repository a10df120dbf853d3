package xds

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

const (
	clustersYAML = `
version_info: "1"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: c
  type: STATIC
  load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]}
`
	listenerTypeJSON = `"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", `
)

// listenersJSON returns a file with listeners on the ports.
func listenersJSON(ports ...int) string {
	var list []string
	for _, port := range ports {
		list = append(list, strings.Replace(xdstest.DirectResponseListenerJSON(fmt.Sprint("l", port), port), "{", "{"+listenerTypeJSON, 1))
	}
	return `{"resources": [` + strings.Join(list, ", ") + `]}`
}

// fileBootstrap returns a bootstrap with clusters and listeners from files in dir.
func fileBootstrap(dir string) config.Bootstrap {
	return config.Bootstrap{DynamicResources: fmt.Appendf(nil, `{"cds_config": {"path_config_source": {"path": %q, "watched_directory": {"path": %q}}}, "lds_config": {"path": %q}}`,
		filepath.Join(dir, "cds.yaml"), dir, filepath.Join(dir, "lds.json"))}
}

func writeSource(t *testing.T, dir, name, text string) {
	t.Helper()
	// As Kubernetes and Envoy's documentation do: a complete file replaces the previous one.
	temporary := filepath.Join(dir, name+".new")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// TestClustersAndListenersFromFiles verifies that the resources of files become active, that
// changes become active, and that an invalid version changes nothing.
func TestClustersAndListenersFromFiles(t *testing.T) {
	dir := t.TempDir()
	writeSource(t, dir, "cds.yaml", clustersYAML)
	writeSource(t, dir, "lds.json", listenersJSON(80))
	synctest.Test(t, func(t *testing.T) {
		s, active := newTestSourceFrom(t, fileBootstrap(dir), slog.New(slog.DiscardHandler))
		if s.Ready() {
			t.Error("the source is ready before it has read the files")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		expect := func(step, want string) {
			t.Helper()
			time.Sleep(3 * filePollInterval)
			synctest.Wait()
			s.stack.Lock()
			defer s.stack.Unlock()
			var got []string
			for _, c := range active.Clusters {
				got = append(got, c.Name)
			}
			for _, l := range active.Listeners {
				got = append(got, l.Name)
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s: active %q, want %q", step, text, want)
			}
		}
		expect("start", "c l80")
		if !s.Ready() {
			t.Error("the source is not ready after it has read the files")
		}
		writeSource(t, dir, "lds.json", listenersJSON(80, 81))
		expect("added listener", "c l80 l81")
		writeSource(t, dir, "lds.json", `{"resources": [`)
		expect("malformed file", "c l80 l81")
		if err := os.Remove(filepath.Join(dir, "lds.json")); err != nil {
			t.Fatal(err)
		}
		expect("missing file", "c l80 l81")
		writeSource(t, dir, "lds.json", listenersJSON(81))
		writeSource(t, dir, "cds.yaml", strings.Replace(clustersYAML, "name: c\n", "name: d\n", 1))
		expect("removed listener and cluster", "d l81")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// TestUnfinishedFile verifies that Weft does not read a file while a program writes it.
func TestUnfinishedFile(t *testing.T) {
	dir := t.TempDir()
	writeSource(t, dir, "cds.yaml", clustersYAML)
	writeSource(t, dir, "lds.json", listenersJSON(80))
	synctest.Test(t, func(t *testing.T) {
		events := make(chan event)
		c := &channel{path: filepath.Join(dir, "lds.json"), onlyType: resource.ListenerType, events: events, queueSignal: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		var counts []int
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case e := <-events:
					if e.opened {
						close(e.done)
						continue
					}
					counts = append(counts, len(e.response.Resources))
					close(e.done)
				case <-ctx.Done():
					return
				}
			}
		}()
		go c.watchFile(ctx)
		time.Sleep(filePollInterval / 2)
		for n := range 5 {
			ports := []int{}
			for i := range n + 1 {
				ports = append(ports, 81+i)
			}
			writeSource(t, dir, "lds.json", listenersJSON(ports...)) // changes in each interval
			time.Sleep(filePollInterval)
		}
		time.Sleep(2 * filePollInterval)
		cancel()
		<-ended
		if len(counts) != 2 || counts[0] != 1 || counts[1] != 5 {
			t.Errorf("responses with %v listeners, want the first and the last version: [1 5]", counts)
		}
	})
}

// TestTypeServers verifies that clusters and listeners may come from the discovery services of
// their types, next to each other and without ADS.
func TestTypeServers(t *testing.T) {
	b := config.Bootstrap{
		StaticResources: xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, nil, nil),
		DynamicResources: []byte(`{"cds_config": {"api_config_source": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}},
			"lds_config": {"api_config_source": {"api_type": "DELTA_GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}}}`),
	}
	s, active := newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
	if len(s.channels) != 2 || s.mainChannel() != nil {
		t.Fatalf("%d channels, ADS channel %v; want 2, nil", len(s.channels), s.mainChannel())
	}
	clusters, listeners := s.channelOf(resource.ClusterType), s.channelOf(resource.ListenerType)
	if clusters.mode != ads.StateOfTheWorld || clusters.service != clusterService() || listeners.mode != ads.Delta || listeners.service != listenerService() {
		t.Errorf("channels %+v and %+v, want the services of clusters and listeners", clusters.service, listeners.service)
	}
	body := func(name, path string) []byte {
		text := listenersJSON(80)
		if name == "cds.yaml" {
			text = clustersYAML
		}
		message, _, diagnostics := parseFile(name, []byte(text))
		if diagnostics.Failed() {
			t.Fatal(path, diagnostics)
		}
		return message.GetResources()[0].GetValue()
	}
	for _, e := range []event{
		{channel: listeners, opened: true},
		{channel: listeners, response: &ads.Response{Type: resource.ListenerType, Nonce: "1", Resources: []ads.Resource{{Name: "l80", Version: "1", Body: body("lds.json", "listener")}}}},
		{channel: clusters, opened: true},
		{channel: clusters, response: &ads.Response{Type: resource.ClusterType, Nonce: "1", Resources: []ads.Resource{{Name: "c", Body: body("cds.yaml", "cluster")}}}},
	} {
		s.handleEvent(t.Context(), e)
	}
	if len(active.Clusters) != 2 || len(active.Listeners) != 1 || !s.Ready() {
		t.Errorf("%d active clusters and %d listeners, ready %t; want 2, 1, true", len(active.Clusters), len(active.Listeners), s.Ready())
	}
	if st := s.Status(); len(st.ControlPlanes) != 2 {
		t.Errorf("status of %d control planes, want 2", len(st.ControlPlanes))
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	caps := xdstest.Capabilities()
	caps.CheckRules = true
	writeSource(t, dir, "cds.yaml", clustersYAML+"- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: d\n  conect_timeout: 1s\n- \"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\n  name: e\n")
	unreadable, diagnostics := CheckFiles(fileBootstrap(dir), caps)
	if len(unreadable) != 1 || unreadable[0].Field != "dynamic_resources.lds_config" || !strings.Contains(unreadable[0].Reason, "no such file") {
		t.Errorf("unreadable files %v, want the one of lds_config", unreadable)
	}
	want := filepath.Join(dir, "cds.yaml") + `:10:19: resources[1].conect_timeout: unknown field "conect_timeout"; did you mean "connect_timeout"?`
	if len(diagnostics) != 1 || diagnostics[0].Error() != want {
		t.Errorf("diagnostics %v, want %s", diagnostics, want)
	}
	writeSource(t, dir, "cds.yaml", clustersYAML+"- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: d\n  connect_timeout: 0s\n- \"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\n  name: e\n")
	writeSource(t, dir, "lds.json", listenersJSON(80))
	unreadable, diagnostics = CheckFiles(fileBootstrap(dir), caps)
	if len(unreadable) != 0 || len(diagnostics) != 2 || diagnostics[0].Line != 10 || !strings.Contains(diagnostics[0].Problem, "greater than 0s") ||
		diagnostics[1].Line != 11 || !strings.Contains(diagnostics[1].Problem, "another type") {
		t.Errorf("unreadable files %v and diagnostics %v, want errors of the lines 10 and 11 only", unreadable, diagnostics)
	}
	if unreadable, diagnostics := CheckFiles(config.Bootstrap{DynamicResources: []byte(`{"cds_config": {"path": ""}}`)}, caps); unreadable != nil || diagnostics != nil {
		t.Errorf("an invalid bootstrap: %v, %v; want none", unreadable, diagnostics)
	}
}

// FuzzResponseFile verifies that no file with resources causes a panic.
func FuzzResponseFile(f *testing.F) {
	f.Add([]byte(clustersYAML))
	f.Add([]byte(listenersJSON(80)))
	f.Add([]byte(`{"resources": [{}, null, {"@type": "x"}]}`))
	source := &bootstrap.TypeSource{Type: resource.ClusterType, Path: "a.yaml"}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, d := range checkFile(source, text, resource.Capabilities{CheckRules: true}) {
			if d.Text() == "" {
				t.Errorf("%q: a diagnostic without a text", text)
			}
		}
	})
}
