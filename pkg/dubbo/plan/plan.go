// Package plan computes the cluster, the hosts and the routes of a service that is called from this
// machine, from what the consumer configured and what registries report. Its results depend only on
// its arguments.
//
//	Compute  a service -> its clusters and routes                 plan.go
//	         the weights of addresses, as rules say               providers.go
//	         the providers that each call may go to               hostrules.go
//	         timeouts, retries, load balancing                    settings.go
//	         the requests that match, and their targets           targets.go
//	         the routes to these targets                          routes.go
//	Compare  the order of services in the route table             routes.go
package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/registry"
)

// Reference is a service that the local consumer calls.
type Reference struct {
	Service registry.Service
	// Parameters are the consumer's. They take precedence over those of a provider, as in Dubbo; a
	// method's parameter takes precedence over a service's.
	Parameters map[string]string
	// Consumer is the consumer's URL as registries have it: rules may select it.
	Consumer registry.URL
	// Tagged means that the service has had providers with tags. Calls that force a tag then fail
	// when no provider has it.
	Tagged bool
}

// RegistrySnapshot is the report of one registry about the service.
type RegistrySnapshot struct {
	Registry string
	Snapshot registry.Snapshot
}

// Result contains the clusters and routes of a service. It is immutable.
type Result struct {
	Cluster *config.Cluster
	// VariantClusters are the clusters for calls of one group or version at addresses that provide
	// several: a host of Cluster has the labels of only one of them.
	VariantClusters []*config.Cluster
	Routes          []*config.Route
	Providers       []Provider // all providers, sorted by address

	LoadBalance string        // Dubbo's name
	Timeout     time.Duration // for a call, including retries; 0: no timeout
	Retries     int

	Tagged bool // for the next Reference

	// Warnings are about configuration that has no effect, or another effect than in Dubbo.
	Warnings []string
	// Unrouted names groups and versions that are provided but have no routes of their own, because
	// there are too many; "": none.
	Unrouted string
	// NextChange is the time at which Compute returns another result for the same input; zero: never.
	NextChange time.Time
}

// Provider is an address that provides the service, in one group and version.
type Provider struct {
	URL          registry.URL
	Registry     string // the first that reported it
	Weight       int    // in Dubbo's units, after the warmup; 100 is usual
	UnusedReason string // why it gets no calls; "": it gets some

	Consumer map[string]string // the parameters with which it is called
}

// Defaults of clusters.
const (
	connectTimeout = 3 * time.Second // Dubbo's default
	idleTimeout    = time.Minute
	maxRequests    = 1024 // on a connection that carries one request at a time
	maxFrameSize   = 8 << 20
	pingInterval   = 15 * time.Second
	pingTimeout    = 90 * time.Second
)

// Compute returns the clusters and routes of a service at the time now, for the reports of the
// registries in lists. If lists contain an address several times for one group and version, gather
// selects one of them.
func Compute(w Reference, lists []RegistrySnapshot, now time.Time) *Result {
	n := &warnings{}
	lacks := &warnings{}
	p := collectProviders(w, lists, n)
	p.readWeights(n)
	lanes := p.computeTargets(w, routersOf(lists), n, lacks)
	p.computeWeights(now)
	used := p.usedIndexes()
	with := readSettings(w, p.byIndexes(used), n)
	p.assignClusters(w, lanes, with, n)
	o := &Result{
		Routes:      routes(w.Service, lanes),
		Providers:   p.all,
		LoadBalance: with.loadBalance,
		Timeout:     with.forService.totalTimeout(),
		Retries:     max(0, with.forService.retries),
		NextChange:  p.nextChange,
		Tagged:      p.tagged,
	}
	byCluster := map[string][]*config.Route{}
	for _, r := range o.Routes {
		byCluster[r.Forward.Cluster] = append(byCluster[r.Forward.Cluster], r)
	}
	name := w.Service.String()
	o.Cluster = p.cluster(name, with.policy, p.usableIndexes(), byCluster[name], p.rulesOf(name, lanes))
	delete(byCluster, name)
	for _, one := range lanes {
		if routes := byCluster[one.cluster]; routes != nil {
			o.VariantClusters = append(o.VariantClusters, p.cluster(one.cluster, one.settings.policy, one.candidates.members, routes, p.rulesOf(one.cluster, lanes)))
			delete(byCluster, one.cluster) // other targets lead to the same cluster
		}
	}
	o.Warnings = n.sorted()
	o.Unrouted = strings.Join(lacks.sorted(), "; ")
	return o
}

// newCluster returns a cluster without hosts. Outlier detection ejects a host only if Weft cannot
// reach it, so that a dead provider gets no calls before its registry drops it.
func newCluster(name string, policy config.LBPolicy) *config.Cluster {
	return &config.Cluster{
		Name:                name,
		Type:                config.ClusterStatic,
		LBPolicy:            policy,
		Protocol:            config.Dubbo,
		ChoiceCount:         2,
		ActiveRequestBias:   1,
		ConnectTimeout:      connectTimeout,
		IdleTimeout:         idleTimeout,
		MaxRequestsPerConn:  maxRequests,
		Pool:                config.Pool{Mode: config.Multiplex, Connections: 1, MaxFrameSize: maxFrameSize},
		CircuitBreakers:     breakers(),
		HighCircuitBreakers: breakers(),
		Heartbeat:           config.Heartbeat{Interval: pingInterval, Timeout: pingTimeout},
		OutlierDetection: &config.OutlierDetection{
			Interval:               10 * time.Second,
			BaseEjectionTime:       10 * time.Second,
			MaxEjectionTime:        5 * time.Minute,
			MaxEjectionPercent:     50,
			AlwaysEjectOne:         true,
			SplitLocalOriginErrors: true,
			UnejectOnHealthCheck:   true,
			ConsecutiveLocal:       config.Consecutive{Failures: 5, Enforce: 100},
		},
	}
}

// breakers returns the limits of a service's cluster: the defaults, except for retries. The
// service's own "retries" limits them, as in Dubbo: when a provider dies, Weft retries each call
// that was in flight on it.
func breakers() config.CircuitBreakers {
	b := config.DefaultCircuitBreakers()
	b.MaxRetries = b.MaxRequests
	return b
}

// warnings is a list of distinct warnings.
type warnings struct{ texts []string }

// maxWarnings bounds the list: each of many providers may have its own mistake.
const maxWarnings = 16

func (n *warnings) add(text string) {
	const most = 300 // bytes; the text may quote any registry data
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if len(n.texts) < maxWarnings && !slices.Contains(n.texts, text) {
		n.texts = append(n.texts, text)
	}
}

func (n *warnings) sorted() []string {
	slices.Sort(n.texts)
	return n.texts
}

// mostCommon returns the most frequent value, the smallest of several, or "" if there is none. It
// sorts values.
func mostCommon(values []string) (best string) {
	slices.Sort(values)
	most := 0
	for len(values) > 0 {
		same := 1
		for same < len(values) && values[same] == values[0] {
			same++
		}
		if same > most {
			best, most = values[0], same
		}
		values = values[same:]
	}
	return best
}
