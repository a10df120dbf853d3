package peermetadata

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	f, _ := filtertest.Build(t, Factory(), examples[0])
	x := newRequest(workload.FieldID+": a", workload.FieldMetadata+": "+shopWorkload().Metadata())
	if err := x.Serve(t.Context(), f(echoService())); err != nil {
		t.Fatal(err)
	}
	if got, err := workload.ParseMetadata(x.Response.Header.Get(workload.FieldMetadata)); err != nil || got.Name != "reviews-v1" {
		t.Errorf("the response has the metadata of %+v, %v; want the name reviews-v1", got, err)
	}
}

func shopWorkload() *workload.Workload {
	return &workload.Workload{Name: "shop-v2", Namespace: "default", Service: "shop", Revision: "v2", Cluster: "Kubernetes", App: "shop", Version: "v2"}
}

// newRequest returns a request with headers "name: value".
func newRequest(fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path, x.Record.TargetCluster = "GET", "/", "app"
	filtertest.AddHeaders(&x.Request.Header, fields...)
	return x
}

// echoService returns a service that responds with fields, and with the request headers, prefixed
// with "got-".
func echoService(fields ...string) protocol.Service {
	return protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Response.Status = 200
		for name, value := range x.Request.Header.All() {
			x.Response.Header.Add("got-"+name, value)
		}
		filtertest.AddHeaders(&x.Response.Header, fields...)
		return nil
	})
}

const outbound = `{"upstream_discovery": true, "upstream_propagation": true, "skip_external_clusters": true, "node": "here", "workload": {"name": "here-v1"}}`

const inbound = `{"downstream_discovery": true, "downstream_propagation": true, "node": "here", "workload": {"name": "here-v1"}}`

func TestPeerHeaders(t *testing.T) {
	local := workload.Workload{Name: "here-v1"}
	localMetadata := local.Metadata()
	id, metadata := workload.FieldID+": ", workload.FieldMetadata+": "
	localHeaders := []string{"got-" + id + "here", "got-" + metadata + localMetadata}
	for _, test := range []struct {
		name, settings       string
		request              []string
		target               string // "": app
		response             []string
		want                 []string // headers of the response
		downstream, upstream string   // workloads in the metadata
	}{
		{name: "outbound", settings: outbound, response: []string{id + "there", metadata + shopWorkload().Metadata(), "a: b"},
			want: append(slices.Clone(localHeaders), "a: b"), upstream: shopWorkload().Text()},
		{name: "outbound replaces forged headers", settings: outbound, request: []string{id + "forged", metadata + "forged"}, want: localHeaders},
		{name: "no metadata outside the mesh", settings: outbound, target: "outside"},
		{name: "no metadata to the passthrough cluster", settings: outbound, target: "PassthroughCluster"},
		{name: "no metadata to a cluster with NoPeerMetadata", settings: outbound, target: "silent"},
		{name: "inbound", settings: inbound, request: []string{id + "there", metadata + shopWorkload().Metadata(), "a: b"},
			want: []string{"got-a: b", id + "here", metadata + localMetadata}, downstream: shopWorkload().Text()},
		{name: "inbound, only an ID", settings: inbound, request: []string{id + "there"}, want: []string{id + "here"}},
		{name: "no metadata to other clients", settings: inbound, request: []string{"a: b"}, want: []string{"got-a: b"}},
		{name: "malformed metadata is removed", settings: inbound, request: []string{metadata + "*"}, want: []string{metadata + localMetadata}},
		{name: "empty settings", settings: `{}`, request: []string{id + "there"}, response: []string{id + "far"}, want: []string{"got-" + id + "there", id + "far"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := filter.Env{Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(metrics.Options{}), Cluster: func(name string) *config.Cluster {
				switch name {
				case "outside":
					return &config.Cluster{Mesh: config.Mesh{External: true}}
				case "silent":
					return &config.Cluster{Mesh: config.Mesh{NoPeerMetadata: true}}
				}
				return nil
			}}
			f, err := Factory().New(filtertest.Decode(t, Factory(), filtertest.Settings(test.settings)), env)
			if err != nil {
				t.Fatal(err)
			}
			x := newRequest(test.request...)
			if test.target != "" {
				x.Record.TargetCluster = test.target
			}
			if err := x.Serve(t.Context(), f(echoService(test.response...))); err != nil {
				t.Fatal(err)
			}
			var got []string
			for name, value := range x.Response.Header.All() {
				got = append(got, name+": "+value)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the response has %q, want %q", got, test.want)
			}
			downstream, _ := x.Metadata.Lookup(workload.Namespace, workload.KeyDownstream)
			upstream, _ := x.Metadata.Lookup(workload.Namespace, workload.KeyUpstream)
			if downstream != test.downstream || upstream != test.upstream {
				t.Errorf("downstream %q, upstream %q; want %q, %q", downstream, upstream, test.downstream, test.upstream)
			}
		})
	}
}

