package filter

import (
	"runtime"
	"sync"
	"weak"
)

// WeakCache keeps state across reloads, such as the token buckets of a limit that does not change.
// All filters of one factory share one cache. The cache has only weak pointers: the garbage
// collector frees values that no configuration uses. The zero WeakCache is empty. It is safe for
// concurrent use.
type WeakCache[T any] struct {
	mu    sync.Mutex
	byKey map[string]weak.Pointer[T] // guarded by mu
}

// GetOrCreate returns the value with this key. If there is none, it returns the result of create,
// which the cache contains as long as other code refers to the value.
func (c *WeakCache[T]) GetOrCreate(key string, create func() *T) *T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value := c.byKey[key].Value(); value != nil {
		return value
	}
	if c.byKey == nil {
		c.byKey = make(map[string]weak.Pointer[T])
	}
	created := create()
	c.byKey[key] = weak.Make(created)
	runtime.AddCleanup(created, c.removeUnused, key)
	return created
}

// removeUnused removes the entry of key if its value is no longer in use.
func (c *WeakCache[T]) removeUnused(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key].Value() == nil {
		delete(c.byKey, key)
	}
}
