// Package plan decides what becomes of a service that is called from here: of what was
// asked for and what registries say, the cluster, its hosts, and the routes to it. It is
// a function of its arguments.
//
//	Make     a service -> its clusters and routes           plan.go
//	         which addresses get how much, as rules say     providers.go
//	         which calls go to which of them, as rules say   hostrules.go
//	         timeouts, retries, balancing                   settings.go
//	         what requests are meant, and who gets them     ways.go
//	         the routes of all that                         routes.go
//	Compare  the order of services in the route table       routes.go
package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// Reference is what was asked for here.
type Reference struct {
	Service registry.Service
	// Parameters are the consumer's. Where both have one, they count for more than those
	// of a provider, as in Dubbo; a method's count for more than a service's.
	Parameters map[string]string
	// Consumer is who calls, as registries have him: rules may mean him.
	Consumer registry.URL
	// Tagged: the service has had providers with tags. Calls that ask for a tag by force
	// go nowhere then when nobody has it.
	Tagged bool
}

// RegistrySnapshot is what a registry says of the service.
type RegistrySnapshot struct {
	Registry string
	View     registry.Snapshot
}

// Result is what becomes of a service. It is not changed.
type Result struct {
	Cluster *config.Cluster
	// VariantClusters are the clusters for calls of one group or version that hosts provide among
	// others: a host of Cluster counts as one of those.
	VariantClusters []*config.Cluster
	Routes          []*config.Route
	Providers       []Provider // everything that was named, by address

	LoadBalance string        // in Dubbo's word
	Timeout     time.Duration // for a call, retries included; 0: none
	Retries     int

	Tagged bool // for the next Wish

	// Warnings are about what was said and has another effect than in Dubbo, or none.
	Warnings []string
	// Unrouted says which groups and versions have no routes of their own though they are
	// provided, as there are too many; "": none.
	Unrouted string
	// Next is when the outcome becomes another one though nothing new is said; zero: it
	// does not.
	Next time.Time
}

// Provider is an address that provides the service, in one group and version.
type Provider struct {
	URL      registry.URL
	Registry string // the first that named it
	Weight   int    // as Dubbo counts, of a provider that has run for long; 100 is usual
	Unused   string // why it gets no calls; "": it gets some

	Consumer map[string]string // the parameters with which it is called
}

// What clusters have that nobody says otherwise of.
const (
	connectTimeout = 3 * time.Second // as Dubbo has it
	idleTimeout    = time.Minute
	maxRequests    = 1024 // of a connection that carries one at a time
	maxFrameSize   = 8 << 20
	pingInterval   = 15 * time.Second
	pingTimeout    = 90 * time.Second
)

// Compute returns what becomes of a service at the time now, of which the registries say
// what is in lists. What several of them name of an address counts once for each group and
// version, as the first says.
func Compute(w Reference, lists []RegistrySnapshot, now time.Time) *Result {
	n := &warnings{}
	lacks := &warnings{}
	p := gather(w, lists, n)
	p.readWeights(n)
	lanes := p.computeTargets(w, routersOf(lists), n, lacks)
	p.weigh(now)
	used := p.used()
	with := readSettings(w, p.members(used), n)
	p.assignClusters(w, lanes, with, n)
	o := &Result{
		Routes:      routes(w.Service, lanes),
		Providers:   p.all,
		LoadBalance: with.loadBalance,
		Timeout:     with.forService.whole(),
		Retries:     max(0, with.forService.retries),
		Next:        p.next,
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
			o.VariantClusters = append(o.VariantClusters, p.cluster(one.cluster, one.settings.policy, one.audience.members, routes, p.rulesOf(one.cluster, lanes)))
			delete(byCluster, one.cluster) // others with other conditions lead there, too
		}
	}
	o.Warnings = n.sorted()
	o.Unrouted = strings.Join(lacks.sorted(), "; ")
	return o
}

// newCluster returns a cluster without hosts. What ejects a host of it is that it cannot
// be reached: a provider that has died gets nothing before its registry knows.
func newCluster(name string, policy config.Policy) *config.Cluster {
	return &config.Cluster{
		Name:               name,
		Type:               config.ClusterStatic,
		Policy:             policy,
		Protocol:           config.Dubbo,
		ChoiceCount:        2,
		ActiveRequestBias:  1,
		ConnectTimeout:     connectTimeout,
		IdleTimeout:        idleTimeout,
		MaxRequestsPerConn: maxRequests,
		Pool:               config.Pool{Mode: config.Multiplex, Connections: 1, MaxFrameSize: maxFrameSize},
		Breakers:           breakers(),
		HighBreakers:       breakers(),
		KeepAlive:          config.KeepAlive{Interval: pingInterval, Timeout: pingTimeout},
		Outlier: &config.Outlier{
			Interval:         10 * time.Second,
			BaseTime:         10 * time.Second,
			MaxTime:          5 * time.Minute,
			MaxPercent:       50,
			AlwaysOne:        true,
			SplitLocal:       true,
			CheckReturns:     true,
			ConsecutiveLocal: config.Consecutive{Failures: 5, Enforce: 100},
		},
	}
}

// breakers returns the limits of a service's cluster: the defaults, but for retries. How often
// a call is made again is what the service's own "retries" says, as in Dubbo: when a provider
// dies, each call that was in flight on it is made again.
func breakers() config.Breakers {
	b := config.DefaultBreakers()
	b.MaxRetries = b.MaxRequests
	return b
}

// warnings are warnings, each once.
type warnings struct{ texts []string }

// mostNotes bounds them: each of many providers may have a mistake of its own.
const mostNotes = 16

func (n *warnings) add(text string) {
	const most = 300 // of bytes: it may quote whatever a registry has
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if len(n.texts) < mostNotes && !slices.Contains(n.texts, text) {
		n.texts = append(n.texts, text)
	}
}

func (n *warnings) sorted() []string {
	slices.Sort(n.texts)
	return n.texts
}

// mostCommon returns the value that is there most often, the first in order of those; ""
// if there is none.
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
