// Package plan computes the cluster, the hosts and the routes of a service that is called from this
// machine, from the configuration of the consumer and the reports of registries. Its results depend
// only on its arguments.
//
//	Compute  the clusters and routes of a service                 plan.go
//	         the providers and their weights                      providers.go
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
	// Parameters are the parameters that the consumer configures. As in Dubbo, a method's
	// parameter takes precedence over a service's. At the same level, the consumer's takes
	// precedence over the provider's.
	Parameters map[string]string
	// Consumer is the URL of the consumer in registries. Rules may select consumers by this URL.
	Consumer registry.URL
	// Tagged means that providers, rules or the consumer have used tags for the service before. The
	// plan then evaluates tags, so that a call that forces a tag fails if no provider has the tag.
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
	Timeout     time.Duration // for a call, including retries
	Retries     int

	Tagged bool // the value of Reference.Tagged for the next Compute

	// Warnings name configuration that has no effect, or another effect than in Dubbo.
	Warnings []string
	// Unrouted names groups and versions that are provided but have no routes of their own, because
	// there are too many; "": none.
	Unrouted string
	// NextChange is the next time at which Compute may return another result for the same input;
	// zero: none.
	NextChange time.Time
}

// Provider is an address that provides one group and version of the service.
type Provider struct {
	URL          registry.URL
	Registry     string // the registry that reported URL
	Weight       int    // in Dubbo's units, after the warmup; 100 is usual
	UnusedReason string // why the provider gets no calls; "": it gets some

	Consumer map[string]string // the consumer's parameters for calls of the provider
}

// Defaults of clusters.
const (
	connectTimeout = 3 * time.Second // Dubbo's default
	idleTimeout    = time.Minute
	maxRequests    = 1024 // per connection, if it carries one request at a time
	maxFrameSize   = 8 << 20
	pingInterval   = 15 * time.Second
	pingTimeout    = 90 * time.Second
)

// Compute returns the clusters and routes of a service at the time now, for snapshots of the
// registries. If the snapshots contain an address several times for one group and version, Compute
// uses the first usable entry, or else the first.
func Compute(ref Reference, snapshots []RegistrySnapshot, now time.Time) *Result {
	warn := &warnings{}
	unrouted := &warnings{}
	p := collectProviders(ref, snapshots, warn)
	p.readWeights(warn)
	targets := p.computeTargets(ref, routersOf(snapshots), warn, unrouted)
	p.computeWeights(now)
	used := p.usedIndexes()
	defaults := readSettings(ref, p.byIndexes(used), warn)
	p.assignClusters(ref, targets, defaults, warn)
	result := &Result{
		Routes:      routes(ref.Service, targets),
		Providers:   p.list,
		LoadBalance: defaults.loadBalance,
		Timeout:     defaults.forService.totalTimeout(),
		Retries:     max(0, defaults.forService.retries),
		NextChange:  p.nextChange,
		Tagged:      p.hasTags,
	}
	byCluster := map[string][]*config.Route{}
	for _, r := range result.Routes {
		byCluster[r.Forward.Cluster] = append(byCluster[r.Forward.Cluster], r)
	}
	name := ref.Service.String()
	result.Cluster = p.cluster(name, defaults.policy, p.usableIndexes(), byCluster[name], p.rulesOf(name, targets))
	delete(byCluster, name)
	for _, t := range targets {
		if routes := byCluster[t.cluster]; routes != nil {
			result.VariantClusters = append(result.VariantClusters, p.cluster(t.cluster, t.settings.policy, t.candidates.members, routes, p.rulesOf(t.cluster, targets)))
			delete(byCluster, t.cluster) // several targets may use the cluster
		}
	}
	result.Warnings = warn.sorted()
	result.Unrouted = strings.Join(unrouted.sorted(), "; ")
	return result
}

// newCluster returns a cluster without hosts. Outlier detection ejects a host only after
// consecutive attempts without a valid response, such as failed connects, resets and timeouts.
// Response statuses do not eject a host.
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
// "retries" parameter of the service limits them, as in Dubbo: when a provider dies, Weft retries
// each call that was in flight on it.
func breakers() config.CircuitBreakers {
	b := config.DefaultCircuitBreakers()
	b.MaxRetries = b.MaxRequests
	return b
}

// warnings is a list of distinct warnings.
type warnings struct{ texts []string }

// maxWarnings bounds the list, because every provider may cause a different warning.
const maxWarnings = 16

func (w *warnings) add(text string) {
	const maxLen = 300 // bytes; the text may quote any registry data
	if len(text) > maxLen {
		text = strings.ToValidUTF8(text[:maxLen], "") + "…"
	}
	if len(w.texts) < maxWarnings && !slices.Contains(w.texts, text) {
		w.texts = append(w.texts, text)
	}
}

func (w *warnings) sorted() []string {
	slices.Sort(w.texts)
	return w.texts
}

// mostCommon returns the most frequent value, the smallest of several equally frequent ones, or ""
// if there is none. It sorts values.
func mostCommon(values []string) (best string) {
	slices.Sort(values)
	bestCount := 0
	for len(values) > 0 {
		count := 1
		for count < len(values) && values[count] == values[0] {
			count++
		}
		if count > bestCount {
			best, bestCount = values[0], count
		}
		values = values[count:]
	}
	return best
}
