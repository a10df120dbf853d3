//go:build !noxds

package inspect

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/proxy/overload"
	"github.com/weft-proxy/weft/pkg/upstream"
)

const goldenFile = "testdata/pages.txtar"

// fullProcess returns a process with all optional parts: an overload manager, Dubbo services and
// the resources of a control plane.
func fullProcess() *process {
	p := newProcess()
	since := eventTime()
	p.reload = Reload{Source: "config.json", Problems: []string{"config.json:1:2: no"}, Restart: []string{"admin.address"}}
	p.overload = &overload.Status{
		Interval: "250ms",
		Monitors: []overload.MonitorStatus{{Name: "memory", Pressure: 0.5, Used: 50, Limit: 100}},
		Actions:  []overload.ActionStatus{{Name: "shrink_heap", State: "saturated", Value: 1, Monitor: "memory", Since: &since, Effects: 3}},
	}
	p.dubbo = &dubbo.Status{
		Host: "10.0.0.7", Port: 20080,
		Registries: []dubbo.RegistryStatus{{Type: "memory", Connected: true, Since: since}},
		Published:  []dubbo.PublishedStatus{{Key: "g/A:1.0", Registry: "memory", Interface: "A", URL: "dubbo://10.0.0.7:20080/A?a=1&b=2", Since: since}},
		Subscribed: []dubbo.ReferenceStatus{},
	}
	p.dump = []json.RawMessage{
		json.RawMessage(`{"@type":"type.googleapis.com/envoy.admin.v3.BootstrapConfigDump"}`),
		json.RawMessage(`{"@type":"type.googleapis.com/envoy.admin.v3.EndpointsConfigDump"}`),
	}
	p.xds = fixtureXDS()
	return p
}

// TestPages compares every page with testdata/pages.txtar. The name of a file is a request; its
// content is the status and the body of the response.
func TestPages(t *testing.T) {
	archive, err := txtar.ParseFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	for i := range archive.Files {
		f := &archive.Files[i]
		t.Run(f.Name, func(t *testing.T) {
			target, omitOptional := strings.CutSuffix(f.Name, " without the optional parts")
			method, path, _ := strings.Cut(target, " ")
			p := fullProcess()
			if omitOptional {
				p = newProcess()
			}
			w := request(newHandler(p.sources()), method, path)
			got := fmt.Sprintf("%d\n%s", w.Code, w.Body)
			if !strings.HasSuffix(got, "\n") {
				got += "\n(no newline at the end)\n" // a file of an archive ends with a newline
			}
			if *update {
				f.Data = []byte(got)
				return
			}
			if diff := cmp.Diff(string(f.Data), got); diff != "" {
				t.Errorf("the response differs (-want +got); write it with: go test ./pkg/inspect -run Pages -update\n%s", diff)
			}
			if json.Valid(w.Body.Bytes()) && w.Header().Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("Content-Type %q, want application/json; charset=utf-8", w.Header().Get("Content-Type"))
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control %q: a cached response would be stale, want %q", got, "no-store")
			}
		})
	}
	if *update {
		if err := os.WriteFile(goldenFile, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range Endpoints(newProcess().sources()) {
		matches := func(f txtar.File) bool { return strings.HasPrefix(f.Name, e.Method+" "+e.Route()) }
		if e.Handler != nil && !slices.ContainsFunc(archive.Files, matches) {
			t.Errorf("%s has no %s %s", goldenFile, e.Method, e.Route())
		}
	}
}

// TestClientsDecodeViews verifies that the JSON of a view decodes into its type without a loss.
func TestClientsDecodeViews(t *testing.T) {
	h := newHandler(fullProcess().sources())
	for path, view := range map[string]any{
		"/clusters?format=json": &EnvoyClusters{}, "/clusters": &[]upstream.ClusterStatus{}, "/config_dump": &ConfigDump{},
		"/config_dump?resource=bootstrap": &Resources{}, "/server_info": &ServerInfo{}, "/stats?format=json": &Stats{}, "/xds": &XDS{},
		"/version": &Version{}, "/ready": &Status{}, "/logging": &Level{}, "/listeners": &[]proxy.ListenerStatus{},
		"/routes": &[]proxy.RouteTableStatus{}, "/overload": &overload.Status{}, "/certs": &EnvoyCerts{}, "/memory": &EnvoyMemory{}, "/init_dump": &EnvoyInitDump{}, "/runtime": &EnvoyRuntime{},
	} {
		body := request(h, "GET", path).Body.String()
		d := json.NewDecoder(strings.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(view); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		encoded, err := json.MarshalIndent(view, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(body, string(encoded)+"\n"); diff != "" {
			t.Errorf("%s (-page +decoded and encoded):\n%s", path, diff)
		}
	}
}
