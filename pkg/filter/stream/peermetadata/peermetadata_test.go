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
	made, _ := filtertest.Build(t, Factory(), examples[0])
	x := newRequest(workload.FieldID+": a", workload.FieldMetadata+": "+shopWorkload().Metadata())
	if err := x.Serve(t.Context(), made(echoService())); err != nil {
		t.Fatal(err)
	}
	if got, err := workload.ParseMetadata(x.Response.Header.Get(workload.FieldMetadata)); err != nil || got.Name != "reviews-v1" {
		t.Errorf("the response is of %+v, %v", got, err)
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
	own := workload.Workload{Name: "here-v1"}
	here := own.Metadata()
	id, metadata := workload.FieldID+": ", workload.FieldMetadata+": "
	mine := []string{"got-" + id + "here", "got-" + metadata + here}
	for _, test := range []struct {
		name, settings string
		request        []string
		target         string // "": app
		answer         []string
		want           []string // headers of the response
		caller, host   string   // workloads in the metadata
	}{
		{name: "who asks tells, and hears", settings: outbound, answer: []string{id + "there", metadata + shopWorkload().Metadata(), "a: b"},
			want: append(slices.Clone(mine), "a: b"), host: shopWorkload().Text()},
		{name: "who asks takes the place of who was before", settings: outbound, request: []string{id + "forged", metadata + "forged"}, want: mine},
		{name: "no metadata outside the mesh", settings: outbound, target: "outside"},
		{name: "no metadata to the passthrough cluster", settings: outbound, target: "PassthroughCluster"},
		{name: "nor where that is not wanted", settings: outbound, target: "silent"},
		{name: "who answers hears, and tells", settings: inbound, request: []string{id + "there", metadata + shopWorkload().Metadata(), "a: b"},
			want: []string{"got-a: b", id + "here", metadata + here}, caller: shopWorkload().Text()},
		{name: "who answers tells what was told", settings: inbound, request: []string{id + "there"}, want: []string{id + "here"}},
		{name: "no metadata to other clients", settings: inbound, request: []string{"a: b"}, want: []string{"got-a: b"}},
		{name: "what cannot be read is taken out", settings: inbound, request: []string{metadata + "*"}, want: []string{metadata + here}},
		{name: "the rest stays", settings: `{}`, request: []string{id + "there"}, answer: []string{id + "far"}, want: []string{"got-" + id + "there", id + "far"}},
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
			made, err := Factory().New(filtertest.Decode(t, Factory(), filtertest.Settings(test.settings)), env)
			if err != nil {
				t.Fatal(err)
			}
			x := newRequest(test.request...)
			if test.target != "" {
				x.Record.TargetCluster = test.target
			}
			if err := x.Serve(t.Context(), made(echoService(test.answer...))); err != nil {
				t.Fatal(err)
			}
			var got []string
			for name, value := range x.Response.Header.All() {
				got = append(got, name+": "+value)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the response has %q, want %q", got, test.want)
			}
			caller, _ := x.Metadata.Lookup(workload.Namespace, workload.KeyDownstream)
			host, _ := x.Metadata.Lookup(workload.Namespace, workload.KeyUpstream)
			if caller != test.caller || host != test.host {
				t.Errorf("%q asked %q, want %q, %q", caller, host, test.caller, test.host)
			}
		})
	}
}

func TestMalformedMetadataIsCounted(t *testing.T) {
	made, counts := filtertest.Build(t, Factory(), `{"downstream_discovery": true, "upstream_discovery": true}`)
	s := made(echoService(workload.FieldMetadata + ": *"))
	if err := newRequest(workload.FieldMetadata+": "+strings.Repeat("A", workload.MaxMetadata+1)).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := counts.Value(malformedMetric()); n != 2 {
		t.Errorf("%v are counted, want 2", n)
	}
}

func TestFaultsPass(t *testing.T) {
	made, _ := filtertest.Build(t, Factory(), outbound)
	lost := protocol.NewFault(protocol.NoHealthyHost, nil)
	x := newRequest()
	if err := x.Serve(t.Context(), made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return lost }))); !errors.Is(err, lost) {
		t.Errorf("Serve = %v, want %v", err, lost)
	}
}

func TestCallsOfRPCPass(t *testing.T) {
	made, _ := filtertest.Build(t, Factory(), outbound)
	x := newRequest()
	x.Request.Method = ""
	x.Request.Header.MarkUnchanged()
	if err := x.Serve(t.Context(), made(echoService())); err != nil || x.Request.Header.Changed() {
		t.Errorf("Serve = %v, changed: %v", err, x.Request.Header.Changed())
	}
}

func TestEmptySettingsAreRejected(t *testing.T) {
	if got := filtertest.DecodeErrors(t, Factory(), `{"upstream_propagation": true}`); !strings.Contains(got, "require node or workload") {
		t.Errorf("rejected as %q", got)
	}
}

// TestPeersAreBounded verifies that the cache never exceeds maxPeers, and that text is right for
// further values too.
func TestPeersAreBounded(t *testing.T) {
	known := new(peerCache)
	for i := range 3 * maxPeers {
		w := workload.Workload{Name: fmt.Sprintf("w%d", i)}
		for range 2 {
			if got, ok := known.workloadText(w.Metadata()); !ok || got != w.Text() {
				t.Fatalf("%s is %q, %v", w.Name, got, ok)
			}
		}
		if n := len(known.byValue); n > maxPeers {
			t.Fatalf("%d peers are remembered", n)
		}
	}
}

func TestKnownPeersDoNotAllocate(t *testing.T) {
	for name, settings := range map[string]filtertest.Settings{"outbound": outbound, "inbound": inbound} {
		t.Run(name, func(t *testing.T) {
			made, _ := filtertest.Build(t, Factory(), settings)
			value := shopWorkload().Metadata()
			s := made(&sidecarApplication{value})
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
			made, _ := filtertest.Build(b, Factory(), settings)
			value := shopWorkload().Metadata()
			s, x, ctx := made(&sidecarApplication{value}), newRequest(), b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := resetAndServe(ctx, s, x, value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
