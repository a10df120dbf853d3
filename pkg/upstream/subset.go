package upstream

import (
	"slices"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Labels are the labels that the exchanges of a route have for a cluster with subsets, prepared for
// lookup. Immutable; nil and the zero value are no labels.
type Labels struct {
	list    []label
	hashSum uint64 // of the hashes of list, in any order
}

type label struct{ name, value string }

// NewLabels returns the labels for a map of names to values, nil for none.
func NewLabels(values map[string]string) *Labels {
	if len(values) == 0 {
		return nil
	}
	l := new(Labels)
	for name, value := range values {
		l.add(name, value)
	}
	return l
}

func (l *Labels) add(name, value string) {
	l.list = append(l.list, label{name, value})
	l.hashSum += hash.Pair(name, value)
}

// requestLabels holds the labels of one exchange: those of its route, and those that filters gave
// it, which take precedence.
type requestLabels struct {
	route    *Labels            // nil: none
	metadata *protocol.Metadata // nil: none
}

// countAndHash returns the number of labels and the sum of their hashes.
func (b requestLabels) countAndHash() (n int, sum uint64) {
	if b.route != nil {
		n, sum = len(b.route.list), b.route.hashSum
	}
	if b.metadata == nil || b.metadata.Len() == 0 {
		return n, sum
	}
	var storage [8]string
	seen := storage[:0]
	for name, value := range b.metadata.All(protocol.BalancerNamespace) {
		if slices.Contains(seen, name) {
			continue // only the first of duplicates counts
		}
		if len(seen) < cap(seen) {
			seen = append(seen, name)
		}
		if b.route != nil {
			if i := b.route.find(name); i >= 0 {
				n--
				sum -= hash.Pair(name, b.route.list[i].value)
			}
		}
		n++
		sum += hash.Pair(name, value)
	}
	return n, sum
}

// has reports whether l is one of the labels.
func (b requestLabels) has(l label) bool {
	if b.metadata != nil {
		if value, ok := b.metadata.Lookup(protocol.BalancerNamespace, l.name); ok {
			return value == l.value
		}
	}
	if b.route == nil {
		return false
	}
	i := b.route.find(l.name)
	return i >= 0 && b.route.list[i].value == l.value
}

// find returns the index of a label, or -1.
func (l *Labels) find(name string) int {
	return slices.IndexFunc(l.list, func(have label) bool { return have.name == name })
}

// subsets maps the labels of exchanges to host sets.
type subsets struct {
	byHashSum map[uint64]*subset
	count     int
	fallback  *hostSet
}

// subset is the hostSet of the hosts that have certain labels.
type subset struct {
	labels Labels
	set    *hostSet
	next   *subset // with the same sum

	indexes []int32 // indexes of its hosts, until group is set
}

// newSubsets divides the hosts as the selectors say, with one pass over the hosts for each
// selector.
func newSubsets(d *hostSetBuilder, c *config.Subsets) *subsets {
	s := &subsets{byHashSum: make(map[uint64]*subset)}
	var all []*subset
	var scratch Labels
	for _, names := range distinctSelectors(c.Selectors) {
		for i, h := range d.hosts {
			if !selectLabels(&scratch, h.Config().Metadata, names) {
				continue
			}
			to := s.find(requestLabels{route: &scratch}, len(scratch.list), scratch.hashSum)
			if to == nil {
				to = &subset{labels: Labels{slices.Clone(scratch.list), scratch.hashSum}, next: s.byHashSum[scratch.hashSum]}
				s.byHashSum[scratch.hashSum] = to
				all = append(all, to)
			}
			to.indexes = append(to.indexes, int32(i)) //nolint:gosec // as in everyone
		}
	}
	for _, to := range all {
		to.set = d.addSet(to.indexes)
		to.set.rules = newHostSetRules(d.config.HostRules, &to.labels)
		to.indexes = nil
	}
	s.count = len(all)
	s.fallback = d.fallback(c)
	return s
}

// distinctSelectors returns each distinct non-empty set of names once, sorted.
func distinctSelectors(list [][]string) [][]string {
	var out [][]string
	for _, names := range list {
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		if len(names) > 0 && !slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, names) }) {
			out = append(out, names)
		}
	}
	return out
}

// selectLabels sets out to the labels with those names, and reports whether metadata has all of them.
func selectLabels(out *Labels, metadata map[string]string, names []string) bool {
	out.list, out.hashSum = out.list[:0], 0
	for _, name := range names {
		value, ok := metadata[name]
		if !ok {
			return false
		}
		out.add(name, value)
	}
	return true
}

// fallback returns the hostSet of exchanges that match no subset.
func (d *hostSetBuilder) fallback(c *config.Subsets) *hostSet {
	switch c.Fallback {
	case config.AnyEndpoint:
		return d.addSet(allIndexes(d.hosts))
	case config.DefaultSubset:
		var places []int32
		for i, h := range d.hosts {
			if hasLabels(h.Config().Metadata, c.Default) {
				places = append(places, int32(i)) //nolint:gosec // as in everyone
			}
		}
		return d.addSet(places)
	default:
		return d.addSet(nil)
	}
}

// hasLabels reports whether metadata has all those labels.
func hasLabels(metadata, labels map[string]string) bool {
	for name, value := range labels {
		if v, ok := metadata[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// find returns the subset of n labels with that sum of hashes.
func (s *subsets) find(b requestLabels, n int, sum uint64) *subset {
	for to := s.byHashSum[sum]; to != nil; to = to.next {
		if len(to.labels.list) == n && !slices.ContainsFunc(to.labels.list, func(l label) bool { return !b.has(l) }) {
			return to
		}
	}
	return nil
}

// hostsFor returns the hosts that an exchange with these labels may use.
func (s *state) hostsFor(b requestLabels) *hostSet {
	if s.subsets == nil {
		return s.defaultSet
	}
	if n, sum := b.countAndHash(); n > 0 {
		if to := s.subsets.find(b, n, sum); to != nil {
			return to.set
		}
	}
	return s.defaultSet
}
