package filter

import (
	"runtime"
	"sync"
	"weak"
)

// WeakCache finds what outlives the configuration that it was made for: the buckets of a
// limit, say, that the next configuration has in the same place and in the same words.
// A Kind has one for all filters that it builds. It holds nothing: what no
// configuration uses any more is collected. The zero Shelf is empty. Safe for
// concurrent use.
type WeakCache[T any] struct {
	mu    sync.Mutex
	byKey map[string]weak.Pointer[T] // guarded by mu
}

// GetOrCreate returns what is in use under key, or else what made returns, which is in use
// from now on, for as long as somebody holds it.
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
	runtime.AddCleanup(fresh, s.forget, key)
	return fresh
}

// forget drops what is under key if nobody uses it.
func (s *WeakCache[T]) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key].Value() == nil {
		delete(s.byKey, key)
	}
}

// Len returns how many things are on the shelf.
func (s *WeakCache[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}
