package load

// queue is a FIFO ring. It grows to the largest size it had and then does not allocate. The zero
// value is empty.
type queue[T any] struct {
	ring []T // its length is a power of two, or 0
	head int // index of the first value
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

// pop removes and returns the first value; the queue must not be empty.
func (q *queue[T]) pop() T {
	v := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.size--
	return v
}
