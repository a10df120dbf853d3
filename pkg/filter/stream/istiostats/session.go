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
	timer          *time.Timer // calls report; nil: no timer, or the session has ended; guarded by mu
	sent, received int64       // bytes already counted; guarded by mu
}

// watch begins to count the session conn. It counts bytes at every interval and at the end; if
// interval is 0, only at the end. The caller calls onEnd once when the session has ended.
func (s *stats) watch(conn *filter.Session, interval time.Duration) (onEnd func()) {
	k := s.keyOfSession(conn)
	sess := &session{entry: s.entryOf(&k), traffic: &conn.Traffic}
	sess.entry.add(connectionsOpened, 1)
	if interval > 0 {
		sess.mu.Lock()
		defer sess.mu.Unlock()
		sess.timer = time.AfterFunc(interval, func() { sess.report(interval) })
	}
	return sess.end
}

// report counts the bytes since the last count and restarts the timer.
func (s *session) report(interval time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		return // end has already run
	}
	s.count()
	s.timer.Reset(interval)
}

// end counts the remaining bytes and the closed connection.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.count()
	s.entry.add(connectionsClosed, 1)
}

// count adds the bytes since the last count. The caller holds s.mu.
func (s *session) count() {
	sent, received := s.traffic.In.Load(), s.traffic.Out.Load()
	s.entry.add(bytesSent, sent-s.sent)
	s.entry.add(bytesReceived, received-s.received)
	s.sent, s.received = sent, received
}

func (s *stats) keyOfSession(conn *filter.Session) (k key) {
	k.protocol, k.grpc, k.reason, k.flags = "tcp", protocol.NoCode, conn.Reason, conn.Reason.Spec().Flag
	k.setCluster(conn.Cluster)
	if s.Reporter == destination {
		k.peerPrincipal, k.localPrincipal = principals(conn.DownstreamTLS)
		return k
	}
	k.peerPrincipal, k.localPrincipal = principals(conn.UpstreamTLS)
	if conn.Host != nil {
		k.peer = conn.Host.Workload
	}
	return k
}
