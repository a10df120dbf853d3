package peermetadata

import (
	"strings"
	"sync"

	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// mostPeers is the maximum number of cached peers. Each uses at most about twice the bytes of its
// header value.
const mostPeers = 1000

// peers caches the parsed values of peer headers, because requests of a mesh repeat them. The zero
// value is empty. It is safe for concurrent use.
type peers struct {
	mu    sync.RWMutex
	texts map[string]string // by header value; guarded by mu
}

// text returns the workload that value describes, in the format of workload.Parse. ok is false if
// value is malformed. The result is not a view. text allocates only for new peers.
func (p *peers) text(value string) (text string, ok bool) {
	p.mu.RLock()
	text, ok = p.texts[value]
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
	if p.texts == nil || len(p.texts) >= mostPeers {
		// An LRU list is not worth its cost: peers in use are added again soon.
		p.texts = make(map[string]string)
	}
	p.texts[strings.Clone(value)] = text
	return text, true
}
