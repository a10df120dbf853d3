package http2

import (
	"slices"
	"testing"
)

type queuedNumber struct {
	n     int
	links links[queuedNumber]
}

func newNumbers() *fifo[queuedNumber] {
	return &fifo[queuedNumber]{linksOf: func(v *queuedNumber) *links[queuedNumber] { return &v.links }}
}

// len returns the number of queued elements.
func (q *fifo[T]) len() int {
	n := 0
	for range q.all() {
		n++
	}
	return n
}

// TestFifo verifies push, remove and pop against a slice.
func TestFifo(t *testing.T) {
	q := newNumbers()
	elements := make([]queuedNumber, 10)
	var want []int
	for i := range elements {
		elements[i].n = i
		if !q.push(&elements[i]) {
			t.Fatalf("push(%d) = false, want true", i)
		}
		want = append(want, i)
	}
	if q.push(&elements[3]) {
		t.Error("push of a queued element = true, want false")
	}
	check := func(step string) {
		t.Helper()
		var got []int
		for v := range q.all() {
			got = append(got, v.n)
		}
		if !slices.Equal(got, want) || q.empty() != (len(want) == 0) {
			t.Fatalf("%s: queue %v, want %v", step, got, want)
		}
	}
	check("after push")
	for _, i := range []int{0, 9, 4} { // the first, the last, one in the middle
		if !q.remove(&elements[i]) || q.remove(&elements[i]) {
			t.Errorf("remove(%d) did not return true exactly once", i)
		}
		want = slices.DeleteFunc(want, func(n int) bool { return n == i })
		check("after remove")
	}
	for v := range q.all() {
		if v.n%2 == 1 {
			q.remove(v)
		}
	}
	want = slices.DeleteFunc(want, func(n int) bool { return n%2 == 1 })
	check("after removing while iterating")
	q.push(&elements[9])
	want = append(want, 9)
	check("after pushing again")
	for len(want) > 0 {
		if v := q.pop(); v == nil || v.n != want[0] {
			t.Fatalf("pop returned %v, want %d", v, want[0])
		}
		want = want[1:]
		check("after pop")
	}
	if q.pop() != nil {
		t.Error("pop of an empty fifo did not return nil")
	}
}

// BenchmarkFifo empties a queue from its front and from other positions: the time per element must
// not depend on the length.
func BenchmarkFifo(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		elements := make([]queuedNumber, size)
		b.Run(map[int]string{100: "short", 100_000: "long"}[size], func(b *testing.B) {
			q := newNumbers()
			b.ReportAllocs()
			for b.Loop() {
				for i := range elements {
					q.push(&elements[i])
				}
				for i := range elements {
					if i%2 == 0 {
						q.remove(&elements[size-1-i])
					} else {
						q.pop()
					}
				}
				for q.pop() != nil {
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/element")
		})
	}
}
