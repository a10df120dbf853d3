// Package align finds the elements that two versions of a list have in common.
package align

// Indexes returns, for each element of current, the index of an equal element of previous, or -1 if
// there is none. The common prefix and suffix cost one comparison for each element; only the
// elements between prefix and suffix need a map. Indexes looks them up only among the elements of
// previous between prefix and suffix, so the result for a duplicate may be -1. If several of these
// elements of previous are equal, Indexes returns the index of the first, so an index may occur
// more than once.
func Indexes[E comparable](previous, current []E) []int32 {
	indexes := make([]int32, len(current))
	shorter := min(len(previous), len(current))
	head := 0
	for head < shorter && previous[head] == current[head] {
		indexes[head] = int32(head) //nolint:gosec // lists are much shorter than 2^31
		head++
	}
	tail := 0
	for tail < shorter-head && previous[len(previous)-1-tail] == current[len(current)-1-tail] {
		tail++
		indexes[len(current)-tail] = int32(len(previous) - tail) //nolint:gosec // as above
	}
	if head+tail == len(current) {
		return indexes
	}
	indexOf := make(map[E]int32, len(previous)-head-tail)
	for i := len(previous) - tail - 1; i >= head; i-- {
		indexOf[previous[i]] = int32(i) //nolint:gosec // as above
	}
	for i := head; i < len(current)-tail; i++ {
		index, ok := indexOf[current[i]]
		if !ok {
			index = -1
		}
		indexes[i] = index
	}
	return indexes
}
