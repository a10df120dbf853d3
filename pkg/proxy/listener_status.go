package proxy

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// ListenerStatus is the current state of a listener, for the admin API.
type ListenerStatus struct {
	Name        string `json:"name"`
	Network     string `json:"network"`
	Address     string `json:"address"` // bound address
	Connections int    `json:"connections"`
	Requests    int64  `json:"requests"`           // number of requests in flight
	Draining    bool   `json:"draining,omitempty"` // the listener no longer accepts; open connections finish
	Sessions    int    `json:"sessions,omitempty"` // number of sessions of udp_proxy
	// ChainStatus describes the filter chain that all connections use. If the listener chooses a
	// chain for each connection, Chains lists all chains.
	ChainStatus
	Chains []ChainStatus `json:"filter_chains,omitempty"`
}

// ChainStatus describes a filter chain.
type ChainStatus struct {
	Chain      string   `json:"filter_chain,omitempty"` // identity: quoted name, match criteria, or both
	Protocols  []string `json:"protocols,omitempty"`
	RouteTable string   `json:"route_table,omitempty"`
	Cluster    string   `json:"cluster,omitempty"` // cluster of tcp_proxy or udp_proxy
}

// Describe returns the active listeners, sorted by name. During Drain it returns the listeners that
// still drain, except those for UDP. It does not return removed listeners that drain.
func (s *Server) Describe() []ListenerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	statuses := make([]ListenerStatus, 0, len(s.listeners))
	for _, live := range s.listeners {
		status := live.describe()
		status.Draining = s.stopScope.includes(live.compiled.config)
		statuses = append(statuses, status)
	}
	for live := range s.drainingListeners {
		status := live.describe()
		status.Draining = true
		statuses = append(statuses, status)
	}
	statuses = s.datagrams.describe(statuses)
	slices.SortFunc(statuses, func(a, b ListenerStatus) int { return strings.Compare(a.Name, b.Name) })
	return statuses
}

// describe returns the status of a listener. The caller holds Server.mu.
func (live *liveListener) describe() ListenerStatus {
	l := live.compiled.config
	status := ListenerStatus{
		Name: l.Name, Network: l.Network, Address: live.ln.Addr().String(),
		Connections: live.ln.Connections(), Requests: live.compiled.metrics.Active.Value(),
	}
	if live.compiled.selectsChain() {
		for _, c := range live.compiled.chains {
			status.Chains = append(status.Chains, describeChain(c.config, c.identity))
		}
	} else {
		status.ChainStatus = describeChain(l.FilterChains[0], "")
	}
	return status
}

// Remaining returns the number of open connections and sessions and of requests in flight, over all
// listeners that Describe returns.
func (s *Server) Remaining() (connections int, requests int64) {
	for _, l := range s.Describe() {
		connections += l.Connections + l.Sessions
		requests += l.Requests
	}
	return connections, requests
}

func describeChain(fc *config.FilterChain, identity string) ChainStatus {
	status := ChainStatus{Chain: identity}
	if fc.TCPProxy != nil {
		status.Cluster = fc.TCPProxy.Cluster
	}
	if fc.Proxy == nil {
		return status
	}
	status.RouteTable = fc.Proxy.RouteTable
	for _, p := range fc.Proxy.Downstream {
		status.Protocols = append(status.Protocols, string(p))
	}
	return status
}
