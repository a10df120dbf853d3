// Package udpproxy implements the udp_proxy network filter, which forwards datagrams between many
// sources and the hosts of a cluster. It does not interpret their payload.
//
//	Serve      receives datagrams of sources and finds their session    udpproxy.go
//	session    forwards them to its host, through its own socket        session.go
//	Readable   forwards datagrams of the host back to the source        session.go
//	sweep      ends idle sessions                                       udpproxy.go
//
// A listener has three goroutines, no matter how many sessions it has: one receives from sources,
// one receives from all hosts (network.Poller), and one sweeps. A session costs a map entry and a
// file descriptor.
package udpproxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Options holds the dependencies and the configuration of a Proxy.
type Options struct {
	Config config.UDPProxy
	Socket *network.PacketConn // the Proxy owns it once New succeeds
	Hosts  filter.HostLeaser
	Counts *filter.DatagramCounters
	Log    *slog.Logger
}

// Proxy implements filter.PacketServer.
type Proxy struct {
	socket *network.PacketConn      // immutable
	poller *network.Poller          // immutable
	hosts  filter.HostLeaser        // immutable
	counts *filter.DatagramCounters // immutable
	log    *slog.Logger             // immutable
	epoch  time.Time                // immutable; times are relative to it

	config      atomic.Pointer[config.UDPProxy]
	serving     atomic.Bool
	draining    atomic.Bool
	lastWarning atomic.Int64 // time of the last log entry about a session without a host: ns since epoch

	wake  chan struct{}  // buffered, capacity 1; wakes sweep
	quit  chan struct{}  // closed when the goroutines of Serve must end
	tasks sync.WaitGroup // goroutines of Serve

	mu       sync.Mutex
	sessions map[network.Flow]*session // guarded by mu
	closed   bool                      // guarded by mu: no session can begin
	drained  chan struct{}             // guarded by mu: closed once there are no sessions and none can begin
}

// New returns a proxy that is ready for Serve. It fails if the system has no file descriptors left;
// the caller then still owns the socket.
func New(o Options) (*Proxy, error) {
	poller, err := network.NewPoller()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		socket: o.Socket, poller: poller, hosts: o.Hosts, counts: o.Counts, log: o.Log, epoch: time.Now(),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), drained: make(chan struct{}),
		sessions: make(map[network.Flow]*session),
	}
	p.config.Store(&o.Config)
	return p, nil
}

func (p *Proxy) now() time.Duration { return time.Since(p.epoch) }

// UpdateConfig implements filter.PacketServer. If the cluster changes, each session tries to move
// when its source sends the next datagram.
func (p *Proxy) UpdateConfig(cfg config.UDPProxy) {
	p.config.Store(&cfg)
	p.sweepSoon()
}

// Sessions implements filter.PacketServer.
func (p *Proxy) Sessions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

// Serve implements filter.PacketServer. The caller calls it once.
func (p *Proxy) Serve() error {
	p.serving.Store(true)
	p.tasks.Go(func() {
		if err := p.poller.Run(); err != nil {
			p.log.Error("udp_proxy: polling the host sockets failed, datagrams from hosts are no longer relayed", "error", err)
		}
	})
	p.tasks.Go(p.sweep)
	err := p.receive()
	p.endAll()
	close(p.quit)
	_ = p.poller.Close() // Run reports the error
	p.tasks.Wait()
	return err
}

// receive forwards datagrams of sources until the socket is closed.
func (p *Proxy) receive() error {
	buffer := make([]byte, network.MaxDatagram)
	failures := 0
	for {
		n, flow, err := p.socket.Receive(buffer)
		switch {
		case err == nil:
			failures = 0
		case errors.Is(err, net.ErrClosed):
			return nil
		case failures == maxReceiveFailures:
			return err
		default: // an error of an earlier datagram, or the kernel is out of memory
			failures++
			continue
		}
		p.forward(buffer[:n], flow)
	}
}

// forward forwards a datagram of a source.
func (p *Proxy) forward(b []byte, flow network.Flow) {
	defer p.recoverPanic("relaying a datagram to a host")
	if s := p.getOrCreateSession(flow); s != nil {
		s.send(b)
	}
}

// recoverPanic recovers a panic and logs it, because all sessions share the goroutine. Callers
// defer it.
func (p *Proxy) recoverPanic(action string) {
	if v := recover(); v != nil {
		protocol.NewPanic(v).Log(p.log, action)
	}
}

// maxReceiveFailures is the number of consecutive receive errors that Serve ignores. It returns the
// next one.
const maxReceiveFailures = 1000

