// Package align finds the elements that two versions of a list have in common.
package align

// Indexes returns, for each element of now, the index of an equal element of before, or -1 if there
// is none. The common prefix and suffix cost one comparison for each element; only the elements
// between them need a map. Among equal elements of before between the two ends, Places returns the
// index of the first, so an index may occur more than once.
func Indexes[E comparable](before, now []E) []int32 {
	places := make([]int32, len(now))
	least := min(len(before), len(now))
	head := 0
	for head < least && before[head] == now[head] {
		places[head] = int32(head) //nolint:gosec // lists are in memory, and shorter
		head++
	}
	tail := 0
	for tail < least-head && before[len(before)-1-tail] == now[len(now)-1-tail] {
		tail++
		places[len(now)-tail] = int32(len(before) - tail) //nolint:gosec // as above
	}
	if head+tail == len(now) {
		return places
	}
	known := make(map[E]int32, len(before)-head-tail)
	for i := len(before) - tail - 1; i >= head; i-- {
		known[before[i]] = int32(i) //nolint:gosec // as above
	}
	for i := head; i < len(now)-tail; i++ {
		place, ok := known[now[i]]
		if !ok {
			place = -1
		}
		places[i] = place
	}
	return places
}
