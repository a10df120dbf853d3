package peermetadata

import (
	"strings"
	"sync"

	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// mostPeers is how many peers are remembered: each costs at most twice as many bytes as
// its field may have.
const mostPeers = 1000

// peers remembers what the values of fields mean: a mesh says the same over and over.
// The zero value knows nothing. Safe for concurrent use.
type peers struct {
	mu    sync.RWMutex
	texts map[string]string // by value; guarded by mu
}

// text returns the workload that a value describes, as workload.Parse reads it; ok is
// false if it describes none. It allocates for peers that are new, and is no view.
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
		// Who has come last is not worth a list: those that are there come again at once.
		p.texts = make(map[string]string)
	}
	p.texts[strings.Clone(value)] = text
	return text, true
}
