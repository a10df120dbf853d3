package istiostats

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"
	"unsafe"

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
	f, counts := filtertest.Build(t, Factory(), examples[0])
	called := false
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { called = true; return nil }))
	x := endedExchange()
	if err := x.Serve(t.Context(), s); err != nil || !called {
		t.Errorf("Serve = %v, next service called: %v; want nil, true", err, called)
	}
	counts.CallObservers(x)
	if n := counts.Value(requestMetrics()[requestsTotal]); n != 1 {
		t.Errorf("request counter = %v, want 1", n)
	}
}

// namedScope is a scope of an exchange: a listener, a route or a cluster.
type namedScope struct {
	name    string
	cluster *config.Cluster
}

func (s namedScope) Name() string            { return s.name }
func (s namedScope) Config() *config.Cluster { return s.cluster }

type fakeHost struct{ workload string }

func (h fakeHost) Name() string         { return "10.0.0.9:80" }
func (h fakeHost) Config() *config.Host { return &config.Host{Workload: h.workload} }

func (h fakeHost) ResponseDiscarded(*protocol.Exchange) {}

// endedExchange returns an exchange with a 200 response and no peer metadata.
func endedExchange() *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Protocol, x.Meta.HeadSize, x.Meta.Start = "Http1", 80, time.Unix(0, 0)
	x.Meta.Conn = &protocol.ConnMeta{}
	x.Request.Method, x.Request.Authority, x.Request.Path = "GET", "shop:8080", "/"
	x.Response.Status = 200
	x.Record.Listener = namedScope{name: "inbound"}
	x.Record.Route = namedScope{name: "default"}
	x.Record.RequestBytes, x.Record.ResponseBytes = 20, 1000
	x.Record.End = x.Meta.Start.Add(7 * time.Millisecond)
	return x
}

const (
	localWorkload = `"workload": {"name": "here-v1", "namespace": "ours", "cluster": "east", "canonical_name": "local", "canonical_revision": "v1", "app": "happ", "version": "hv"}`
	inbound       = `{"reporter": "destination", ` + localWorkload + `}`
	outbound      = `{"reporter": "source", ` + localWorkload + `}`

	peerWorkload = "there-v2;theirs;there;v2;west;tapp;tv"
)

func mutualTLS() *protocol.TLS {
	return &protocol.TLS{
		Peer:         &protocol.Certificate{URISANs: []string{"spiffe://mesh/ns/proven/sa/there"}},
		LocalURISANs: []string{"spiffe://mesh/ns/ours/sa/here"},
	}
}

// onlySeries returns the labels and the value of the only series of a metric. The value of a
// histogram is its sum.
func onlySeries(t *testing.T, r *metrics.Registry, name string) (map[string]string, float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		if n := len(family.GetMetric()); n != 1 {
			t.Errorf("%s has %d series, want 1", name, n)
		}
		series := family.GetMetric()[0]
		labels := map[string]string{}
		for _, l := range series.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if h := series.GetHistogram(); h != nil {
			return labels, h.GetSampleSum()
		}
		return labels, series.GetCounter().GetValue()
	}
	return nil, 0
}

// newObserver builds a filter and returns its observer and its registry.
func newObserver(t testing.TB, factory filter.StreamFilterFactory, settings filtertest.Settings) (observe func(*protocol.Exchange), r *metrics.Registry) {
	t.Helper()
	r = metrics.New(metrics.Options{})
	_, err := factory.New(filtertest.Decode(t, factory, settings), filter.Env{
		Log: slog.New(slog.DiscardHandler), Metrics: r,
		Cluster: func(name string) *config.Cluster {
			if name == "configured" {
				return &config.Cluster{Mesh: config.Mesh{Host: "shop.default.svc", Name: "shop"}}
			}
			return nil
		},
		Observe: func(f func(*protocol.Exchange)) { observe = f },
	})
	if err != nil {
		t.Fatal(err)
	}
	return observe, r
}

