package upstream

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// subsets maps the labels of exchanges to host sets. Immutable.
type subsets struct {
	index    *subset.Index
	sets     []*hostSet // by the numbers of index
	fallback *hostSet   // for exchanges that match no subset
}

// newSubsets divides the hosts as the selectors say.
func newSubsets(d *hostSetBuilder, c *config.Subsets) *subsets {
	index, all := subset.Divide(c.Selectors, len(d.hosts), func(i int) map[string]string { return d.hosts[i].Config().Metadata })
	s := &subsets{index: index, sets: make([]*hostSet, len(all))}
	for i := range all {
		s.sets[i] = d.addSet(all[i].Hosts)
		s.sets[i].rules = newHostSetRules(d.config.HostRules, all[i].Labels.Map())
	}
	s.fallback = d.fallback(c)
	return s
}

// fallback returns the hostSet of exchanges that match no subset.
func (d *hostSetBuilder) fallback(c *config.Subsets) *hostSet {
	switch c.Fallback {
	case config.AnyEndpoint:
		return d.addSet(allIndexes(d.hosts))
	case config.DefaultSubset:
		var places []int32
		for i, h := range d.hosts {
			if subset.HasLabels(h.Config().Metadata, c.Default) {
				places = append(places, int32(i)) //nolint:gosec // as in allIndexes
			}
		}
		return d.addSet(places)
	default:
		return d.addSet(nil)
	}
}

// hostsFor returns the hosts that an exchange with these labels may use.
func (s *state) hostsFor(labels subset.Request) *hostSet {
	if s.subsets != nil {
		if i := s.subsets.index.Find(labels); i >= 0 {
			return s.subsets.sets[i]
		}
	}
	return s.defaultSet
}
