package inspect

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math/big"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/proxy/explain"
	"github.com/weft-proxy/weft/pkg/proxy/overload"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// process holds the values that the sources of the tests return.
type process struct {
	state   State
	level   string
	drained int
	exited  int
	drains  []DrainListeners

	reload    Reload
	reloadErr error

	overload *overload.Status
	dubbo    *dubbo.Status
	dump     []json.RawMessage // nil: there is no control plane
	xds      *XDS
}

func newProcess() *process { return &process{state: Ready, level: "info"} }

// eventTime is the time of events in the fixture.
func eventTime() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) }

func (p *process) sources() Sources {
	return Sources{
		State: func() State { return p.state },
		Process: func() Process {
			return Process{
				Version: Version{"1.0", "abc", "go1.26"}, State: p.state, Uptime: 90*time.Second + time.Millisecond,
				ConfigPath: "config.json", Concurrency: 2,
			}
		},
		Config: func() ConfigDump {
			return ConfigDump{
				Source: "config.json", Hash: "abc", Applied: eventTime(),
				Rejected: &Rejection{At: eventTime().Add(time.Minute), Reasons: []string{"config.json:1:2: no"}},
				Config:   json.RawMessage(`{"servers":[]}`), Dubbo: p.dubbo,
			}
		},
		Clusters: fixtureClusters,
		Cluster: func(name string) (upstream.ClusterStatus, bool) {
			clusters := fixtureClusters()
			i := slices.IndexFunc(clusters, func(c upstream.ClusterStatus) bool { return c.Name == name })
			if i < 0 {
				return upstream.ClusterStatus{}, false
			}
			return clusters[i], true
		},
		FileClusters: func() map[string]bool { return map[string]bool{"shop": true} },
		Listeners: func() []proxy.ListenerStatus {
			return []proxy.ListenerStatus{
				{Name: "in", Network: "tcp", Address: "127.0.0.1:80", Connections: 3, Requests: 1,
					ChainStatus: proxy.ChainStatus{Protocols: []string{"Http1", "Http2"}, RouteTable: "table"}},
				{Name: "tls", Network: "tcp", Address: "127.0.0.1:443", Draining: true, Chains: []proxy.ChainStatus{
					{Chain: `"a"`, RouteTable: "table"}, {Chain: "all others", Cluster: "pay"},
				}},
			}
		},
		Routes: func(table string) []proxy.RouteTableStatus {
			if table != "" && table != "table" {
				return []proxy.RouteTableStatus{}
			}
			return []proxy.RouteTableStatus{{Name: "table", Listeners: []string{"in"}, VirtualHosts: []proxy.VirtualHostStatus{
				{Name: "all", Domains: []string{"*"}, Routes: []proxy.RouteStatus{
					{Name: "r", Match: proxy.MatchStatus{Prefix: "/", Headers: []proxy.ValueStatus{{Name: "a", Value: "b"}}}, Action: proxy.ActionForward,
						Cluster: "shop", Timeout: "1m0s", Retry: &proxy.RetryStatus{On: "5xx", NumRetries: 2}},
					{Name: "moved", Match: proxy.MatchStatus{Path: "/old"}, Action: proxy.ActionRedirect, Status: 301, Location: "https://*/*"},
				}},
			}}}
		},
		Certificates: func() []credential.Certificates {
			return []credential.Certificates{{
				Local: &x509.Certificate{SerialNumber: big.NewInt(0x5ab), NotBefore: eventTime(), NotAfter: eventTime(), DNSNames: []string{"a.test"}}, LocalPath: "/a.pem",
			}}
		},
		Runtime: func() []RuntimeLayer {
			return []RuntimeLayer{{Name: "static", Values: map[string]string{"a.b": "1"}}, {Name: "rtds"}}
		},
		UnreadyListeners: func() []UnreadyListener {
			return []UnreadyListener{{"l1", 7, []string{"shared target SdsApi sec"}}, {"l2", 8, nil}}
		},
		Overload: func() *overload.Status { return p.overload },
		XDS:      func() *XDS { return p.xds },
		Dump: func(resource string, endpoints bool) ([]json.RawMessage, error) {
			switch {
			case p.dump == nil:
				return nil, nil
			case resource == "colours":
				return nil, errors.New("resource=colours is not known")
			case resource != "":
				return p.dump[:1], nil
			case endpoints:
				return p.dump, nil
			}
			return p.dump[:len(p.dump)-1], nil
		},
		Samples: fixtureSamples,
		ReadMemory: func(m *runtime.MemStats) {
			m.HeapAlloc, m.HeapSys, m.HeapIdle, m.HeapReleased, m.HeapInuse, m.Sys = 1000, 2000, 700, 300, 1300, 3000
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "weft_draining 0\n") }),
		Explain: func(query url.Values) (*explain.Result, error) {
			if query.Get("url") == "" {
				return nil, errors.New("url is missing")
			}
			return &explain.Result{
				Request: query.Get("url"), Listener: &explain.Selected{Name: "in", Reason: "the query names it"},
				OtherListeners: []explain.Alternative{{Name: "tls", Reasons: []string{"it is draining"}}}, EndReason: "no route matches",
			}, nil
		},
		Level: func() string { return p.level },
		SetLevel: func(level string) error {
			if level != "debug" {
				return errors.New("unknown level " + level + ": want debug or info")
			}
			p.level = level
			return nil
		},
		SetHealthFailed: func(failed bool) {
			p.state = Ready
			if failed {
				p.state = Draining
			}
		},
		Exit:           func() { p.exited++ },
		DrainListeners: func(o DrainListeners) { p.drains = append(p.drains, o) },
		Drain:          func() { p.drained++; p.state = Draining },
		Reload:         func(context.Context) (Reload, error) { return p.reload, p.reloadErr },
	}
}

