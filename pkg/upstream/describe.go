package upstream

import (
	"cmp"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// ClusterStatus is a snapshot of a cluster for people and tools.
type ClusterStatus struct {
	Name         string             `json:"name"`
	Type         config.ClusterType `json:"type"`
	Policy       config.LBPolicy    `json:"policy"`
	InFlight     int64              `json:"in_flight"`                  // exchanges
	Pending      int64              `json:"pending"`                    // exchanges that wait for a connection or for on-demand hosts
	Retries      int64              `json:"retries"`                    // retries in flight
	Open         int64              `json:"connections"`                // connections that are open or being opened
	Overflows    uint64             `json:"overflows_total"`            // exchanges and retries that a limit rejected
	Breakers     []BreakerStatus    `json:"circuit_breakers,omitempty"` // the limits that are set
	Resent       uint64             `json:"resent_total"`               // requests that were sent again because the connection was stale
	Dropped      map[string]uint64  `json:"dropped_total,omitempty"`    // exchanges by category of drop_overload
	Panic        bool               `json:"panic,omitempty"`            // so few hosts of a priority are up that their health is ignored
	Subsets      int                `json:"subsets,omitempty"`
	Names        []NameStatus       `json:"names,omitempty"`        // names that resolve to the hosts
	Unsubscribed bool               `json:"unsubscribed,omitempty"` // the hosts are on demand and not subscribed
	Hosts        []HostStatus       `json:"hosts"`
}

// HostStatus is a snapshot of a host. Counters begin at 0 when the address enters the cluster, and
// again when the TLS or PROXY header configuration of the host's connections changes.
type HostStatus struct {
	Address     string            `json:"address"`
	Target      string            `json:"target,omitempty"` // resolved address that connections use, if not Address
	Hostname    string            `json:"hostname,omitempty"`
	Weight      uint32            `json:"weight"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Priority    uint32            `json:"priority,omitempty"`
	Locality    string            `json:"locality,omitempty"` // "region/zone/sub_zone"
	Health      string            `json:"health"`             // "up" or "down"
	DownReasons hosthealth.Flags  `json:"why,omitempty"`      // why it is down
	InFlight    int64             `json:"in_flight"`
	Open        int64             `json:"connections"`
	Idle        int               `json:"idle_connections"`
	// RoundTrip is the longest round-trip time of the last PINGs of HTTP/2 connections, in ms.
	RoundTrip float64 `json:"round_trip_ms,omitempty"`

	Attempts        uint64 `json:"attempts_total"`
	Failures        uint64 `json:"failures_total"`            // attempts without a response
	Canceled        uint64 `json:"cancelled_total,omitempty"` // attempts whose response was not needed: the client disconnected, or another host responded first
	Connects        uint64 `json:"connects_total"`
	ConnectFailures uint64 `json:"connect_failures_total"`

	Checks        uint64 `json:"health_checks_total,omitempty"` // active checks; 0 after each change of their configuration
	CheckFailures uint64 `json:"health_check_failures_total,omitempty"`
	CheckError    string `json:"health_check_error,omitempty"` // why the last check failed
	Ejections     uint64 `json:"ejections_total,omitempty"`    // by outlier detection
}

// The values of HostStatus.Health.
const (
	HealthUp   = "up"
	HealthDown = "down"
)

// Describe returns the configured clusters, sorted by name. The numbers change while they are read
// and may not add up.
func (s *Set) Describe() []ClusterStatus {
	clusters := s.configuredClusters()
	slices.SortFunc(clusters, func(a, b *Cluster) int { return cmp.Compare(a.name, b.name) })
	statuses := make([]ClusterStatus, len(clusters))
	for i, c := range clusters {
		statuses[i] = c.describe()
	}
	return statuses
}

// DescribeOne returns the status of one configured cluster, or false if there is none of this name.
func (s *Set) DescribeOne(name string) (ClusterStatus, bool) {
	s.mu.RLock()
	c := s.configured[name]
	s.mu.RUnlock()
	if c == nil {
		return ClusterStatus{}, false
	}
	return c.describe(), true
}

// configuredClusters returns the configured clusters, in any order.
func (s *Set) configuredClusters() []*Cluster {
	s.mu.RLock()
	defer s.mu.RUnlock()
	clusters := make([]*Cluster, 0, len(s.configured))
	for _, c := range s.configured {
		clusters = append(clusters, c)
	}
	return clusters
}

func (c *Cluster) describe() ClusterStatus {
	s := c.state.Load()
	hosts := s.currentHosts()
	status := ClusterStatus{
		Name:         c.name,
		Type:         s.config.Type,
		Policy:       s.config.LBPolicy,
		InFlight:     c.InFlight(),
		Overflows:    c.destOverflows.Load(),
		Breakers:     c.describeBreakers(),
		Resent:       c.resent.Load(),
		Dropped:      c.DropOverloadCounts(),
		Panic:        s.defaultSet.inPanic(),
		Names:        c.nameStatuses(s.config),
		Unsubscribed: s.config.OnDemand.Unsubscribed,
		Hosts:        make([]HostStatus, len(hosts)),
	}
	for p := range c.breakers {
		breakerCounts := c.breakers[p].Counts()
		status.Overflows += breakerCounts.Overflows
		status.Pending += breakerCounts.Pending
		status.Retries += breakerCounts.Retries
		status.Open += breakerCounts.Connections
	}
	if s.subsets != nil {
		status.Subsets = len(s.subsets.sets)
	}
	for i, h := range hosts {
		status.Hosts[i] = h.describe()
	}
	return status
}

func (h *Host) describe() HostStatus {
	entry := h.Config()
	status := HostStatus{
		Address:         h.address,
		Target:          entry.ResolvedAddress,
		Hostname:        entry.Hostname,
		Weight:          entry.Weight,
		Metadata:        entry.Metadata,
		Priority:        entry.Priority,
		Locality:        localityName(entry.Locality),
		Health:          HealthUp,
		InFlight:        h.load.InFlight(),
		Attempts:        h.attempts.Load(),
		Failures:        h.failures.Load(),
		Canceled:        h.canceled.Load(),
		Connects:        h.connects.Load(),
		ConnectFailures: h.connectFailures.Load(),
	}
	if status.DownReasons = h.health.Flags(); status.DownReasons != 0 {
		status.Health = HealthDown
	}
	h.describeChecks(&status)
	for n := h.pools.Load(); n != nil; n = n.next {
		stats := n.pool.Stats()
		status.Open += stats.Open
		status.Idle += stats.Idle
		status.RoundTrip = max(status.RoundTrip, stats.MaxRTT.Seconds()*1000)
	}
	return status
}

// describeChecks sets the fields of active checks and outlier detection.
func (h *Host) describeChecks(status *HostStatus) {
	h.mu.Lock()
	check := h.activeCheck
	h.mu.Unlock()
	if check != nil {
		stats := check.check.Stats()
		status.Checks, status.CheckFailures = stats.Checks, stats.Failures
		if stats.Err != nil {
			status.CheckError = stats.Err.Error()
		}
	}
	if s := h.outlierStats.Load(); s != nil {
		status.Ejections = s.Ejections()
	}
}

// localityName returns the name of a locality, or "" if it is empty.
func localityName(l config.Locality) string {
	if l == (config.Locality{}) {
		return ""
	}
	return l.Region + "/" + l.Zone + "/" + l.SubZone
}
