package filter

import (
	"runtime"
	"testing"
)

func TestWeakCacheKeepsValuesInUse(t *testing.T) {
	var s WeakCache[[64]byte]
	made := func() *[64]byte { return new([64]byte) }
	kept := s.GetOrCreate("kept", made)
	s.GetOrCreate("forgotten", made)
	for range 100 {
		runtime.GC()
		if s.Len() == 1 {
			break
		}
		runtime.Gosched()
	}
	if n := s.Len(); n != 1 {
		t.Errorf("%d cached values, want only the one in use", n)
	}
	if s.GetOrCreate("kept", made) != kept {
		t.Error("a value in use was created again")
	}
	if s.GetOrCreate("other", made) == kept {
		t.Error("two keys share a value")
	}
	runtime.KeepAlive(kept)
}
