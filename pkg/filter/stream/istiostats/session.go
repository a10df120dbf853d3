package istiostats

import (
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// session is a connection whose bytes are counted while they are carried.
type session struct {
	by      *entry
	traffic *network.RelayCounters

	mu             sync.Mutex
	next           *time.Timer // when it is counted again; nil: it is not. Guarded by mu
	sent, received int64       // what is counted already; guarded by mu
}

// watch counts of, which begins, every so often (0: only at its end).
func (s *stats) watch(of *filter.Session, every time.Duration) (ended func()) {
	k := s.keyOfSession(of)
	n := &session{by: s.entryOf(&k), traffic: &of.Traffic}
	n.by.add(connectionsOpened, 1)
	if every > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.next = time.AfterFunc(every, func() { n.again(every) })
	}
	return n.end
}

// again counts what was carried meanwhile.
func (n *session) again(every time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		return // it has just ended
	}
	n.count()
	n.next.Reset(every)
}

// end counts what is left.
func (n *session) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		n.next.Stop()
		n.next = nil
	}
	n.count()
	n.by.add(connectionsClosed, 1)
}

// count is called under mu.
func (n *session) count() {
	sent, received := n.traffic.In.Load(), n.traffic.Out.Load()
	n.by.add(bytesSent, sent-n.sent)
	n.by.add(bytesReceived, received-n.received)
	n.sent, n.received = sent, received
}

func (s *stats) keyOfSession(of *filter.Session) (k key) {
	k.protocol, k.grpc, k.reason = "tcp", protocol.NoCode, of.Reason
	k.nameCluster(of.Cluster)
	if s.Reporter == destination {
		k.theirs, k.ours = principals(of.Caller)
		return k
	}
	k.theirs, k.ours = principals(of.Called)
	if of.Host != nil {
		k.peer = of.Host.Workload
	}
	return k
}
