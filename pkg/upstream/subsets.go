package upstream

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// subsets maps the labels of exchanges to host sets. Immutable.
type subsets struct {
	index    *subset.Index
	sets     []*hostSet // in the order of the subsets of index
	fallback *hostSet   // for exchanges that match no subset
}

// newSubsets divides the hosts according to the selectors.
func newSubsets(b *hostSetBuilder, cfg *config.Subsets) *subsets {
	index, divided := subset.Divide(cfg.Selectors, len(b.hosts), func(i int) map[string]string { return b.hosts[i].Config().Metadata })
	s := &subsets{index: index, sets: make([]*hostSet, len(divided))}
	for i := range divided {
		s.sets[i] = b.addSet(divided[i].Hosts)
		s.sets[i].rules = newHostSetRules(b.config.HostRules, divided[i].Labels.Map())
	}
	s.fallback = b.fallback(cfg)
	return s
}

// fallback returns the hostSet of exchanges that match no subset.
func (b *hostSetBuilder) fallback(cfg *config.Subsets) *hostSet {
	switch cfg.Fallback {
	case config.AnyEndpoint:
		return b.addSet(allIndexes(b.hosts))
	case config.DefaultSubset:
		var indexes []int32
		for i, h := range b.hosts {
			if subset.HasLabels(h.Config().Metadata, cfg.Default) {
				indexes = append(indexes, int32(i)) //nolint:gosec // as in allIndexes
			}
		}
		return b.addSet(indexes)
	default:
		return b.addSet(nil)
	}
}

// hostsFor returns the hosts that an exchange with these labels may use.
func (s *state) hostsFor(req subset.Request) *hostSet {
	if s.subsets != nil {
		if i := s.subsets.index.Find(req); i >= 0 {
			return s.subsets.sets[i]
		}
	}
	return s.defaultSet
}
