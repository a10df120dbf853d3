package health

// checkHeap is a heap.Interface of checks, ordered by when they are due, the earliest first.
type checkHeap []*Check

func (h checkHeap) Len() int           { return len(h) }
func (h checkHeap) Less(i, j int) bool { return h[i].due < h[j].due }

func (h checkHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i+1, j+1
}

// Push implements heap.Interface.
func (h *checkHeap) Push(c any) {
	check := c.(*Check) //nolint:forcetypeassert // the heap holds only checks
	*h = append(*h, check)
	check.heapIndex = len(*h)
}

// Pop implements heap.Interface.
func (h *checkHeap) Pop() any {
	last := len(*h) - 1
	check := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	check.heapIndex = 0
	return check
}
