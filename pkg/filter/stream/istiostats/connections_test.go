package istiostats

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// newConnectionObserver builds a network filter and returns its observer and its registry.
func newConnectionObserver(t testing.TB, factory filter.ConnectionFilterFactory, settings filtertest.Settings) (observe filter.SessionObserver, r *metrics.Registry) {
	t.Helper()
	r = metrics.New(metrics.Options{})
	observe, err := factory.NewObserver(filtertest.Decode(t, filter.StreamFilterFactory{Config: factory.Config}, settings), filter.Env{Metrics: r})
	if err != nil {
		t.Fatal(err)
	}
	return observe, r
}

// TestReadmeListsConnectionMetrics verifies that README.md names the connection metrics.
// CheckReadme compares only the tables of the stream filter.
func TestReadmeListsConnectionMetrics(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ConnectionFactory().Metrics {
		if !strings.Contains(string(page), "`"+m.Name+"`") {
			t.Errorf("README.md does not name %s", m.Name)
		}
	}
}

func TestConnectionsAreCountedByBothEnds(t *testing.T) {
	service := &config.Cluster{Name: "outbound|7070||app", Mesh: config.Mesh{Host: "app.default.svc", Name: "app"}}
	// The labels of an inbound connection without TLS or a known service.
	inboundLabels := map[string]string{"response_flags": "-", "request_protocol": "tcp", "connection_security_policy": "none"}
	for name, value := range baseLabels() {
		if strings.HasPrefix(name, "source_") || strings.HasPrefix(name, "destination_") || name == "reporter" {
			inboundLabels[name] = value
		}
	}
	inboundLabels["destination_service"], inboundLabels["destination_service_name"] = "local", "local"
	outboundLabels := maps.Clone(inboundLabels)
	for name, value := range inboundLabels {
		if suffix, ok := strings.CutPrefix(name, "destination_"); ok && !strings.HasPrefix(suffix, "service") {
			outboundLabels["source_"+suffix], outboundLabels[name] = value, inboundLabels["source_"+suffix]
		}
	}
	maps.Copy(outboundLabels, map[string]string{
		"reporter": "source", "connection_security_policy": "unknown",
		"destination_service": "unknown", "destination_service_name": "unknown", "destination_service_namespace": "unknown",
	})
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		session  *filter.Session // nil: an empty Session
		base     map[string]string
		want     map[string]string // labels that differ from base
	}{
		{name: "unknown peer", settings: inbound, base: inboundLabels},
		{name: "mutual TLS", settings: inbound, base: inboundLabels, session: &filter.Session{DownstreamTLS: mutualTLS(), Host: &config.Host{Workload: "not;the;caller;;"}}, want: map[string]string{
			"source_principal": "spiffe://mesh/ns/proven/sa/there", "source_workload_namespace": "proven",
			"destination_principal": "spiffe://mesh/ns/ours/sa/here", "connection_security_policy": "mutual_tls",
		}},
		{name: "TLS without a peer certificate", settings: inbound, base: inboundLabels, session: &filter.Session{DownstreamTLS: &protocol.TLS{LocalURISANs: []string{"spiffe://a"}}},
			want: map[string]string{"destination_principal": "spiffe://a"}},
		{name: "known service", settings: inbound, base: inboundLabels, session: &filter.Session{Cluster: service},
			want: map[string]string{"destination_service": "app.default.svc", "destination_service_name": "app"}},
		{name: "unknown service", settings: inbound, base: inboundLabels, session: &filter.Session{Cluster: &config.Cluster{Name: "InboundPassthroughCluster"}},
			want: map[string]string{"destination_service_name": "InboundPassthroughCluster"}},
		{name: "unknown destination", settings: outbound, base: outboundLabels},
		{name: "destination outside the mesh", settings: outbound, base: outboundLabels, session: &filter.Session{Cluster: &config.Cluster{Name: "PassthroughCluster"}},
			want: map[string]string{"destination_service_name": "PassthroughCluster"}},
		{name: "known workload", settings: outbound, base: outboundLabels,
			session: &filter.Session{Cluster: service, Host: &config.Host{Workload: "there-v2;theirs;there;v2;west"}, UpstreamTLS: mutualTLS(), DownstreamTLS: &protocol.TLS{LocalURISANs: []string{"spiffe://not/me"}}},
			want: map[string]string{
				"destination_service": "app.default.svc", "destination_service_name": "app", "destination_service_namespace": "proven",
				"destination_workload": "there-v2", "destination_workload_namespace": "proven", "destination_canonical_service": "there", "destination_canonical_revision": "v2",
				"destination_cluster": "west", "destination_principal": "spiffe://mesh/ns/proven/sa/there", "source_principal": "spiffe://mesh/ns/ours/sa/here",
			}},
		{name: "no host", settings: outbound, base: outboundLabels, session: &filter.Session{Reason: protocol.ConnectFailure}, want: map[string]string{"response_flags": "UF"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			observe, r := newConnectionObserver(t, ConnectionFactory(), test.settings)
			conn := cmp.Or(test.session, new(filter.Session))
			conn.Traffic.In.Store(9)
			conn.Traffic.Out.Store(8)
			observe(conn)()
			want := maps.Clone(test.base)
			maps.Copy(want, test.want)
			for name, value := range map[string]float64{"connections_opened": 1, "connections_closed": 1, "sent_bytes": 9, "received_bytes": 8} {
				if got, n := onlySeries(t, r, "istio_tcp_"+name+"_total"); n != value || !maps.Equal(got, want) {
					t.Errorf("%s = %v with labels\n%v, want %v with labels\n%v", name, n, got, value, want)
				}
			}
		})
	}
}

