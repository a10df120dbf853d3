package proxy

import (
	"sync"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/network/credential"
)

// handshakeRecorder counts the results of the TLS handshakes of a listener or cluster. A result
// without handshakes has no series. It is safe for concurrent use.
type handshakeRecorder struct {
	registry *metrics.Registry
	metric   metrics.Metric
	scope    string

	mu         sync.Mutex
	refs       int              // guarded by mu; number of references
	counts     map[string]int64 // guarded by mu; number of handshakes by result
	unregister []func()         // guarded by mu
	closed     bool             // guarded by mu; no series may be added, because another recorder may use the scope
}

func newHandshakeRecorder(r *metrics.Registry, m metrics.Metric, scope string) *handshakeRecorder {
	return &handshakeRecorder{registry: r, metric: m, scope: scope, refs: 1, counts: map[string]int64{}}
}

// acquire adds a reference to h and returns h. h may be nil.
func (h *handshakeRecorder) acquire() *handshakeRecorder {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refs++
	return h
}

// release releases a reference. The release of the last reference closes h. h may be nil.
func (h *handshakeRecorder) release() {
	if h == nil {
		return
	}
	h.mu.Lock()
	h.refs--
	last := h.refs == 0
	h.mu.Unlock()
	if last {
		h.close()
	}
}

// count records a handshake that ended with err.
func (h *handshakeRecorder) count(err error) {
	result := metrics.ResultOK
	if err != nil {
		result = credential.HandshakeFailureOf(err).String()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, exists := h.counts[result]
	h.counts[result]++
	if !exists && !h.closed && h.registry != nil {
		h.unregister = append(h.unregister, h.registry.Func(h.metric, func() float64 { return h.read(result) }, h.scope, result))
	}
}

func (h *handshakeRecorder) read(result string) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return float64(h.counts[result])
}

// close removes the series. Handshakes in flight may still call count.
func (h *handshakeRecorder) close() {
	h.mu.Lock()
	unregister := h.unregister
	h.unregister, h.closed = nil, true
	h.mu.Unlock()
	for _, f := range unregister {
		f()
	}
}