// getOrCreateSession returns the session of a flow, or a new one if there is none. If no session
// can begin, it counts the datagram as dropped and returns nil.
func (p *Proxy) getOrCreateSession(flow network.Flow) *session {
	cfg := p.config.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[flow]; s != nil {
		return s
	}
	switch {
	case p.closed || p.draining.Load():
		p.counts.DroppedDraining.Add(1)
		return nil
	case len(p.sessions) >= cfg.MaxSessions:
		p.counts.DroppedMaxSessions.Add(1)
		return nil
	}
	s := &session{proxy: p, flow: flow}
	if !s.leaseFirstHost(cfg) {
		return nil
	}
	p.sessions[flow] = s
	p.counts.SessionsOpened.Add(1)
	return s
}

// hashOf returns the hash that selects a host for the flow; 0: the source is not hashed.
func hashOf(cfg *config.UDPProxy, flow network.Flow) uint64 {
	if !cfg.HashSourceIP {
		return 0
	}
	ip := flow.Source.Addr().Unmap().As16()
	return max(hash.String(string(ip[:])), 1)
}

// recordNoHost counts the datagram of a session that got no host as dropped. It logs at most once
// per warnInterval.
func (p *Proxy) recordNoHost(cluster string, err error) {
	p.counts.DroppedNoHost.Add(1)
	now := p.now()
	if lastWarning := p.lastWarning.Load(); (lastWarning == 0 || now-time.Duration(lastWarning) > warnInterval) && p.lastWarning.CompareAndSwap(lastWarning, int64(now)) {
		p.log.Warn("udp_proxy: no host for a session", "cluster", cluster, "error", err)
	}
}

// warnInterval is the minimum time between two log entries about sessions without a host.
const warnInterval = 10 * time.Second

// The sweep interval is a quarter of the idle timeout, within these bounds. While the listener
// drains, drainIdleTimeout is the maximum idle timeout.
const (
	minSweepInterval = 10 * time.Millisecond
	maxSweepInterval = 5 * time.Second
	drainIdleTimeout = time.Second
)

// idleTimeout returns the current idle timeout of sessions.
func (p *Proxy) idleTimeout() time.Duration {
	timeout := p.config.Load().IdleTimeout
	if p.draining.Load() {
		timeout = min(timeout, drainIdleTimeout)
	}
	return timeout
}

// sweep ends idle sessions until quit is closed.
func (p *Proxy) sweep() {
	for {
		timer := time.NewTimer(min(max(p.idleTimeout()/4, minSweepInterval), maxSweepInterval))
		select {
		case <-timer.C:
		case <-p.wake:
			timer.Stop()
		case <-p.quit:
			timer.Stop()
			return
		}
		p.endIdle(p.idleTimeout())
	}
}

func (p *Proxy) sweepSoon() {
	select {
	case p.wake <- struct{}{}:
	default: // a sweep is already pending
	}
}

// endIdle ends the sessions that have been idle for at least timeout.
func (p *Proxy) endIdle(timeout time.Duration) {
	cutoff := p.now() - timeout
	p.mu.Lock()
	var idle []*session
	for flow, s := range p.sessions {
		if time.Duration(s.lastActivity.Load()) <= cutoff {
			idle = append(idle, s)
			delete(p.sessions, flow)
		}
	}
	p.closeIfDrained()
	p.mu.Unlock()
	for _, s := range idle {
		s.end()
	}
}

// endAll ends every session, prevents new ones, and returns how many it ended.
func (p *Proxy) endAll() int {
	p.mu.Lock()
	p.closed = true
	sessions := p.sessions
	p.sessions = make(map[network.Flow]*session)
	p.closeIfDrained()
	p.mu.Unlock()
	for _, s := range sessions {
		s.end()
	}
	return len(sessions)
}

// closeIfDrained closes p.drained once there are no sessions and none can begin. The caller holds
// p.mu.
func (p *Proxy) closeIfDrained() {
	if len(p.sessions) > 0 || !p.closed && !p.draining.Load() {
		return
	}
	select {
	case <-p.drained:
	default:
		close(p.drained)
	}
}

// Drain implements filter.PacketServer.
func (p *Proxy) Drain(ctx context.Context) (forceClosed int) {
	p.draining.Store(true)
	p.sweepSoon()
	p.endIdle(drainIdleTimeout) // also works if Serve does not run
	select {
	case <-p.drained:
	case <-ctx.Done():
	}
	forceClosed = p.endAll()
	_ = p.socket.Close() // ends Serve
	if !p.serving.Load() {
		_ = p.poller.Close() // Serve, which closes the poller when it ends, does not run
	}
	return forceClosed
}