// baseLabels returns the labels of endedExchange at a destination.
func baseLabels() map[string]string {
	labels := map[string]string{
		"reporter": "destination", "destination_workload": "here-v1", "destination_workload_namespace": "ours", "destination_principal": "unknown",
		"destination_app": "happ", "destination_version": "hv", "destination_canonical_service": "local", "destination_canonical_revision": "v1", "destination_cluster": "east",
		"destination_service": "shop:8080", "destination_service_name": "shop:8080", "destination_service_namespace": "ours",
		"request_protocol": "http", "response_code": "200", "grpc_response_status": "", "response_flags": "-", "connection_security_policy": "none",
	}
	for _, suffix := range []string{"workload", "workload_namespace", "principal", "app", "version", "canonical_service", "cluster"} {
		labels["source_"+suffix] = "unknown"
	}
	labels["source_canonical_revision"] = "latest"
	return labels
}

func TestInboundRequestLabels(t *testing.T) {
	service := namedScope{name: "inbound|80||", cluster: &config.Cluster{Name: "inbound|80||", Mesh: config.Mesh{Host: "shop.default.svc", Name: "shop"}}}
	serviceLabels := map[string]string{"destination_service": "shop.default.svc", "destination_service_name": "shop"}
	for _, test := range []struct {
		name     string
		settings string // "": inbound
		change   func(x *protocol.Exchange)
		want     map[string]string // labels that differ from base
	}{
		{name: "unknown peer", change: func(*protocol.Exchange) {}},
		{name: "known peer", change: func(x *protocol.Exchange) { x.Metadata.Set(workload.Namespace, workload.KeyDownstream, peerWorkload) }, want: map[string]string{
			"source_workload": "there-v2", "source_workload_namespace": "theirs", "source_app": "tapp", "source_version": "tv",
			"source_canonical_service": "there", "source_canonical_revision": "v2", "source_cluster": "west",
		}},
		{name: "namespace of the certificate has precedence", change: func(x *protocol.Exchange) {
			x.Metadata.Set(workload.Namespace, workload.KeyDownstream, ";theirs;;;")
			x.Meta.Conn = &protocol.ConnMeta{TLS: mutualTLS()}
		}, want: map[string]string{
			"source_workload_namespace": "proven", "source_principal": "spiffe://mesh/ns/proven/sa/there",
			"destination_principal": "spiffe://mesh/ns/ours/sa/here", "connection_security_policy": "mutual_tls",
		}},
		{name: "TLS without a peer certificate", change: func(x *protocol.Exchange) {
			x.Meta.Conn = &protocol.ConnMeta{TLS: &protocol.TLS{LocalURISANs: []string{"spiffe://a"}}}
		}, want: map[string]string{"destination_principal": "spiffe://a"}},
		{name: "known service", change: func(x *protocol.Exchange) { x.Record.Cluster = service }, want: serviceLabels},
		{name: "service that was not reached", change: func(x *protocol.Exchange) { x.Record.TargetCluster = "configured" }, want: serviceLabels},
		{name: "unknown service", change: func(x *protocol.Exchange) {
			x.Record.Cluster = namedScope{cluster: &config.Cluster{Name: "InboundPassthroughCluster"}}
		}, want: map[string]string{"destination_service_name": "InboundPassthroughCluster"}},
		{name: "no host header fallback", settings: strings.Replace(inbound, "{", `{"disable_host_header_fallback": true, `, 1), change: func(*protocol.Exchange) {}, want: map[string]string{
			"destination_service": "local", "destination_service_name": "local",
		}},
		{name: "host too long", change: func(x *protocol.Exchange) { x.Request.Authority = strings.Repeat("a", maxAuthorityBytes+1) }, want: map[string]string{
			"destination_service": "local", "destination_service_name": "local",
		}},
		{name: "fault", change: func(x *protocol.Exchange) { x.Record.Reason, x.Response.Status = protocol.ConnectFailure, 502 }, want: map[string]string{
			"response_code": "502", "response_flags": "UF",
		}},
		{name: "client disconnected", change: func(x *protocol.Exchange) {
			x.Record.Reason, x.Response.Status = protocol.ReasonDownstreamDisconnect, 499
		}, want: map[string]string{
			"response_code": "0", "response_flags": "DC",
		}},
		{name: "gRPC", change: func(x *protocol.Exchange) {
			x.Meta.Protocol, x.Request.Method = "Http2", "POST"
			x.Request.Header.Add("content-type", "application/grpc")
			x.Response.Trailer.Add("grpc-status", "5")
		}, want: map[string]string{"request_protocol": "grpc", "grpc_response_status": "5"}},
		{name: "RPC", change: func(x *protocol.Exchange) { x.Meta.Protocol, x.Request.Method = "dubbo", "" }, want: map[string]string{"request_protocol": "dubbo"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := inbound
			if test.settings != "" {
				settings = test.settings
			}
			observe, r := newObserver(t, Factory(), filtertest.Settings(settings))
			x := endedExchange()
			test.change(x)
			observe(x)
			want := baseLabels()
			maps.Copy(want, test.want)
			checkLabels(t, r, want)
		})
	}
}

