package http2

import "iter"

// fifo is a queue whose elements hold their own links, so that each operation takes the
// same time however long it is, and allocates nothing. An element is in one fifo of its
// kind at most.
type fifo[T any] struct {
	first, last *T
	links       func(*T) *links[T] // immutable; where an element has its links
}

// links are an element's place in a fifo.
type links[T any] struct {
	before, behind *T
	queued         bool
}

// empty reports whether nothing is queued.
func (q *fifo[T]) empty() bool { return q.first == nil }

// push appends v, and reports false if it is queued already.
func (q *fifo[T]) push(v *T) bool {
	l := q.links(v)
	if l.queued {
		return false
	}
	l.queued, l.before = true, q.last
	if q.last == nil {
		q.first = v
	} else {
		q.links(q.last).behind = v
	}
	q.last = v
	return true
}

// remove takes v out, and reports false if it was not queued.
func (q *fifo[T]) remove(v *T) bool {
	l := q.links(v)
	if !l.queued {
		return false
	}
	if l.before == nil {
		q.first = l.behind
	} else {
		q.links(l.before).behind = l.behind
	}
	if l.behind == nil {
		q.last = l.before
	} else {
		q.links(l.behind).before = l.before
	}
	*l = links[T]{}
	return true
}

// pop takes the oldest out; nil: there is none.
func (q *fifo[T]) pop() *T {
	v := q.first
	if v != nil {
		q.remove(v)
	}
	return v
}

// all yields the elements from the oldest on. The one that it has just yielded may be
// removed.
func (q *fifo[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for v := q.first; v != nil; {
			next := q.links(v).behind
			if !yield(v) {
				return
			}
			v = next
		}
	}
}
