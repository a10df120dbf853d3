package proxy

import (
	"slices"
	"strings"
)

// ListenerStatus is a listener as it runs, for people.
type ListenerStatus struct {
	Name        string   `json:"name"`
	Network     string   `json:"network"`
	Address     string   `json:"address"` // as bound
	Connections int      `json:"connections"`
	Protocols   []string `json:"protocols,omitempty"`
	RouteTable  string   `json:"route_table,omitempty"`
	Cluster     string   `json:"cluster,omitempty"` // of tcp_proxy
}

// Describe returns the listeners that accept, by name.
func (s *Server) Describe() []ListenerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]ListenerStatus, 0, len(s.listeners))
	for _, live := range s.listeners {
		l := live.chain.config
		status := ListenerStatus{Name: l.Name, Network: l.Network, Address: live.ln.Addr().String(), Connections: live.ln.Connections()}
		fc := l.FilterChains[0]
		if fc.TCPProxy != nil {
			status.Cluster = fc.TCPProxy.Cluster
		} else {
			status.RouteTable = fc.Proxy.RouteTable
			for _, p := range fc.Proxy.Downstream {
				status.Protocols = append(status.Protocols, string(p))
			}
		}
		all = append(all, status)
	}
	slices.SortFunc(all, func(a, b ListenerStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}
