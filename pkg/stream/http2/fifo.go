package http2

import "iter"

// fifo is an intrusive queue: its elements hold their links. Each operation except iteration takes
// constant time and allocates nothing. An element is in at most one fifo per links field.
type fifo[T any] struct {
	first, last *T
	linksOf     func(*T) *links[T] // immutable; returns the links of an element
}

// links are an element's links in a fifo.
type links[T any] struct {
	prev, next *T
	queued     bool
}

// empty reports whether the queue is empty.
func (q *fifo[T]) empty() bool { return q.first == nil }

// push appends v. It returns false if v is already queued.
func (q *fifo[T]) push(v *T) bool {
	l := q.linksOf(v)
	if l.queued {
		return false
	}
	l.queued, l.prev = true, q.last
	if q.last == nil {
		q.first = v
	} else {
		q.linksOf(q.last).next = v
	}
	q.last = v
	return true
}

// remove removes v. It returns false if v was not queued.
func (q *fifo[T]) remove(v *T) bool {
	l := q.linksOf(v)
	if !l.queued {
		return false
	}
	if l.prev == nil {
		q.first = l.next
	} else {
		q.linksOf(l.prev).next = l.next
	}
	if l.next == nil {
		q.last = l.prev
	} else {
		q.linksOf(l.next).prev = l.prev
	}
	*l = links[T]{}
	return true
}

// pop removes and returns the oldest element, or nil if there is none.
func (q *fifo[T]) pop() *T {
	v := q.first
	if v != nil {
		q.remove(v)
	}
	return v
}

// all yields the elements, oldest first. The loop may remove the current element.
func (q *fifo[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for v := q.first; v != nil; {
			next := q.linksOf(v).next
			if !yield(v) {
				return
			}
			v = next
		}
	}
}
