package upstream

import "github.com/weft-proxy/weft/pkg/config"

// ResolvedAddress returns the address that connections to the host use now: its address, or the
// currently resolved address of a host of a LOGICAL_DNS cluster.
func (h *Host) ResolvedAddress() string {
	entry := h.Config()
	if entry.ResolvedAddress != "" {
		return entry.ResolvedAddress
	}
	return h.address
}

// DNSDiscovery is a Discovery that resolves host names and reports the status of each name.
type DNSDiscovery interface {
	Discovery
	// Names returns the status of the names of c, each once, in the order of its hosts. It returns
	// none if c is not watched. Safe for concurrent use.
	Names(c *config.Cluster) []NameStatus
}

// NameStatus is the resolution status of a name, for people and tools.
type NameStatus struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"` // result of the last lookup that found addresses
	// Age is the time since that lookup in seconds; 0 without Addresses.
	Age      float64 `json:"age_seconds,omitempty"`
	Lookups  uint64  `json:"lookups_total"`
	Failures uint64  `json:"lookup_failures_total"` // lookups that found no address
	Error    string  `json:"error,omitempty"`       // of the last lookup; "" if it found addresses
}

// nameStatuses returns the status of the host names of a cluster, if its discovery resolves names.
func (c *Cluster) nameStatuses(cfg *config.Cluster) []NameStatus {
	if d, ok := c.env.Discoveries[cfg.Type].(DNSDiscovery); ok {
		return d.Names(cfg)
	}
	return nil
}

// HTTP returns the options of HTTP connections to the host. For a removed cluster it returns the last
// configured value.
func (h *Host) HTTP() config.UpstreamHTTP {
	if s := h.cluster.state.Load(); s != nil {
		return s.config.HTTP
	}
	return config.UpstreamHTTP{}
}

// Socket returns the socket options of connections to the host. For a removed cluster it returns
// the last configured value.
func (h *Host) Socket() config.Socket {
	if s := h.cluster.state.Load(); s != nil {
		return s.config.Socket
	}
	return config.Socket{}
}
