package config

// Delta is the difference between the active configuration and the next one. Immutable.
type Delta struct {
	// Full: anything may differ, and Clusters and Routes are not set. Otherwise only they differ.
	Full bool
	// Clusters and Routes are the new and changed clusters and the changed route tables.
	Clusters []*Cluster
	Routes   []*RouteTable
	// Next returns the complete next configuration.
	Next func() *Snapshot
}

// FullDelta returns the difference between an unknown configuration and next.
func FullDelta(next *Snapshot) Delta {
	return Delta{Full: true, Next: func() *Snapshot { return next }}
}
