package filter

import (
	"runtime"
	"testing"
)

func TestWeakCacheKeepsValuesInUse(t *testing.T) {
	var c WeakCache[[64]byte]
	create := func() *[64]byte { return new([64]byte) }
	inUse := c.GetOrCreate("used", create)
	c.GetOrCreate("unused", create)
	for range 100 {
		runtime.GC()
		if entryCount(&c) == 1 {
			break
		}
		runtime.Gosched()
	}
	if n := entryCount(&c); n != 1 {
		t.Errorf("%d cached values, want only the one in use", n)
	}
	if c.GetOrCreate("used", create) != inUse {
		t.Error("a value in use was created again")
	}
	if c.GetOrCreate("other", create) == inUse {
		t.Error("two keys share a value")
	}
	runtime.KeepAlive(inUse)
}

func entryCount[T any](s *WeakCache[T]) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}
