package demand

import (
	"slices"
	"testing"
)

func TestRepeatedRequestsAreTakenOnce(t *testing.T) {
	q := NewRequestQueue()
	for _, name := range []string{"b", "a", "b"} {
		q.Request(name)
	}
	<-q.Requested()
	if got, want := q.Take(), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("Take() = %v, want %v", got, want)
	}
	if got := q.Take(); len(got) != 0 {
		t.Errorf("second Take() = %v, want nothing", got)
	}
	q.Request("c")
	<-q.Requested()
	if got, want := q.Take(), []string{"c"}; !slices.Equal(got, want) {
		t.Errorf("Take() = %v, want %v", got, want)
	}
}

func TestResetUsed(t *testing.T) {
	var i Item
	if i.ResetUsed() {
		t.Error("ResetUsed() = true before MarkUsed()")
	}
	i.MarkUsed()
	i.MarkUsed()
	if !i.ResetUsed() {
		t.Error("ResetUsed() = false after MarkUsed()")
	}
	if i.ResetUsed() {
		t.Error("second ResetUsed() = true without MarkUsed()")
	}
}

func TestMarkUsedDoesNotAllocate(t *testing.T) {
	var i Item
	if n := testing.AllocsPerRun(100, i.MarkUsed); n != 0 {
		t.Errorf("MarkUsed() allocates %v times, want 0", n)
	}
}

func TestNotifyWakesWaiters(t *testing.T) {
	var i Item
	i.Notify() // without waiters
	first, second := i.Wait(), i.Wait()
	i.Notify()
	<-first
	<-second
	select {
	case <-i.Wait():
		t.Error("a channel returned by Wait after Notify is closed")
	default:
	}
}
