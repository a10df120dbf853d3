package istiostats

import (
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// session counts the bytes of a relayed connection.
type session struct {
	by      *entry
	traffic *network.RelayCounters

	mu             sync.Mutex
	next           *time.Timer // calls again; nil: no timer, or ended. Guarded by mu
	sent, received int64       // bytes already counted; guarded by mu
}

// watch counts the session of, which begins. It counts bytes at the interval every and at the end;
// if every is 0, only at the end. The caller calls ended once when the session has ended.
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

// again counts the bytes since the last count and restarts the timer.
func (n *session) again(every time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		return // end ran first
	}
	n.count()
	n.next.Reset(every)
}

// end counts the remaining bytes and the closed connection.
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

// count adds the bytes since the last count. n.mu is held.
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
