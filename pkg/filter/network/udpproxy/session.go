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

// session is all between one source and one address of the listener, and its host. It
// stays with its host while that is usable.
type session struct {
	proxy *Proxy       // immutable
	flow  network.Flow // immutable
	last  atomic.Int64 // when a datagram went either way: ns since Proxy.epoch

	mu      sync.Mutex
	way     filter.HostLease // guarded by mu; nil: over
	cluster string           // guarded by mu; that way leads to
	refused bool             // guarded by mu; the host has no socket on its port
	moved   time.Duration    // guarded by mu; when it was tried to change the host last
}

// begin gives the session its first host; false if there is none, which was counted.
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

// assign finds a host and has its answers told; it returns now if that leads to the
// host. s.mu is held.
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

// send passes a datagram of the source on.
func (s *session) send(b []byte) {
	s.touch()
	way := s.current()
	if way == nil {
		return // the session has just ended: datagrams may be lost
	}
	err := way.Peer().Send(b)
	if errors.Is(err, network.ErrConnRefused) { // that is what the kernel heard of one before
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

// movePause is how long a session stays with a host that is not usable when it was
// found that there is no better one.
const movePause = time.Second

// current returns the way to the host, another one if that is not usable any more or
// is not of the cluster in force; nil if the session is over.
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
		return s.way // there is no better one
	}
	before := s.way
	s.way, s.cluster, s.refused = way, cfg.Cluster, false
	s.proxy.counts.Moved.Add(1)
	before.End()
	return way
}

// refuse takes note that nobody receives at the host.
func (s *session) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.way != nil && !s.refused {
		s.refused = true
		s.way.Heard(err)
	}
}

// turns is how many datagrams of one host are passed on before others have a turn.
const turns = 32

// Readable is network.Readable's: it passes what the host sent on to the source.
func (s *session) Readable(buffer []byte) {
	defer s.proxy.contain("passing a datagram to its source")
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

// end gives the host back.
func (s *session) end() {
	defer s.proxy.contain("ending a session of datagrams")
	s.mu.Lock()
	defer s.mu.Unlock()
	if way := s.way; way != nil {
		s.way = nil
		way.End()
	}
}
