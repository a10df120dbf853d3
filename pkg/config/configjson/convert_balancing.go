package configjson

import (
	"math/big"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// readBalancing converts the load balancing of a cluster. Its hosts have been converted.
func (r *reader) readBalancing(j *clusterJSON, c *config.Cluster) {
	c.ChoiceCount, c.ActiveRequestBias = j.LB.ChoiceCount, j.LB.ActiveRequestBias
	c.MinRingSize, c.MaxRingSize, c.MaglevTableSize = j.LB.MinRingSize, j.LB.MaxRingSize, j.LB.TableSize
	c.Subsets = config.Subsets{
		Selectors: j.Subset.Selectors,
		Fallback:  config.SubsetFallback(j.Subset.FallBackPolicy),
		Default:   j.Subset.DefaultSubset,
	}
	c.SlowStart = config.SlowStart{
		Duration: j.SlowStart.Duration, Aggression: j.SlowStart.Aggression, MinWeightPercent: j.SlowStart.MinPercent,
	}
	c.Failover = config.Failover{
		Overprovisioning: j.Common.Overprovisioning / 100,
		PanicThreshold:   j.Common.PanicThreshold,
	}
	if c.Failover.PanicThreshold == 0 {
		c.Failover.PanicThreshold = -1 // never, in the model
	}
	r.checkHashTables(j.Node.Get("lbconfig"), c)
	r.checkSubsets(j.Node.Get("lb_subset_config"), c)
	r.checkSlowStart(j.Node.Get("slow_start"), c)
	r.readLocalities(j, c)
}

// checkHashTables checks the sizes of the ring hash and maglev tables.
func (r *reader) checkHashTables(n document.Node, c *config.Cluster) {
	if c.MinRingSize > c.MaxRingSize {
		r.report.Errorf(n.Get("minimum_ring_size"), "minimum_ring_size (%d) is greater than maximum_ring_size (%d)", c.MinRingSize, c.MaxRingSize)
	}
	if c.MaglevTableSize > 0 && !big.NewInt(int64(c.MaglevTableSize)).ProbablyPrime(0) { // exact below 2^64
		r.report.Errorf(n.Get("table_size"), "found %d, expected a prime number", c.MaglevTableSize)
	}
	for _, k := range []struct {
		key   string
		needs config.LBPolicy
	}{
		{"minimum_ring_size", config.RingHash}, {"maximum_ring_size", config.RingHash}, {"table_size", config.Maglev},
	} {
		if at := n.Get(k.key); at.Exists() && c.LBPolicy != k.needs {
			r.report.Warnf(at, "%s has no effect with lb_type %s", k.key, c.LBPolicy)
		}
	}
}

// checkSubsets warns of subset settings without effect.
func (r *reader) checkSubsets(n document.Node, c *config.Cluster) {
	s := &c.Subsets
	switch {
	case len(s.Selectors) == 0 && (len(s.Default) > 0 || s.Fallback != config.NoFallback):
		r.report.Warnf(n, "lb_subset_config has no effect without subset_selectors: all hosts are used")
	case len(s.Default) > 0 && s.Fallback != config.DefaultSubset:
		r.report.Warnf(n.Get("default_subset"), "default_subset has no effect with the fall_back_policy %d", s.Fallback)
	}
	i := 0
	for at := range n.Get("subset_selectors").All() {
		if i < len(s.Selectors) && len(s.Selectors[i]) == 0 {
			r.report.Errorf(at, "the selector is empty: expected at least one label name")
		}
		i++
	}
}

func (r *reader) checkSlowStart(n document.Node, c *config.Cluster) {
	switch {
	case n.Get("mode").Exists() && c.SlowStart.Duration == 0:
		r.report.Warnf(n, "slow_start has no effect without slow_start_duration")
	case c.SlowStart.Duration > 0 && (c.LBPolicy.UsesHash() || c.LBPolicy == config.RequestRoundRobin):
		r.report.Warnf(n, "slow_start has no effect with lb_type %s", c.LBPolicy)
	}
}

// readLocalities converts the weights of localities and checks them against the hosts.
func (r *reader) readLocalities(j *clusterJSON, c *config.Cluster) {
	type place struct {
		locality config.Locality
		priority uint32
	}
	known := make(map[place]bool, len(j.Localities))
	for i := range j.Localities {
		l := &j.Localities[i]
		at := place{config.Locality(l.Locality), l.Priority}
		if known[at] {
			r.report.Errorf(l.Node, "duplicate locality: it already has a weight with this priority")
			continue
		}
		known[at] = true
		c.LocalityWeights = append(c.LocalityWeights, config.LocalityWeight{Locality: at.locality, Priority: at.priority, Weight: l.Weight})
	}
	for i := range c.Hosts {
		h := &c.Hosts[i]
		switch {
		case len(known) == 0 && h.Locality != config.Locality{}:
			r.report.Warnf(j.Node.Get("hosts"), "the locality of hosts has no effect without locality_weights")
			return
		case len(known) > 0 && !known[place{h.Locality, h.Priority}]:
			r.report.Warnf(j.Node.Get("hosts"), "host %q gets no requests: locality_weights has no entry for its locality with priority %d", h.Address, h.Priority)
		}
	}
}

// labels returns the labels of a metadata_match, and warns if the cluster has no subsets.
func (r *reader) labels(n document.Node, m *metadataMatchJSON, cluster string) map[string]string {
	labels := m.FilterMetadata.Labels
	if c := r.clusters[cluster]; len(labels) > 0 && c != nil && len(c.Subsets.Selectors) == 0 {
		r.report.Warnf(n.Get("metadata_match"), "metadata_match has no effect: cluster %q has no subset_selectors", cluster)
	}
	return labels
}

// warnUnusedHashPolicy warns of a hash_policy if none of the route's known clusters hashes.
func (r *reader) warnUnusedHashPolicy(n document.Node, f *config.Forward) {
	if len(f.HashPolicies) == 0 || f.ClusterVariable != "" {
		return
	}
	names := []string{f.Cluster}
	if len(f.WeightedClusters) > 0 {
		names = names[:0]
	}
	for i := range f.WeightedClusters {
		names = append(names, f.WeightedClusters[i].Cluster)
	}
	for _, name := range names {
		if c := r.clusters[name]; c == nil || c.LBPolicy.UsesHash() { // nil: reported
			return
		}
	}
	r.report.Warnf(n.Get("hash_policy"), "hash_policy has no effect: lb_type of cluster %q is %s", names[0], r.clusters[names[0]].LBPolicy)
}
