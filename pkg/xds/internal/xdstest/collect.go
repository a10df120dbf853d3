package xdstest

import (
	"runtime"
	"weak"
)

// WatchCollected returns a function that reports whether the garbage collector frees *p.
func WatchCollected[T any](p *T) func() bool {
	ref := weak.Make(p)
	return func() bool {
		for range 3 { // a value in a pool or with a finalizer needs more than one collection
			runtime.GC()
			if ref.Value() == nil {
				return true
			}
		}
		return false
	}
}
