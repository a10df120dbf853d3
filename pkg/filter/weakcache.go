package filter

import (
	"runtime"
	"sync"
	"weak"
)

// WeakCache finds state that outlives its configuration, such as the buckets of a limit that the
// next configuration has at the same key and unchanged. One filter factory shares one cache among
// all its filters. The cache has only weak pointers: the collector frees values that no
// configuration uses. The zero WeakCache is empty. It is safe for concurrent use.
type WeakCache[T any] struct {
	mu    sync.Mutex
	byKey map[string]weak.Pointer[T] // guarded by mu
}

// GetOrCreate returns the value in use under key. If there is none, it returns the result of
// made, which stays in use while anything refers to it.
func (s *WeakCache[T]) GetOrCreate(key string, made func() *T) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.byKey[key].Value(); kept != nil {
		return kept
	}
	if s.byKey == nil {
		s.byKey = make(map[string]weak.Pointer[T])
	}
	fresh := made()
	s.byKey[key] = weak.Make(fresh)
	runtime.AddCleanup(fresh, s.removeUnused, key)
	return fresh
}

// removeUnused removes the entry of key if its value is no longer in use.
func (s *WeakCache[T]) removeUnused(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key].Value() == nil {
		delete(s.byKey, key)
	}
}

// Len returns the number of entries.
func (s *WeakCache[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}