func TestMalformedMetadataIsCounted(t *testing.T) {
	f, counts := filtertest.Build(t, Factory(), `{"downstream_discovery": true, "upstream_discovery": true}`)
	s := f(echoService(workload.FieldMetadata + ": *"))
	if err := newRequest(workload.FieldMetadata+": "+strings.Repeat("A", workload.MaxMetadata+1)).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := counts.Value(malformedMetric()); n != 2 {
		t.Errorf("counter = %v, want 2", n)
	}
}

func TestFaultsAreReturned(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), outbound)
	appErr := protocol.NewFault(protocol.NoHealthyHost, nil)
	x := newRequest()
	if err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return appErr }))); !errors.Is(err, appErr) {
		t.Errorf("Serve = %v, want %v", err, appErr)
	}
}

func TestRPCIsForwardedUnchanged(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), outbound)
	x := newRequest()
	x.Request.Method = ""
	x.Request.Header.MarkUnchanged()
	if err := x.Serve(t.Context(), f(echoService())); err != nil || x.Request.Header.Changed() {
		t.Errorf("Serve = %v, changed: %v; want nil, false", err, x.Request.Header.Changed())
	}
}

func TestPropagationRequiresWorkload(t *testing.T) {
	if got := filtertest.DecodeErrors(t, Factory(), `{"upstream_propagation": true}`); !strings.Contains(got, "require node or workload") {
		t.Errorf("rejected with %q, want an error about node and workload", got)
	}
}

// TestPeersAreBounded verifies that the cache never exceeds maxPeers, and that workloadText
// is correct for values beyond it.
func TestPeersAreBounded(t *testing.T) {
	cache := new(peerCache)
	for i := range 3 * maxPeers {
		w := workload.Workload{Name: fmt.Sprintf("w%d", i)}
		for range 2 {
			if got, ok := cache.workloadText(w.Metadata()); !ok || got != w.Text() {
				t.Fatalf("%s is %q, %v; want %q, true", w.Name, got, ok, w.Text())
			}
		}
		if n := len(cache.byValue); n > maxPeers {
			t.Fatalf("%d peers are cached, want at most %d", n, maxPeers)
		}
	}
}

func TestKnownPeersDoNotAllocate(t *testing.T) {
	for name, settings := range map[string]filtertest.Settings{"outbound": outbound, "inbound": inbound} {
		t.Run(name, func(t *testing.T) {
			f, _ := filtertest.Build(t, Factory(), settings)
			value := shopWorkload().Metadata()
			s := f(&sidecarApplication{value})
			x := newRequest()
			ctx := t.Context()
			var err error
			if n := testing.AllocsPerRun(100, func() { err = errors.Join(err, resetAndServe(ctx, s, x, value)) }); n != 0 || err != nil {
				t.Errorf("Serve allocates %v times, %v; want 0", n, err)
			}
		})
	}
}

// resetAndServe resets x and serves it as a request with peer headers.
func resetAndServe(ctx context.Context, s protocol.Service, x *protocol.Exchange, value string) error {
	x.Reset()
	x.Request.Method, x.Record.TargetCluster = "GET", "app"
	x.Request.Header.Add(workload.FieldID, "there")
	x.Request.Header.Add(workload.FieldMetadata, value)
	return x.Serve(ctx, s)
}

// sidecarApplication is an application behind a sidecar: its responses have peer headers.
type sidecarApplication struct{ value string }

func (a *sidecarApplication) Start(_ context.Context, x *protocol.Exchange) error {
	x.Response.Status = 200
	x.Response.Header.Add(workload.FieldID, "there")
	x.Response.Header.Add(workload.FieldMetadata, a.value)
	return nil
}

func BenchmarkPeers(b *testing.B) {
	for name, settings := range map[string]filtertest.Settings{"outbound": outbound, "inbound": inbound, "nothing": "{}"} {
		b.Run(name, func(b *testing.B) {
			f, _ := filtertest.Build(b, Factory(), settings)
			value := shopWorkload().Metadata()
			s, x, ctx := f(&sidecarApplication{value}), newRequest(), b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := resetAndServe(ctx, s, x, value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
