package localratelimit

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
)

// pool holds buckets of one rate by key, such as an address or a header value. It has a maximum
// size. When a shard is full, a new bucket replaces a bucket with all its tokens, or if
// evictionIndex finds none quickly, a bucket that was not used recently (the clock algorithm). It
// is safe for concurrent use.
type pool struct {
	rate    rate             // immutable
	dropped *metrics.Counter // counts dropped buckets that were not full
	seed    maphash.Seed     // immutable
	shards  []shard          // length is a power of two; immutable
}

type shard struct {
	limit int // immutable

	mu    sync.Mutex
	byKey map[string]*entry // guarded by mu
	ring  []*entry          // the entries of byKey; guarded by mu
	hand  int               // index in ring where evictionIndex starts; guarded by mu
}

// entry is a bucket with its key.
type entry struct {
	bucket
	key  string
	used bool // getOrCreate found the entry since the hand last passed it; guarded by the shard's mu
}

func newPool(r rate, limit int, dropped *metrics.Counter) *pool {
	shardCount := 1
	if limit >= 1024 {
		shardCount = 16
	}
	p := &pool{rate: r, dropped: dropped, seed: maphash.MakeSeed(), shards: make([]shard, shardCount)}
	for i := range p.shards {
		p.shards[i].limit = max(limit/shardCount, 1)
		p.shards[i].byKey = make(map[string]*entry)
	}
	return p
}

// getOrCreate returns the bucket of key, and creates it if there is none. It does not retain key.
func (p *pool) getOrCreate(key []byte, now time.Duration) *bucket {
	s := &p.shards[maphash.Bytes(p.seed, key)&uint64(len(p.shards)-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[string(key)]
	if e != nil {
		e.used = true
		return &e.bucket
	}
	e = &entry{key: string(key)} // used stays false until the next call with key
	p.add(s, e, now)
	return &e.bucket
}

// add adds e to s. The caller holds s.mu.
func (p *pool) add(s *shard, e *entry, now time.Duration) {
	s.byKey[e.key] = e
	if len(s.ring) < s.limit {
		s.ring = append(s.ring, e)
		return
	}
	index := p.evictionIndex(s, now)
	if tokens, _ := s.ring[index].remaining(p.rate, now); tokens < p.rate.tokens {
		p.dropped.Add(1)
	}
	delete(s.byKey, s.ring[index].key)
	s.ring[index] = e
	s.hand = (index + 1) % len(s.ring)
}

// evictionIndex returns the index in the ring of the bucket to drop. The caller holds s.mu.
func (p *pool) evictionIndex(s *shard, now time.Duration) int {
	const maxChecks = 16 // maximum number of buckets to check for a full one
	for i := range min(maxChecks, len(s.ring)) {
		index := (s.hand + i) % len(s.ring)
		if tokens, _ := s.ring[index].remaining(p.rate, now); tokens == p.rate.tokens {
			return index
		}
	}
	for index := s.hand; ; index = (index + 1) % len(s.ring) {
		if !s.ring[index].used {
			return index
		}
		s.ring[index].used = false
	}
}