// checkLabels checks that istio_requests_total counts one request, and that its labels include
// want.
func checkLabels(t *testing.T, r *metrics.Registry, want map[string]string) {
	t.Helper()
	got, n := onlySeries(t, r, "istio_requests_total")
	if n != 1 || len(got) != labelCount {
		t.Errorf("request counter = %v with %d labels, want 1 with %d", n, len(got), labelCount)
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("label %s = %q, want %q", name, got[name], value)
		}
	}
}

func TestOutboundRequestsAreCountedByHost(t *testing.T) {
	observe, r := newObserver(t, Factory(), outbound)
	x := endedExchange()
	x.Record.Route = namedScope{name: "allow_any"}
	x.Record.Attempts = append(x.Record.Attempts, protocol.Attempt{Host: fakeHost{"first;a;b;c;d"}}, protocol.Attempt{Host: fakeHost{"there-v2;theirs;there;v2;west"}, TLS: mutualTLS()})
	observe(x)
	want := map[string]string{
		"reporter": "source", "source_workload": "here-v1", "source_principal": "spiffe://mesh/ns/ours/sa/here", "source_canonical_revision": "v1",
		"destination_workload": "there-v2", "destination_workload_namespace": "proven", "destination_service_namespace": "proven",
		"destination_principal": "spiffe://mesh/ns/proven/sa/there", "destination_app": "unknown", "destination_canonical_revision": "v2",
		"destination_service": "shop:8080", "destination_service_name": "PassthroughCluster", "connection_security_policy": "unknown",
	}
	checkLabels(t, r, want)
	x.Metadata.Set(workload.Namespace, workload.KeyUpstream, peerWorkload) // takes precedence over the workload of the host
	observe, r = newObserver(t, Factory(), outbound)
	observe(x)
	want["destination_app"] = "tapp"
	checkLabels(t, r, want)
}

func TestSizesAndTimesAreCounted(t *testing.T) {
	observe, r := newObserver(t, Factory(), inbound)
	observe(endedExchange())
	for name, want := range map[string]float64{"istio_request_duration_milliseconds": 7, "istio_request_bytes": 100, "istio_response_bytes": 1000} {
		if _, got := onlySeries(t, r, name); got != want {
			t.Errorf("sum of %s = %v, want %v", name, got, want)
		}
	}
}

