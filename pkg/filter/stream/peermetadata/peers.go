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

// workloadText returns the workload that value describes, in the format of workload.Parse. ok is
// false if value is malformed. The result is not a view. text allocates only for new peers.
func (p *peerCache) workloadText(value string) (text string, ok bool) {
	p.mu.RLock()
	text, ok = p.byValue[value]
	p.mu.RUnlock()
	if ok {
		return text, true
	}
	w, err := workload.ParseMetadata(value)
	if err != nil {
		return "", false
	}
	text = w.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byValue == nil || len(p.byValue) >= maxPeers {
		// An LRU list is not worth its cost: peers in use are added again soon.
		p.byValue = make(map[string]string)
	}
	p.byValue[strings.Clone(value)] = text
	return text, true
}
