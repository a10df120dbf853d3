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
	entry   *entry
	traffic *network.RelayCounters

	mu             sync.Mutex
	timer          *time.Timer // calls again; nil: no timer, or ended. Guarded by mu
	sent, received int64       // bytes already counted; guarded by mu
}

// watch counts the session of, which begins. It counts bytes at the interval every and at the end;
// if every is 0, only at the end. The caller calls ended once when the session has ended.
func (s *stats) watch(of *filter.Session, every time.Duration) (ended func()) {
	k := s.keyOfSession(of)
	n := &session{entry: s.entryOf(&k), traffic: &of.Traffic}
	n.entry.add(connectionsOpened, 1)
	if every > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.timer = time.AfterFunc(every, func() { n.report(every) })
	}
	return n.end
}

// report counts the bytes since the last count and restarts the timer.
func (n *session) report(every time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer == nil {
		return // end ran first
	}
	n.count()
	n.timer.Reset(every)
}

// end counts the remaining bytes and the closed connection.
func (n *session) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	n.count()
	n.entry.add(connectionsClosed, 1)
}

// count adds the bytes since the last count. n.mu is held.
func (n *session) count() {
	sent, received := n.traffic.In.Load(), n.traffic.Out.Load()
	n.entry.add(bytesSent, sent-n.sent)
	n.entry.add(bytesReceived, received-n.received)
	n.sent, n.received = sent, received
}

func (s *stats) keyOfSession(of *filter.Session) (k key) {
	k.protocol, k.grpc, k.reason = "tcp", protocol.NoCode, of.Reason
	k.setCluster(of.Cluster)
	if s.Reporter == destination {
		k.peerPrincipal, k.localPrincipal = principals(of.DownstreamTLS)
		return k
	}
	k.peerPrincipal, k.localPrincipal = principals(of.UpstreamTLS)
	if of.Host != nil {
		k.peer = of.Host.Workload
	}
	return k
}
