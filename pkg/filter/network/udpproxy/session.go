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

// session holds the state of one network.Flow and the lease of its host. The session keeps its host
// while the host is usable and has not failed, and the configured cluster is unchanged.
type session struct {
	proxy        *Proxy       // immutable
	flow         network.Flow // immutable
	lastActivity atomic.Int64 // time of the last datagram in either direction: ns since Proxy.epoch

	mu         sync.Mutex
	lease      filter.HostLease // guarded by mu; nil: the session has ended
	cluster    string           // guarded by mu; cluster of lease
	hostFailed bool             // guarded by mu; a send or a receive reported that the host failed
	lastMove   time.Duration    // guarded by mu; time of the last attempt to move, since Proxy.epoch; 0: none
}

// leaseFirstHost leases the first host of the session. If it gets no lease, it counts the datagram
// as dropped and returns false.
func (s *session) leaseFirstHost(cfg *config.UDPProxy) bool {
	s.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	lease, err := s.leaseHost(cfg, nil)
	if err != nil {
		s.proxy.recordNoHost(cfg.Cluster, err)
		return false
	}
	s.lease, s.cluster = lease, cfg.Cluster
	return true
}

// leaseHost leases a host and adds its socket to the poller. It returns current if the session
// should keep its host. The caller holds s.mu.
func (s *session) leaseHost(cfg *config.UDPProxy, current filter.HostLease) (filter.HostLease, error) {
	lease, err := s.proxy.hosts.Lease(cfg.Cluster, hashOf(cfg, s.flow), current)
	if err != nil || lease == current {
		return lease, err
	}
	if err := s.proxy.poller.Add(lease.Socket(), s); err != nil {
		lease.Release()
		return nil, err
	}
	return lease, nil
}

func (s *session) touch() { s.lastActivity.Store(int64(s.proxy.now())) }

// send forwards a datagram of the source to the host.
func (s *session) send(b []byte) {
	s.touch()
	lease := s.currentLease()
	if lease == nil {
		return // the session has just ended; UDP may lose datagrams
	}
	err := lease.Socket().Send(b)
	if errors.Is(err, network.ErrConnRefused) { // the kernel reports the ICMP error of an earlier datagram
		s.markFailed(err)
		if lease = s.currentLease(); lease != nil {
			err = lease.Socket().Send(b)
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

// minMoveInterval is the minimum time between two attempts of one session to move to another host.
const minMoveInterval = time.Second

// currentLease returns the lease of the session, or nil if the session has ended. If the host is no
// longer usable or the configured cluster has changed, currentLease first tries to move the session
// to another host.
func (s *session) currentLease() filter.HostLease {
	cfg := s.proxy.config.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.cluster == cfg.Cluster && !s.hostFailed && s.lease.Usable() {
		return s.lease
	}
	now := s.proxy.now()
	if s.lastMove != 0 && now-s.lastMove < minMoveInterval {
		return s.lease
	}
	s.lastMove = now
	lease, err := s.leaseHost(cfg, s.lease)
	if err != nil || lease == s.lease {
		return s.lease // no better host is available
	}
	previous := s.lease
	s.lease, s.cluster, s.hostFailed = lease, cfg.Cluster, false
	s.proxy.counts.SessionsMoved.Add(1)
	previous.Release()
	return lease
}

// markFailed records that the host failed, so that the session moves to another host.
func (s *session) markFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil && !s.hostFailed {
		s.hostFailed = true
		s.lease.Report(err)
	}
}

// maxReadsPerEvent is the maximum number of receives in one call of Readable, so that one host
// cannot starve the others.
const maxReadsPerEvent = 32

// Readable implements network.ReadHandler. It forwards datagrams of the host to the source.
func (s *session) Readable(buffer []byte) {
	defer s.proxy.recoverPanic("relaying a datagram to the client")
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	if lease == nil {
		return
	}
	counts := s.proxy.counts
	for range maxReadsPerEvent {
		n, err := lease.Socket().Receive(buffer)
		switch {
		case errors.Is(err, network.ErrWouldBlock), errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.markFailed(err)
			continue
		}
		s.touch()
		lease.Report(nil)
		if err := s.proxy.socket.Send(buffer[:n], s.flow); err != nil {
			counts.DroppedToClient.Add(1)
			continue
		}
		counts.Out.Add(1)
		counts.OutBytes.Add(uint64(n))
	}
}

// end releases the host. The session drops later datagrams.
func (s *session) end() {
	defer s.proxy.recoverPanic("closing a UDP session")
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease := s.lease; lease != nil {
		s.lease = nil
		lease.Release()
	}
}