func TestOverrides(t *testing.T) {
	observe, r := newObserver(t, Factory(), `{"reporter": "destination", "metrics": [
		{"name": "request_bytes", "drop": true},
		{"name": "requests_total", "tags_to_remove": ["request_protocol", "no_such_label"]},
		{"tags_to_remove": ["response_code"]}
	]}`)
	observe(endedExchange())
	if labels, _ := onlySeries(t, r, "istio_request_bytes"); labels != nil {
		t.Errorf("the dropped metric has a series with labels %v", labels)
	}
	if labels, _ := onlySeries(t, r, "istio_requests_total"); labels["request_protocol"] != "" || labels["response_code"] != "" || labels["response_flags"] != "-" {
		t.Errorf("labels of the requests = %v, want response_flags \"-\", and request_protocol and response_code empty", labels)
	}
	if labels, _ := onlySeries(t, r, "istio_response_bytes"); labels["request_protocol"] != "http" || labels["response_code"] != "" {
		t.Errorf("labels of the response bytes = %v, want request_protocol \"http\" and response_code empty", labels)
	}
	if got := filtertest.DecodeErrors(t, Factory(), `{"reporter": "destination", "metrics": [{"name": "nothing"}]}`); !strings.Contains(got, "nothing") {
		t.Errorf("unknown metric rejected with %q, want an error that names it", got)
	}
}

// TestSeriesAreBounded verifies that authorities beyond maxSeries share one series, and that all
// listeners share the bound.
func TestSeriesAreBounded(t *testing.T) {
	factory := Factory()
	observe, r := newObserver(t, factory, inbound)
	for i := range maxSeries + 10 {
		x := endedExchange()
		x.Request.Authority = fmt.Sprintf("h%d", i)
		observe(x)
	}
	if n := r.Counter(overflowsMetric()).Value(); n != 10 {
		t.Errorf("overflow counter = %d, want 10", n)
	}
	if n := r.Counter(requestMetrics()[requestsTotal], overflowLabels(labelCount)...).Value(); n != 10 {
		t.Errorf("overflow series = %d, want 10", n)
	}
	observeOther, otherRegistry := newObserver(t, factory, inbound)
	x := endedExchange()
	x.Request.Authority = "additional"
	observeOther(x)
	if n := otherRegistry.Counter(overflowsMetric()).Value(); n != 1 {
		t.Errorf("overflow counter of another listener = %d, want 1", n)
	}
}

func TestKeysAreCloned(t *testing.T) {
	observe, r := newObserver(t, Factory(), inbound)
	buffer := []byte("shop:8080")
	x := endedExchange()
	x.Request.Authority = unsafe.String(&buffer[0], len(buffer)) // borrows buffer, as from an engine
	observe(x)
	copy(buffer, "XXXXXXXXX")
	observe(endedExchange())
	if _, n := onlySeries(t, r, "istio_requests_total"); n != 2 {
		t.Errorf("series has %v requests, want 2", n)
	}
}

func TestExchangeWithoutListenerIsNotCounted(t *testing.T) {
	observe, r := newObserver(t, Factory(), inbound)
	x := endedExchange()
	x.Record.Listener = nil
	observe(x)
	if labels, n := onlySeries(t, r, "istio_requests_total"); labels != nil {
		t.Errorf("counter = %v with labels %v, want no series", n, labels)
	}
}

// meshExchange returns an endedExchange between two sidecars.
func meshExchange() *protocol.Exchange {
	x := endedExchange()
	for range 8 {
		x.Request.Header.Add("x-some-field", "value")
	}
	x.Metadata.Set(workload.Namespace, workload.KeyDownstream, peerWorkload)
	x.Meta.Conn = &protocol.ConnMeta{TLS: mutualTLS()}
	x.Record.Cluster = namedScope{cluster: &config.Cluster{Name: "inbound|80||", Mesh: config.Mesh{Host: "shop.default.svc.cluster.local", Name: "shop.default.svc.cluster.local"}}}
	return x
}

func TestRepeatedRequestsDoNotAllocate(t *testing.T) {
	observe, _ := newObserver(t, Factory(), inbound)
	x := meshExchange()
	if n := testing.AllocsPerRun(100, func() { observe(x) }); n != 0 {
		t.Errorf("observe allocates %v times, want 0", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	observe, _ := newObserver(b, Factory(), inbound)
	x := meshExchange()
	b.ReportAllocs()
	for b.Loop() {
		observe(x)
	}
}
