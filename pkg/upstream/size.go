package upstream

// Size returns how many hosts the cluster has, whatever their health; 0 if it is not
// configured, or none is known yet.
func (c *Cluster) Size() int {
	s := c.state.Load()
	if s == nil || s.removed {
		return 0
	}
	return len(s.members())
}
