package udpproxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
)

// session holds the state of one Flow and the lease of its host. The session keeps its host while
// the host is usable.
type session struct {
	proxy        *Proxy       // immutable
	flow         network.Flow // immutable
	lastActivity atomic.Int64 // time of the last datagram in either direction: ns since Proxy.epoch

	mu       sync.Mutex
	lease    filter.HostLease // guarded by mu; nil: the session has ended
	cluster  string           // guarded by mu; cluster of way
	refused  bool             // guarded by mu; nothing receives at the host's port
	lastMove time.Duration    // guarded by mu; last attempt to change the host, since Proxy.epoch
}

// leaseFirstHost leases the first host of the session. It returns false, and counts the datagram as dropped,
// if there is no host.
func (s *session) leaseFirstHost(cfg *config.UDPProxy) bool {
	s.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	way, err := s.leaseHost(cfg, nil)
	if err != nil {
		s.proxy.recordNoHost(cfg.Cluster, err)
		return false
	}
	s.lease, s.cluster = way, cfg.Cluster
	return true
}

// leaseHost leases a host and adds its socket to the poller. It returns now if the session should keep
// its host. s.mu is held.
func (s *session) leaseHost(cfg *config.UDPProxy, now filter.HostLease) (filter.HostLease, error) {
	way, err := s.proxy.hosts.Lease(cfg.Cluster, hashOf(cfg, s.flow), now)
	if err != nil || way == now {
		return way, err
	}
	if err := s.proxy.poller.Add(way.Socket(), s); err != nil {
		way.Release()
		return nil, err
	}
	return way, nil
}

func (s *session) touch() { s.lastActivity.Store(int64(s.proxy.now())) }

// send forwards a datagram of the source to the host.
func (s *session) send(b []byte) {
	s.touch()
	way := s.currentLease()
	if way == nil {
		return // the session has just ended; UDP may lose datagrams
	}
	err := way.Socket().Send(b)
	if errors.Is(err, network.ErrConnRefused) { // caused by an earlier datagram
		s.markRefused(err)
		if way = s.currentLease(); way != nil {
			err = way.Socket().Send(b)
		}
	}
	counts := s.proxy.counts
	if err != nil {
		counts.DroppedToHost.Add(1)
		return
	}
	counts.In.Add(1)
	counts.InBytes.Add(uint64(len(b)))
}

// minMoveInterval is how long a session keeps an unusable host before it looks for another one again.
const minMoveInterval = time.Second

// currentLease returns the lease of the host, or nil if the session has ended. It leases another host if
// this one is no longer usable or the configured cluster has changed.
func (s *session) currentLease() filter.HostLease {
	cfg := s.proxy.config.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.cluster == cfg.Cluster && !s.refused && s.lease.Usable() {
		return s.lease
	}
	now := s.proxy.now()
	if s.lastMove != 0 && now-s.lastMove < minMoveInterval {
		return s.lease
	}
	s.lastMove = now
	way, err := s.leaseHost(cfg, s.lease)
	if err != nil || way == s.lease {
		return s.lease // no better host is available
	}
	before := s.lease
	s.lease, s.cluster, s.refused = way, cfg.Cluster, false
	s.proxy.counts.SessionsMoved.Add(1)
	before.Release()
	return way
}

// markRefused records that nothing receives at the host's port.
func (s *session) markRefused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil && !s.refused {
		s.refused = true
		s.lease.Report(err)
	}
}

// maxReadsPerEvent is the maximum number of datagrams that one call of Readable receives, so that other hosts
// get their turn.
const maxReadsPerEvent = 32

// Readable implements network.ReadHandler. It forwards datagrams of the host to the source.
func (s *session) Readable(buffer []byte) {
	defer s.proxy.recoverPanic("relaying a datagram to the client")
	s.mu.Lock()
	way := s.lease
	s.mu.Unlock()
	if way == nil {
		return
	}
	counts := s.proxy.counts
	for range maxReadsPerEvent {
		n, err := way.Socket().Receive(buffer)
		switch {
		case errors.Is(err, network.ErrWouldBlock), errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.markRefused(err)
			continue
		}
		s.touch()
		way.Report(nil)
		if err := s.proxy.socket.Send(buffer[:n], s.flow); err != nil {
			counts.DroppedToClient.Add(1)
			continue
		}
		counts.Out.Add(1)
		counts.OutBytes.Add(uint64(n))
	}
}

// end releases the host. Later datagrams of the session are dropped.
func (s *session) end() {
	defer s.proxy.recoverPanic("closing a UDP session")
	s.mu.Lock()
	defer s.mu.Unlock()
	if way := s.lease; way != nil {
		s.lease = nil
		way.Release()
	}
}
