// Package subset divides the hosts of a cluster by their labels, and finds the subset of an
// exchange by the labels of its route and its filters. All functions are pure.
package subset

import (
	"slices"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Labels holds the labels by which the exchanges of a route select a subset, prepared for lookup.
// Immutable; nil and the zero value hold no labels.
type Labels struct {
	list    []label
	hashSum uint64 // sum of the hashes of list; it does not depend on the order
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

// Map returns the labels as a map of names to values, or nil if l is nil.
func (l *Labels) Map() map[string]string {
	if l == nil {
		return nil
	}
	values := make(map[string]string, len(l.list))
	for _, lbl := range l.list {
		values[lbl.name] = lbl.value
	}
	return values
}

func (l *Labels) add(name, value string) {
	l.list = append(l.list, label{name, value})
	l.hashSum += hash.Pair(name, value)
}

// find returns the index of a label, or -1.
func (l *Labels) find(name string) int {
	return slices.IndexFunc(l.list, func(lbl label) bool { return lbl.name == name })
}

// Request holds the labels of one exchange: those of its route, and those that filters set, which
// take precedence.
type Request struct {
	Route    *Labels            // nil: none
	Metadata *protocol.Metadata // nil: none; its labels are in protocol.BalancerNamespace
}

// countAndHash returns the number of labels and the sum of their hashes.
func (r Request) countAndHash() (n int, sum uint64) {
	if r.Route != nil {
		n, sum = len(r.Route.list), r.Route.hashSum
	}
	if r.Metadata == nil || r.Metadata.Len() == 0 {
		return n, sum
	}
	var storage [8]string // more labels allocate
	seen := storage[:0]
	for name, value := range r.Metadata.All(protocol.BalancerNamespace) {
		if slices.Contains(seen, name) {
			continue // the first of several values counts
		}
		seen = append(seen, name)
		if r.Route != nil {
			if i := r.Route.find(name); i >= 0 {
				n--
				sum -= hash.Pair(name, r.Route.list[i].value)
			}
		}
		n++
		sum += hash.Pair(name, value)
	}
	return n, sum
}

// has reports whether l is one of the labels.
func (r Request) has(l label) bool {
	if r.Metadata != nil {
		if value, ok := r.Metadata.Lookup(protocol.BalancerNamespace, l.name); ok {
			return value == l.value
		}
	}
	if r.Route == nil {
		return false
	}
	i := r.Route.find(l.name)
	return i >= 0 && r.Route.list[i].value == l.value
}

// Index finds subsets by labels. Immutable. The time of a search does not depend on the number of
// subsets.
type Index struct {
	byHashSum map[uint64]*entry
}

// entry is a subset in an Index.
type entry struct {
	labels Labels
	number int    // index of the subset in the result of Divide
	next   *entry // next entry with the same hashSum
}

// Subset is the set of hosts that have certain labels.
type Subset struct {
	Labels *Labels
	Hosts  []int32 // indexes of the hosts, in ascending order
}

// Divide divides hosts according to the selectors, with one pass over the hosts for each selector.
// metadata returns the labels of the host at index i; hosts is the number of hosts. The numbers
// that the Index returns are indexes of subsets.
func Divide(selectors [][]string, hosts int, metadata func(i int) map[string]string) (idx *Index, subsets []Subset) {
	idx = &Index{byHashSum: make(map[uint64]*entry)}
	var scratch Labels
	for _, names := range distinctSelectors(selectors) {
		for i := range hosts {
			if !selectLabels(&scratch, metadata(i), names) {
				continue
			}
			n := idx.find(Request{Route: &scratch}, len(scratch.list), scratch.hashSum)
			if n < 0 {
				n = len(subsets)
				e := &entry{labels: Labels{slices.Clone(scratch.list), scratch.hashSum}, number: n, next: idx.byHashSum[scratch.hashSum]}
				idx.byHashSum[scratch.hashSum] = e
				subsets = append(subsets, Subset{Labels: &e.labels})
			}
			subsets[n].Hosts = append(subsets[n].Hosts, int32(i)) //nolint:gosec // a cluster has far fewer than 2^31 hosts
		}
	}
	return idx, subsets
}

// distinctSelectors returns each distinct non-empty set of names once, sorted.
func distinctSelectors(selectors [][]string) [][]string {
	var distinct [][]string
	for _, names := range selectors {
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		if len(names) > 0 && !slices.ContainsFunc(distinct, func(other []string) bool { return slices.Equal(other, names) }) {
			distinct = append(distinct, names)
		}
	}
	return distinct
}

// selectLabels sets dst to the labels with these names, and reports whether metadata has all of
// them.
func selectLabels(dst *Labels, metadata map[string]string, names []string) bool {
	dst.list, dst.hashSum = dst.list[:0], 0
	for _, name := range names {
		value, ok := metadata[name]
		if !ok {
			return false
		}
		dst.add(name, value)
	}
	return true
}

// HasLabels reports whether metadata has all of the labels.
func HasLabels(metadata, labels map[string]string) bool {
	for name, value := range labels {
		if v, ok := metadata[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// Find returns the number of the subset whose labels are exactly those of an exchange, or -1.
func (idx *Index) Find(r Request) int {
	n, sum := r.countAndHash()
	if n <= 0 {
		return -1
	}
	return idx.find(r, n, sum)
}

// find returns the number of the subset of n labels with that sum of hashes, or -1.
func (idx *Index) find(r Request, n int, sum uint64) int {
	for e := idx.byHashSum[sum]; e != nil; e = e.next {
		if len(e.labels.list) == n && !slices.ContainsFunc(e.labels.list, func(l label) bool { return !r.has(l) }) {
			return e.number
		}
	}
	return -1
}
