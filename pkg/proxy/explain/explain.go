// Package explain owns the answer to where a request would go, and why not elsewhere. It
// is pure: it reads a configuration, sends nothing and runs no filter.
//
//	Question   a request that nobody has made        question.go
//	  │
//	listener · filter chain                          listener.go
//	  │
//	virtual host · route                             route.go
//	  │
//	cluster · hosts                                  upstream.go
//	  ▼
//	Answer     each step with what was not taken     explain.go
package explain

import "github.com/weft-proxy/weft/pkg/config"

// Answer says where a request would go. What was not reached is left out.
type Answer struct {
	Request string `json:"request"`

	Listener       *Selected `json:"listener,omitempty"`
	OtherListeners []Other   `json:"other_listeners,omitempty"`
	Chain          *Selected `json:"filter_chain,omitempty"`
	OtherChains    []Other   `json:"other_filter_chains,omitempty"`
	// Unasked are the filters on the way, in order: they can refuse or change a request,
	// and were not run.
	Unasked []string `json:"filters_not_run,omitempty"`

	RouteTable        string    `json:"route_table,omitempty"`
	VirtualHost       *Selected `json:"virtual_host,omitempty"`
	OtherVirtualHosts []Other   `json:"other_virtual_hosts,omitempty"`
	Routes            []Route   `json:"routes,omitempty"` // of VirtualHost, as configured
	// Carried is where a chain that carries bytes sends the connection.
	Carried []Cluster `json:"carried_to,omitempty"`

	// End is why the request goes no further; "": it does.
	End string `json:"end,omitempty"`
}

// Selected is what is taken of several.
type Selected struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Other is what is not taken, and why.
type Other struct {
	Name string   `json:"name"`
	Why  []string `json:"why"`
}

// Route is a route and what comes of it.
type Route struct {
	Name    string   `json:"name"`
	Outcome Outcome  `json:"outcome"`
	Why     []string `json:"why,omitempty"`     // of Rejected: each condition that does not hold
	Percent float64  `json:"percent,omitempty"` // of ByChance: how many of the requests
	Action  *Action  `json:"action,omitempty"`  // of Taken and ByChance
}

// Outcome is what comes of a route.
type Outcome string

// The outcomes.
const (
	Rejected Outcome = "rejected"
	Taken    Outcome = "taken"
	ByChance Outcome = "taken by chance"
	Later    Outcome = "comes too late" // it would do, but one before it is taken
)

// Action is what a route does. Status is that of an answer of Weft's own, 0 of a request
// that is forwarded.
type Action struct {
	Status   int    `json:"status,omitempty"`
	Location string `json:"location,omitempty"` // of a redirect

	Authority string    `json:"authority,omitempty"` // as the host sees it
	Path      string    `json:"path,omitempty"`      // as the host sees it
	Timeout   string    `json:"timeout,omitempty"`   // as "1m0s"; "none"
	Clusters  []Cluster `json:"clusters,omitempty"`
	// Missing is why there is no cluster, "" if there is one.
	Missing string `json:"missing,omitempty"`
}

// Cluster is a cluster that a request may go to.
type Cluster struct {
	Name    string            `json:"name"`
	Percent float64           `json:"percent"`           // how many of the requests of the route
	Labels  map[string]string `json:"labels,omitempty"`  // of the hosts that are asked for
	Policy  string            `json:"policy,omitempty"`  // that chooses among the candidates
	Missing bool              `json:"missing,omitempty"` // there is no such cluster
	Hosts   []Host            `json:"hosts,omitempty"`
}

// Host is a host of a cluster.
type Host struct {
	Address   string   `json:"address"`
	Candidate bool     `json:"candidate"`     // the request may go there now
	Why       []string `json:"why,omitempty"` // it is none
	Weight    uint32   `json:"weight"`
	Priority  uint32   `json:"priority,omitempty"`
	Locality  string   `json:"locality,omitempty"`
}

// Upstreams finds a cluster as it is now, nil: there is none of that name.
type Upstreams func(name string) *Upstream

// Explain answers q by a configuration.
func Explain(c *config.Snapshot, up Upstreams, q *Query) *Answer {
	a := &Answer{Request: q.String()}
	l := a.listener(c, q)
	if l == nil {
		return a
	}
	fc := a.chain(l, q)
	if fc == nil {
		return a
	}
	for _, g := range fc.Gates {
		a.Unasked = append(a.Unasked, g.Name)
	}
	spoken, ok := a.spoken(fc, q)
	if !ok {
		return a
	}
	if spoken == "" {
		a.carry(fc.TCPProxy, up, q)
		return a
	}
	for _, f := range fc.Proxy.StreamFilters {
		a.Unasked = append(a.Unasked, f.Name)
	}
	a.route(c, up, fc.Proxy, func() *exchange { return q.exchange(spoken, l.Name) })
	return a
}
