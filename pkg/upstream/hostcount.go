package upstream

// HostCount returns how many hosts the cluster has, whatever their health; 0 if it is not
// configured, or no host is known yet.
func (c *Cluster) HostCount() int {
	s := c.state.Load()
	if s == nil || s.removed {
		return 0
	}
	return len(s.currentHosts())
}

// UsableHosts returns how many hosts of the cluster are up.
func (c *Cluster) UsableHosts() (usable int) {
	s := c.state.Load()
	if s == nil || s.removed {
		return 0
	}
	for _, h := range s.currentHosts() {
		if h.health.Up() {
			usable++
		}
	}
	return usable
}

// EligibleHosts returns the number of hosts among which one exchange can be balanced: HostCount,
// but 1 for a cluster of type ORIGINAL_DST, where each exchange has one destination.
func (c *Cluster) EligibleHosts() int {
	if s := c.state.Load(); s != nil && s.originalDst != nil {
		return 1
	}
	return c.HostCount()
}
