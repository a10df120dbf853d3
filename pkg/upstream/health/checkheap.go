package health

// checkHeap is a heap.Interface of checks, ordered by when they are due, the earliest first.
type checkHeap []*Check

func (a checkHeap) Len() int           { return len(a) }
func (a checkHeap) Less(i, k int) bool { return a[i].due < a[k].due }

func (a checkHeap) Swap(i, k int) {
	a[i], a[k] = a[k], a[i]
	a[i].heapIndex, a[k].heapIndex = i+1, k+1
}

// Push implements heap.Interface.
func (a *checkHeap) Push(c any) {
	check := c.(*Check) //nolint:forcetypeassert // nothing else is in it
	*a = append(*a, check)
	check.heapIndex = len(*a)
}

// Pop implements heap.Interface.
func (a *checkHeap) Pop() any {
	last := len(*a) - 1
	check := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	check.heapIndex = 0
	return check
}
