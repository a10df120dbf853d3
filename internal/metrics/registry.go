// Package metrics owns the numbers that Weft keeps of its work and their
// exposition to Prometheus.
//
// What happens on the request path is counted by handles that are made when a
// configuration is applied (Listener, Routes, Cluster, Host): plain atomic
// counters, no map, no lock and no label. Only RPC looks up who was called.
// client_golang is only used to write them out: a scrape turns the counters
// into constant metrics.
//
//	Listener, Routes, Cluster, Host    handles by place             places.go
//	  Requests.Add                     what requests leave          requests.go
//	  bucketOf                         where its duration belongs   buckets.go
//	Sum                                requests that ended alike    sum.go
//	RPC                                methods of RPC services      rpc.go
//	Counter, Func                      what has no place            family.go
//	Histogram                          the same, of sizes           histogram.go
//	Handler                            a scrape                     registry.go
//
// Handles are counted by reference: what two configurations share keeps its
// numbers, and the series of what has left the configuration disappear. Every
// label value comes from configuration or from a closed list; each kind of place
// has a limit beyond which places share one series whose labels are "_other".
// What callers choose, services and methods of RPC requests, has limits of its
// own: MaxMethods, MaxCodes, MaxMethodName.
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

// DefaultMaxPlaces is how many places of a kind have series of their own.
const DefaultMaxPlaces = 5000

// Options say what a Registry can be told of. The zero value suits tests.
type Options struct {
	// Reasons are the label values that Sample.Reason is a position in. Reasons[0]
	// stands for "no failure"; at most 64. Default: one, "none".
	Reasons []string

	// Causes are the label values that Listener.Closed's argument is a position
	// in; at most 16. Default: one, "none".
	Causes []string

	// MaxPlaces is how many routes, clusters and hosts in use have series of
	// their own, each kind by itself. Default DefaultMaxPlaces.
	MaxPlaces int

	// Version and Revision are what runs, for weft_build_info.
	Version, Revision string
}

// Registry owns all metrics of a process. Safe for concurrent use.
type Registry struct {
	o          Options // immutable
	prometheus *prometheus.Registry
	exclusion  atomic.Pointer[Exclusion]
	families   families

	listeners shelf[string, Listener]
	routes    shelf[routeKey, Requests]
	clusters  shelf[string, Cluster]
	hosts     shelf[hostKey, Requests]
	rpc       *RPC // immutable
}

// New returns a registry that exports the Go runtime, the process and what
// its handles will count.
func New(o Options) *Registry {
	if len(o.Reasons) > maxReasons {
		panic("metrics: more than 64 reasons")
	}
	if len(o.Causes) > maxCauses {
		panic("metrics: more causes than maxCauses")
	}
	if len(o.Reasons) == 0 {
		o.Reasons = []string{valueNone}
	}
	if len(o.Causes) == 0 {
		o.Causes = []string{valueNone}
	}
	if o.MaxPlaces <= 0 {
		o.MaxPlaces = DefaultMaxPlaces
	}
	r := &Registry{
		o:          o,
		prometheus: prometheus.NewRegistry(),
		listeners:  newShelf[string, Listener](o.MaxPlaces, valueOther),
		routes:     newShelf[routeKey, Requests](o.MaxPlaces, routeKey{valueOther, valueOther, valueOther}),
		clusters:   newShelf[string, Cluster](o.MaxPlaces, valueOther),
		hosts:      newShelf[hostKey, Requests](o.MaxPlaces, hostKey{valueOther, valueOther}),
		rpc:        newRPC(),
	}
	r.exclusion.Store(&Exclusion{})
	r.families.limit = o.MaxPlaces
	r.prometheus.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newPlaceCollector(r),
		newRPCCollector(r),
		&familyCollector{r},
	)
	r.Func(buildMetric(), func() float64 { return 1 }, o.Version, o.Revision, runtime.Version())
	return r
}

// Exclusion says what is not exported (stats_matcher in config.json). Counting
// goes on: an exclusion can be lifted without a restart.
type Exclusion struct {
	All    bool
	Labels []string // label keys: metrics that have one
	Names  []string // metrics, with or without "weft_"
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

// Exclude replaces what is not exported.
func (r *Registry) Exclude(x Exclusion) { r.exclusion.Store(&x) }

// Gather returns everything that is exported now: prometheus.Gatherer.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) {
	x := r.exclusion.Load()
	if x.All {
		return nil, nil
	}
	found, err := r.prometheus.Gather()
	// Ours are left out where they are made, those of the runtime here.
	found = slices.DeleteFunc(found, func(f *dto.MetricFamily) bool {
		return x.excludes(f.GetName(), labelKeys(f))
	})
	return found, err
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

// maxScrapes is how many scrapes run at once; more are answered with 503.
const maxScrapes = 3

// Handler answers scrapes, in the text format or what the scraper prefers.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // one bad series must not hide the others
		MaxRequestsInFlight: maxScrapes,
	})
}

func (r *Registry) emitter(to chan<- prometheus.Metric) *emitter {
	return &emitter{to: to, exclusion: r.exclusion.Load(), reasons: r.o.Reasons, causes: r.o.Causes}
}