func TestReportingDuration(t *testing.T) {
	for settings, interval := range map[filtertest.Settings]time.Duration{
		`{"reporter": "source"}`:                                  5 * time.Second,
		`{"reporter": "source", "tcp_reporting_duration": "15s"}`: 15 * time.Second,
		`{"reporter": "source", "tcp_reporting_duration": "0s"}`:  0,
	} {
		t.Run(string(settings), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				observe, r := newConnectionObserver(t, ConnectionFactory(), settings)
				checkCounters := func(when string, opened, closed, sent, received float64) {
					t.Helper()
					for name, want := range map[string]float64{"connections_opened": opened, "connections_closed": closed, "sent_bytes": sent, "received_bytes": received} {
						if _, n := onlySeries(t, r, "istio_tcp_"+name+"_total"); n != want {
							t.Errorf("%s: %s = %v, want %v", when, name, n, want)
						}
					}
				}
				conn := &filter.Session{}
				onEnd := observe(conn)
				checkCounters("start", 1, 0, 0, 0)
				conn.Traffic.In.Add(100)
				conn.Traffic.Out.Add(10)
				if interval > 0 {
					<-time.After(interval - 1)
					checkCounters("before the interval", 1, 0, 0, 0)
					<-time.After(2)
					checkCounters("after the interval", 1, 0, 100, 10)
					conn.Traffic.In.Add(100)
					<-time.After(interval)
					checkCounters("after two intervals", 1, 0, 200, 10)
				} else {
					<-time.After(time.Hour)
					checkCounters("after an hour", 1, 0, 0, 0)
					conn.Traffic.In.Add(100)
				}
				conn.Traffic.Out.Add(1)
				onEnd()
				checkCounters("end", 1, 1, 200, 11)
				<-time.After(time.Hour)
				checkCounters("an hour after the end", 1, 1, 200, 11)
			})
		})
	}
}

func TestConnectionOverrides(t *testing.T) {
	observe, r := newConnectionObserver(t, ConnectionFactory(), `{"reporter": "destination", "metrics": [
		{"name": "tcp_connections_closed_total", "drop": true}, {"name": "tcp_sent_bytes_total", "tags_to_remove": ["reporter"]}
	]}`)
	observe(&filter.Session{})()
	if labels, _ := onlySeries(t, r, "istio_tcp_connections_closed_total"); labels != nil {
		t.Errorf("the dropped metric has a series with labels %v", labels)
	}
	if labels, _ := onlySeries(t, r, "istio_tcp_sent_bytes_total"); labels["reporter"] != "" || labels["request_protocol"] != "tcp" {
		t.Errorf("labels of the sent bytes = %v, want no reporter", labels)
	}
	for _, invalid := range []filtertest.Settings{`{"reporter": "source", "metrics": [{"name": "requests_total"}]}`, `{}`} {
		filtertest.DecodeErrors(t, filter.StreamFilterFactory{Config: ConnectionFactory().Config}, invalid)
	}
}

func TestSeriesOfConnectionsAreBounded(t *testing.T) {
	observe, r := newConnectionObserver(t, ConnectionFactory(), inbound)
	for i := range maxSeries + 10 {
		observe(&filter.Session{DownstreamTLS: &protocol.TLS{Peer: &protocol.Certificate{URISANs: []string{fmt.Sprintf("spiffe://mesh/%d", i)}}}})()
	}
	if n := r.Counter(overflowsMetric()).Value(); n != 10 {
		t.Errorf("overflow counter = %d, want 10", n)
	}
	if n := r.Counter(connectionMetrics()[connectionsClosed], overflowLabels(sessionLabels)...).Value(); n != 10 {
		t.Errorf("overflow series = %d, want 10", n)
	}
}

// TestSessionAllocations verifies that a session allocates only itself and its end function, and
// that report does not allocate.
func TestSessionAllocations(t *testing.T) {
	observe, _ := newConnectionObserver(t, ConnectionFactory(), `{"reporter": "destination", "tcp_reporting_duration": "0s"}`)
	conn := &filter.Session{DownstreamTLS: mutualTLS()}
	observe(conn)()
	if n := testing.AllocsPerRun(100, func() { observe(conn)() }); n > 2 {
		t.Errorf("a session allocates %v times, want at most 2", n)
	}
	n := &session{entry: &entry{}, traffic: &conn.Traffic, timer: time.NewTimer(time.Hour)}
	defer n.end()
	if allocs := testing.AllocsPerRun(100, func() { n.report(time.Hour) }); allocs != 0 {
		t.Errorf("report allocates %v times, want 0", allocs)
	}
}
