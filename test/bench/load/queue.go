package load

// queue is first in, first out. It grows to what it held at most and does not
// allocate after that. The zero value is empty.
type queue[T any] struct {
	ring []T // its length is a power of two, or 0
	head int // place of the first value, modulo the length
	size int
}

func (q *queue[T]) len() int { return q.size }

func (q *queue[T]) push(v T) {
	if q.size == len(q.ring) {
		grown := make([]T, max(2*len(q.ring), 16))
		for i := range q.size {
			grown[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.size)&(len(q.ring)-1)] = v
	q.size++
}

// pop takes the first value; there must be one.
func (q *queue[T]) pop() T {
	v := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.size--
	return v
}
