// Package subset divides the hosts of a cluster by their labels, and finds the subset of an
// exchange by the labels of its route and its filters. All of it is pure.
package subset

import (
	"slices"

	"github.com/weft-proxy/weft/internal/hash"
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

// Map returns the labels as a map of names to values; nil for nil.
func (l *Labels) Map() map[string]string {
	if l == nil {
		return nil
	}
	values := make(map[string]string, len(l.list))
	for _, one := range l.list {
		values[one.name] = one.value
	}
	return values
}

func (l *Labels) add(name, value string) {
	l.list = append(l.list, label{name, value})
	l.hashSum += hash.Pair(name, value)
}

// find returns the index of a label, or -1.
func (l *Labels) find(name string) int {
	return slices.IndexFunc(l.list, func(have label) bool { return have.name == name })
}

// Request holds the labels of one exchange: those of its route, and those that filters gave it,
// which take precedence.
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
	var storage [8]string
	seen := storage[:0]
	for name, value := range r.Metadata.All(protocol.BalancerNamespace) {
		if slices.Contains(seen, name) {
			continue // only the first of duplicates counts
		}
		if len(seen) < cap(seen) {
			seen = append(seen, name)
		}
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

// Index finds subsets by labels. Immutable; the time of a search does not depend on their number.
type Index struct {
	byHashSum map[uint64]*entry
}

// entry is a subset in an Index.
type entry struct {
	labels Labels
	number int
	next   *entry // with the same sum
}

// Subset is the set of hosts that have certain labels.
type Subset struct {
	Labels *Labels
	Hosts  []int32 // indexes of the hosts, in ascending order
}

// Divide divides hosts as the selectors say, with one pass over the hosts for each selector.
// metadata returns the labels of the host at an index below hosts. The numbers of the Index are
// indexes of list.
func Divide(selectors [][]string, hosts int, metadata func(i int) map[string]string) (x *Index, list []Subset) {
	x = &Index{byHashSum: make(map[uint64]*entry)}
	var scratch Labels
	for _, names := range distinctSelectors(selectors) {
		for i := range hosts {
			if !selectLabels(&scratch, metadata(i), names) {
				continue
			}
			n := x.find(Request{Route: &scratch}, len(scratch.list), scratch.hashSum)
			if n < 0 {
				n = len(list)
				e := &entry{labels: Labels{slices.Clone(scratch.list), scratch.hashSum}, number: n, next: x.byHashSum[scratch.hashSum]}
				x.byHashSum[scratch.hashSum] = e
				list = append(list, Subset{Labels: &e.labels})
			}
			list[n].Hosts = append(list[n].Hosts, int32(i)) //nolint:gosec // a cluster has far fewer than 2^31 hosts
		}
	}
	return x, list
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

// selectLabels sets out to the labels with those names, and reports whether metadata has all of
// them.
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

// HasLabels reports whether metadata has all those labels.
func HasLabels(metadata, labels map[string]string) bool {
	for name, value := range labels {
		if v, ok := metadata[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// Find returns the number of the subset whose labels are exactly those of an exchange, or -1.
func (x *Index) Find(r Request) int {
	n, sum := r.countAndHash()
	if n <= 0 {
		return -1
	}
	return x.find(r, n, sum)
}

// find returns the number of the subset of n labels with that sum of hashes, or -1.
func (x *Index) find(r Request, n int, sum uint64) int {
	for e := x.byHashSum[sum]; e != nil; e = e.next {
		if len(e.labels.list) == n && !slices.ContainsFunc(e.labels.list, func(l label) bool { return !r.has(l) }) {
			return e.number
		}
	}
	return -1
}
