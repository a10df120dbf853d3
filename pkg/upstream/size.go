package upstream

// HostCount returns how many hosts the cluster has, whatever their health; 0 if it is not
// configured, or none is known yet.
func (c *Cluster) HostCount() int {
	s := c.state.Load()
	if s == nil || s.removed {
		return 0
	}
	return len(s.members())
}

// UsableHosts returns how many of them are not down.
func (c *Cluster) UsableHosts() (usable int) {
	s := c.state.Load()
	if s == nil || s.removed {
		return 0
	}
	for _, h := range s.members() {
		if h.health.up() {
			usable++
		}
	}
	return usable
}

// EligibleHosts returns among how many hosts one exchange may choose: Size, but of a cluster of
// type ORIGINAL_DST one, because each has its own destination.
func (c *Cluster) EligibleHosts() int {
	if s := c.state.Load(); s != nil && s.destinations != nil {
		return 1
	}
	return c.HostCount()
}
