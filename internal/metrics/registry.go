// Package metrics counts what Weft does and exports the numbers to Prometheus.
//
// The request path counts with handles that are created when a configuration is applied (Listener,
// Routes, Cluster, Host): plain atomic counters without a map, a lock or a label. The exception is
// RPC, which looks up the called method. client_golang only writes the numbers: a scrape turns the
// counters into constant metrics.
//
//	Listener, Routes, Cluster, Host    handles by scope             scopes.go
//	  RequestRecorder.Add              counts requests              requests.go
//	  bucketOf                         bucket of a duration         buckets.go
//	Batch                              requests of one outcome      batch.go
//	RPC                                methods of RPC services      rpc.go
//	Counter, Func                      metrics without a scope      family.go
//	Histogram                          counts of sizes by bucket    histogram.go
//	Handler                            serves scrapes               registry.go
//
// Handles have reference counts: scopes that two configurations share keep their numbers, and the
// series of a scope disappear when it leaves the configuration. Every label value comes from the
// configuration or from a closed list, except in the metrics of RPC. Each type of scope has a
// limit; scopes beyond it share the scope "_other". Clients choose the services and methods of RPC
// requests, which have separate limits: MaxMethods, MaxCodes, MaxMethodName.
package metrics

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// DefaultMaxScopes is the default of Options.MaxScopes.
const DefaultMaxScopes = 5000

// Options configure a Registry. The zero value suits tests.
type Options struct {
	// Reasons are the label values that Outcome.Reason indexes, at most 64. Reasons[0] means "no
	// failure". Default: one reason, "none".
	Reasons []string

	// CloseReasons are the label values that the argument of Listener.Closed indexes, at most 24.
	// Default: one close reason, "none".
	CloseReasons []string

	// MaxScopes is the maximum number of listeners, of routes, of clusters, of hosts, and of label
	// combinations of one other metric that have series of their own. Default DefaultMaxScopes.
	MaxScopes int

	// Version and Revision are labels of weft_build_info.
	Version, Revision string
}

// Registry owns all metrics of a process. Safe for concurrent use.
type Registry struct {
	options    Options // immutable
	prometheus *prometheus.Registry
	exclusion  atomic.Pointer[Exclusion]
	families   families

	listeners scopeTable[string, Listener]
	routes    scopeTable[routeKey, RequestRecorder]
	clusters  scopeTable[string, Cluster]
	hosts     scopeTable[hostKey, RequestRecorder]
	rpc       *RPC // immutable
}

// New returns a registry that exports the metrics of the Go runtime, of the process, and of the
// registry's handles.
func New(o Options) *Registry {
	if len(o.Reasons) > maxReasons {
		panic("metrics: more than 64 reasons")
	}
	if len(o.CloseReasons) > maxCloseReasons {
		panic("metrics: more than 24 close reasons")
	}
	if len(o.Reasons) == 0 {
		o.Reasons = []string{valueNone}
	}
	if len(o.CloseReasons) == 0 {
		o.CloseReasons = []string{valueNone}
	}
	if o.MaxScopes <= 0 {
		o.MaxScopes = DefaultMaxScopes
	}
	r := &Registry{
		options:    o,
		prometheus: prometheus.NewRegistry(),
		listeners:  newScopeTable[string, Listener](o.MaxScopes, valueOther),
		routes:     newScopeTable[routeKey, RequestRecorder](o.MaxScopes, routeKey{valueOther, valueOther, valueOther}),
		clusters:   newScopeTable[string, Cluster](o.MaxScopes, valueOther),
		hosts:      newScopeTable[hostKey, RequestRecorder](o.MaxScopes, hostKey{valueOther, valueOther}),
		rpc:        newRPC(),
	}
	r.exclusion.Store(&Exclusion{})
	r.families.limit = o.MaxScopes
	r.prometheus.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newScopeCollector(r),
		newRPCCollector(r),
		&familyCollector{r},
	)
	r.Func(buildMetric(), func() float64 { return 1 }, o.Version, o.Revision, runtime.Version())
	return r
}

// Exclusion selects metrics that are not exported (stats_matcher in config.json). They are still
// counted, so removing an exclusion needs no restart.
type Exclusion struct {
	All    bool
	Labels []string // label keys; excludes metrics with one of them
	Names  []string // metric names, with or without "weft_"
}

func (x *Exclusion) excludes(name string, labels []string) bool {
	if x.All {
		return true
	}
	if len(x.Names) == 0 && len(x.Labels) == 0 {
		return false
	}
	return slices.Contains(x.Names, name) ||
		slices.Contains(x.Names, strings.TrimPrefix(name, "weft_")) ||
		slices.ContainsFunc(labels, func(label string) bool { return slices.Contains(x.Labels, label) })
}

// Exclude replaces the exclusion.
func (r *Registry) Exclude(x Exclusion) { r.exclusion.Store(&x) }

// Gather returns all exported metrics. It implements prometheus.Gatherer.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) {
	x := r.exclusion.Load()
	if x.All {
		return nil, nil
	}
	families, err := r.prometheus.Gather()
	// The emitter has excluded Weft's own metrics. Those of the Go runtime and the process remain.
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		return x.excludes(f.GetName(), labelKeys(f))
	})
	return families, err
}

func labelKeys(f *dto.MetricFamily) []string {
	if len(f.GetMetric()) == 0 {
		return nil
	}
	var keys []string
	for _, pair := range f.GetMetric()[0].GetLabel() {
		keys = append(keys, pair.GetName())
	}
	return keys
}

// maxScrapes is the maximum number of concurrent scrapes; others get a 503.
const maxScrapes = 3

// Handler serves scrapes, in the text format or in a format that the scraper prefers.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // one invalid series must not hide the others
		MaxRequestsInFlight: maxScrapes,
	})
}

func (r *Registry) emitter(ch chan<- prometheus.Metric) *emitter {
	return &emitter{ch: ch, exclusion: r.exclusion.Load(), reasons: r.options.Reasons, closeReasons: r.options.CloseReasons}
}
