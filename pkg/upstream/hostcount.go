package upstream

// HostCount returns the number of hosts of the cluster, whatever their health. It is 0 if the
// cluster is not configured or has no hosts yet.
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

// EligibleHosts returns the number of hosts from which an exchange can choose: HostCount, but 1 for
// a cluster of type ORIGINAL_DST, where each exchange has one destination.
func (c *Cluster) EligibleHosts() int {
	if s := c.state.Load(); s != nil && s.originalDst != nil {
		return 1
	}
	return c.HostCount()
}
