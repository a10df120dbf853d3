// Package explain determines the route, cluster and hosts of a request and the reasons against all
// others. It is pure: it reads a configuration, sends nothing and runs no filter.
//
//	Query      a hypothetical request                query.go
//	  │
//	listener · filter chain                          listener.go
//	  │
//	target · virtual host · route                    route.go
//	  │
//	cluster · hosts                                  upstream.go
//	  ▼
//	Result     each step with its other candidates   explain.go
package explain

import "github.com/weft-proxy/weft/pkg/config"

// Result is the path of a request, step by step. Steps that were not reached are empty.
type Result struct {
	Request string `json:"request"`

	Listener       *Selected     `json:"listener,omitempty"`
	OtherListeners []Alternative `json:"other_listeners,omitempty"`
	Chain          *Selected     `json:"filter_chain,omitempty"`
	OtherChains    []Alternative `json:"other_filter_chains,omitempty"`
	// FiltersNotRun lists, in order, the filters that could reject or change the request. Explain
	// does not run them.
	FiltersNotRun []string `json:"filters_not_run,omitempty"`

	// Target is the authority and the path after normalization; nil if they do not change.
	Target *Target `json:"normalized_target,omitempty"`

	RouteTable        string        `json:"route_table,omitempty"`
	VirtualHost       *Selected     `json:"virtual_host,omitempty"`
	OtherVirtualHosts []Alternative `json:"other_virtual_hosts,omitempty"`
	Routes            []Route       `json:"routes,omitempty"` // routes of VirtualHost, in configuration order
	// RelayedTo lists the clusters of a chain that relays bytes.
	RelayedTo []Cluster `json:"relayed_to,omitempty"`

	// EndReason is the reason why the request goes no further; empty if it certainly reaches a
	// route or a cluster of RelayedTo.
	EndReason string `json:"end_reason,omitempty"`
}

// Target is the target of a request.
type Target struct {
	Authority string `json:"authority"`
	Path      string `json:"path"`
}

// Selected is the candidate that was chosen, with the reason.
type Selected struct {
	Name   string `json:"name"`
	Reason string `json:"why"`
}

// Alternative is a candidate that was not chosen, with the reasons.
type Alternative struct {
	Name    string   `json:"name"`
	Reasons []string `json:"why"`
}

// Route is a route with its outcome.
type Route struct {
	Name    string   `json:"name"`
	Outcome Outcome  `json:"outcome"`
	Reasons []string `json:"why,omitempty"`     // if Rejected: each condition that does not match
	Percent float64  `json:"percent,omitempty"` // if Sampled: percentage of the requests that take the route
	Action  *Action  `json:"action,omitempty"`  // nil unless Chosen or Sampled
}

// Outcome is the result of evaluating a route.
type Outcome string

// Outcome values.
const (
	Rejected Outcome = "rejected"
	Chosen   Outcome = "taken"
	Sampled  Outcome = "taken by chance"
	Shadowed Outcome = "comes too late" // the route matches, but an earlier route is chosen
)

// Action is the action of a route. Status is the status of a local reply, or 0 if the route
// forwards.
type Action struct {
	Status   int    `json:"status,omitempty"`
	Location string `json:"location,omitempty"` // target of a redirect

	Authority string    `json:"authority,omitempty"` // authority that the host receives
	Path      string    `json:"path,omitempty"`      // path that the host receives
	Timeout   string    `json:"timeout,omitempty"`   // such as "1m0s", or "none"
	Clusters  []Cluster `json:"clusters,omitempty"`
	// MissingReason is the reason why no cluster gets the request; empty if one does.
	MissingReason string `json:"missing,omitempty"`
}

// Cluster is a cluster to which a request may go.
type Cluster struct {
	Name    string            `json:"name"`
	Percent float64           `json:"percent"`           // percentage of the route's requests
	Labels  map[string]string `json:"labels,omitempty"`  // labels that select a subset of the hosts
	Policy  string            `json:"policy,omitempty"`  // load balancing policy among the candidates
	Missing bool              `json:"missing,omitempty"` // the cluster does not exist
	Hosts   []Host            `json:"hosts,omitempty"`
}

// Host is a host of a cluster.
type Host struct {
	Address   string   `json:"address"`
	Candidate bool     `json:"candidate"`     // the host may receive the request now
	Reasons   []string `json:"why,omitempty"` // why the host is no candidate
	Weight    uint32   `json:"weight"`
	Priority  uint32   `json:"priority,omitempty"`
	Locality  string   `json:"locality,omitempty"`
}

// Upstreams returns the current state of a cluster, or nil if it does not exist.
type Upstreams func(name string) *Upstream

// Explain returns the path of q through the configuration c.
func Explain(c *config.Snapshot, upstreams Upstreams, q *Query) *Result {
	res := &Result{Request: q.String()}
	l := res.findListener(c, q)
	if l == nil {
		return res
	}
	fc := res.findChain(l, q)
	if fc == nil {
		return res
	}
	for _, g := range fc.ConnectionFilters {
		res.FiltersNotRun = append(res.FiltersNotRun, g.Name)
	}
	protocol, ok := res.chainProtocol(fc, q)
	if !ok {
		return res
	}
	if protocol == "" {
		res.findRelayCluster(fc.TCPProxy, upstreams, q)
		return res
	}
	for _, f := range fc.Proxy.StreamFilters {
		res.FiltersNotRun = append(res.FiltersNotRun, f.Name)
	}
	newExchange := func() *exchange {
		x := q.newExchange(protocol, l.Name)
		if res.Target != nil {
			x.Request.Authority, x.Request.Path = res.Target.Authority, res.Target.Path
		}
		return x
	}
	if res.normalizeTarget(&fc.Proxy.Targets, newExchange()) {
		res.findRoute(c, upstreams, fc.Proxy, newExchange)
	}
	return res
}
