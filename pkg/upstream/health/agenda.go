package health

// agenda is a heap.Interface of checks, ordered by when they are due, the earliest first.
type agenda []*Check

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, k int) bool { return a[i].due < a[k].due }

func (a agenda) Swap(i, k int) {
	a[i], a[k] = a[k], a[i]
	a[i].place, a[k].place = i+1, k+1
}

// Push implements heap.Interface.
func (a *agenda) Push(c any) {
	check := c.(*Check) //nolint:forcetypeassert // nothing else is in it
	*a = append(*a, check)
	check.place = len(*a)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	check := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	check.place = 0
	return check
}