func fixtureClusters() []upstream.ClusterStatus {
	return []upstream.ClusterStatus{
		{Name: "pay", Type: config.ClusterStatic, Policy: config.RoundRobin, Unsubscribed: true, Hosts: []upstream.HostStatus{}},
		{Name: "shop", Type: config.ClusterStatic, Policy: config.Random, InFlight: 4, Pending: 1, Open: 3, Overflows: 7,
			Breakers: []upstream.BreakerStatus{{Priority: "default", Limit: "connections", Used: 3, Max: 3, Open: true}},
			Names:    []upstream.NameStatus{{Name: "b.test", Addresses: []string{"::1"}, Age: 1.5, Lookups: 2}},
			Hosts: []upstream.HostStatus{
				{Address: "10.0.0.1:80", Hostname: "a.test", Weight: 3, Metadata: map[string]string{"zone": "a"}, Locality: "eu/a/",
					Health: upstream.HealthUp, InFlight: 1, Open: 2, Idle: 1, RoundTrip: 1.25, Attempts: 9, Failures: 2, Canceled: 1, Connects: 4, ConnectFailures: 1,
					Checks: 5, CheckFailures: 1},
				{Address: "b.test:81", Target: "[::1]:81", Weight: 1, Priority: 1, Health: upstream.HealthDown,
					DownReasons: hosthealth.FailedCheck | hosthealth.Ejected, CheckError: "status 500", Ejections: 1},
				{Address: "c.test:82", Weight: 1, Health: upstream.HealthDown, DownReasons: hosthealth.ReportedDraining},
				{Address: "/run/d.sock", Weight: 1, Health: upstream.HealthDown, DownReasons: hosthealth.Unreachable | hosthealth.ReportedUnhealthy},
			}},
	}
}

func fixtureSamples() iter.Seq[metrics.Sample] {
	return slices.Values([]metrics.Sample{
		{Name: "weft_cluster_requests_total", Labels: map[string]string{"cluster": "shop", "status_class": "2xx"}, Value: 2},
		{Name: "weft_cluster_overflow_total", Labels: map[string]string{"cluster": "shop", "limit": "pending_requests"}, Value: 5},
		{Name: "weft_listener_connections_active", Labels: map[string]string{"listener": "in:80"}, Value: 4},
		{Name: "weft_xds_responses_total", Labels: map[string]string{"type": "cluster", "result": metrics.ResultNotAccepted}, Value: 3},
	})
}
