package config

// Delta is the difference between the active configuration and the next one. It is immutable.
type Delta struct {
	// Full means that anything may differ; Clusters and Routes are then not set. If Full is false,
	// the configurations differ only in Clusters and Routes.
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
