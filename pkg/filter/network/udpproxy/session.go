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
	proxy *Proxy       // immutable
	flow  network.Flow // immutable
	last  atomic.Int64 // time of the last datagram in either direction: ns since Proxy.epoch

	mu      sync.Mutex
	way     filter.HostLease // guarded by mu; nil: the session has ended
	cluster string           // guarded by mu; cluster of way
	refused bool             // guarded by mu; nothing receives at the host's port
	moved   time.Duration    // guarded by mu; last attempt to change the host, since Proxy.epoch
}

// begin leases the first host of the session. It returns false, and counts the datagram as dropped,
// if there is no host.
func (s *session) begin(cfg *config.UDPProxy) bool {
	s.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	way, err := s.assign(cfg, nil)
	if err != nil {
		s.proxy.unassigned(cfg.Cluster, err)
		return false
	}
	s.way, s.cluster = way, cfg.Cluster
	return true
}

// assign leases a host and adds its socket to the poller. It returns now if the session should keep
// its host. s.mu is held.
func (s *session) assign(cfg *config.UDPProxy, now filter.HostLease) (filter.HostLease, error) {
	way, err := s.proxy.hosts.Assign(cfg.Cluster, hashOf(cfg, s.flow), now)
	if err != nil || way == now {
		return way, err
	}
	if err := s.proxy.poll.Add(way.Peer(), s); err != nil {
		way.End()
		return nil, err
	}
	return way, nil
}

func (s *session) touch() { s.last.Store(int64(s.proxy.now())) }

// send forwards a datagram of the source to the host.
func (s *session) send(b []byte) {
	s.touch()
	way := s.current()
	if way == nil {
		return // the session has just ended; UDP may lose datagrams
	}
	err := way.Peer().Send(b)
	if errors.Is(err, network.ErrConnRefused) { // caused by an earlier datagram
		s.refuse(err)
		if way = s.current(); way != nil {
			err = way.Peer().Send(b)
		}
	}
	counts := s.proxy.counts
	if err != nil {
		counts.ToHost.Add(1)
		return
	}
	counts.In.Add(1)
	counts.InBytes.Add(uint64(len(b)))
}

// movePause is how long a session keeps an unusable host before it looks for another one again.
const movePause = time.Second

// current returns the lease of the host, or nil if the session has ended. It leases another host if
// this one is no longer usable or the configured cluster has changed.
func (s *session) current() filter.HostLease {
	cfg := s.proxy.config.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.way == nil || s.cluster == cfg.Cluster && !s.refused && s.way.Usable() {
		return s.way
	}
	now := s.proxy.now()
	if s.moved != 0 && now-s.moved < movePause {
		return s.way
	}
	s.moved = now
	way, err := s.assign(cfg, s.way)
	if err != nil || way == s.way {
		return s.way // no better host is available
	}
	before := s.way
	s.way, s.cluster, s.refused = way, cfg.Cluster, false
	s.proxy.counts.Moved.Add(1)
	before.End()
	return way
}

// refuse records that nothing receives at the host's port.
func (s *session) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.way != nil && !s.refused {
		s.refused = true
		s.way.Heard(err)
	}
}

// turns is the maximum number of datagrams that one call of Readable receives, so that other hosts
// get their turn.
const turns = 32

// Readable implements network.ReadHandler. It forwards datagrams of the host to the source.
func (s *session) Readable(buffer []byte) {
	defer s.proxy.contain("relaying a datagram to the client")
	s.mu.Lock()
	way := s.way
	s.mu.Unlock()
	if way == nil {
		return
	}
	counts := s.proxy.counts
	for range turns {
		n, err := way.Peer().Receive(buffer)
		switch {
		case errors.Is(err, network.ErrWouldBlock), errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.refuse(err)
			continue
		}
		s.touch()
		way.Heard(nil)
		if err := s.proxy.socket.Send(buffer[:n], s.flow); err != nil {
			counts.ToCaller.Add(1)
			continue
		}
		counts.Out.Add(1)
		counts.OutBytes.Add(uint64(n))
	}
}

// end releases the host. Later datagrams of the session are dropped.
func (s *session) end() {
	defer s.proxy.contain("closing a UDP session")
	s.mu.Lock()
	defer s.mu.Unlock()
	if way := s.way; way != nil {
		s.way = nil
		way.End()
	}
}
