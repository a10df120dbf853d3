package xds

// StaticClusters returns the names of the clusters in static_resources, in the order of the file. It
// waits while a configuration is being applied.
func (s *Source) StaticClusters() []string {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	names := make([]string, len(s.staticResources.clusters))
	for i, g := range s.staticResources.clusters {
		names[i] = g.name
	}
	return names
}
