package upstream

import "github.com/weft-proxy/weft/pkg/config"

// ResolvedAddress returns where connections to the host go now: its address, unless that is
// a name whose address is found again and again (LOGICAL_DNS).
func (h *Host) ResolvedAddress() string {
	entry := h.Config()
	if entry.Target != "" {
		return entry.Target
	}
	return h.address
}

// DNSDiscovery is a Discovery that finds hosts by their names and tells how it fares.
type DNSDiscovery interface {
	Discovery
	// Names describes the names of c, each once, in the order of its hosts; none if
	// c is not watched. Safe for concurrent use.
	Names(c *config.Cluster) []NameStatus
}

// NameStatus is what is known of a name, for people and tools.
type NameStatus struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"` // of the last answer that had any
	// Age is how long ago that was, in seconds; with Addresses only.
	Age      float64 `json:"age_seconds,omitempty"`
	Lookups  uint64  `json:"lookups_total"`
	Failures uint64  `json:"lookup_failures_total"` // lookups that brought no address
	Error    string  `json:"error,omitempty"`       // of the last lookup; "" if it brought addresses
}

// names describes the names of a cluster's hosts, if they are names.
func (c *Cluster) names(cfg *config.Cluster) []NameStatus {
	if d, ok := c.env.Discoveries[cfg.Type].(DNSDiscovery); ok {
		return d.Names(cfg)
	}
	return nil
}

// Socket returns how sockets to the host are set; of a cluster that has left the
// configuration, what it said last.
func (h *Host) Socket() config.Socket {
	if s := h.cluster.state.Load(); s != nil {
		return s.config.Socket
	}
	return config.Socket{}
}
