package peermetadata

import (
	"strings"
	"sync"

	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// maxPeers is the maximum number of cached peers. Each uses at most about twice the bytes of its
// header value.
const maxPeers = 1000

// peerCache caches the parsed values of peer headers, because requests of a mesh repeat them. The
// zero value is empty. It is safe for concurrent use.
type peerCache struct {
	mu      sync.RWMutex
	byValue map[string]string // by header value; guarded by mu
}

// workloadText returns the workload in a header value, in the format of workload.Parse. ok is false
// if value is malformed. text does not borrow from value. workloadText does not allocate for
// cached peers.
func (c *peerCache) workloadText(value string) (text string, ok bool) {
	c.mu.RLock()
	text, ok = c.byValue[value]
	c.mu.RUnlock()
	if ok {
		return text, true
	}
	w, err := workload.ParseMetadata(value)
	if err != nil {
		return "", false
	}
	text = w.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byValue == nil || len(c.byValue) >= maxPeers {
		// An LRU list is not worth its cost: peers in use are added again soon.
		c.byValue = make(map[string]string)
	}
	c.byValue[strings.Clone(value)] = text
	return text, true
}
