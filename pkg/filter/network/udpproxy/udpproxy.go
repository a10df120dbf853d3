// Package udpproxy owns the udp_proxy network filter: datagrams between many sources
// and hosts of a cluster, whatever they mean.
//
//	Serve      a source's datagram: its session, or a new one     udpproxy.go
//	session    to its host, by a socket of its own                session.go
//	Readable   the host's datagrams, back to the source           session.go
//	sweep      sessions that are silent                           udpproxy.go
//
// A listener has three goroutines however many sessions there are: one receives from
// sources, one from all hosts (network.Poll), one sweeps. A session is an entry of a
// map and a descriptor.
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

// Options are what a Proxy needs of the rest of the process.
type Options struct {
	Config config.UDPProxy
	Socket *network.PacketConn // becomes the Proxy's
	Hosts  filter.HostLeaser
	Counts *filter.DatagramCounts
	Log    *slog.Logger
}

// Proxy is a filter.PacketServer.
type Proxy struct {
	socket *network.PacketConn    // immutable
	poll   *network.Poller        // immutable
	hosts  filter.HostLeaser      // immutable
	counts *filter.DatagramCounts // immutable
	log    *slog.Logger           // immutable
	epoch  time.Time              // immutable; of session.last

	config   atomic.Pointer[config.UDPProxy]
	serving  atomic.Bool
	draining atomic.Bool
	complain atomic.Int64 // when a failure to give a session its host was logged last, as session.last

	wake  chan struct{}  // has room for one: sweep at once
	quit  chan struct{}  // closed: nothing is to run any more
	tasks sync.WaitGroup // of Serve

	mu       sync.Mutex
	sessions map[network.Flow]*session // guarded by mu
	closed   bool                      // guarded by mu: no session may begin
	empty    chan struct{}             // guarded by mu: closed once there is no session and none may begin
}

// New returns a proxy that serves once Serve is called. An error is the system's, for
// want of descriptors; then the socket stays the caller's.
func New(o Options) (*Proxy, error) {
	poll, err := network.NewPoller()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		socket: o.Socket, poll: poll, hosts: o.Hosts, counts: o.Counts, log: o.Log, epoch: time.Now(),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), empty: make(chan struct{}),
		sessions: make(map[network.Flow]*session),
	}
	p.config.Store(&o.Config)
	return p, nil
}

func (p *Proxy) now() time.Duration { return time.Since(p.epoch) }

// Change is filter.PacketServer's. A session of another cluster than the new one moves
// with its next datagram.
func (p *Proxy) Change(cfg config.UDPProxy) {
	p.config.Store(&cfg)
	p.sweepSoon()
}

// Sessions is filter.PacketServer's.
func (p *Proxy) Sessions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

// Serve is filter.PacketServer's. It is called once.
func (p *Proxy) Serve() error {
	p.serving.Store(true)
	p.tasks.Go(func() {
		if err := p.poll.Run(); err != nil {
			p.log.Error("udp_proxy: nothing comes back from hosts any more", "error", err)
		}
	})
	p.tasks.Go(p.sweep)
	err := p.receive()
	p.endAll()
	close(p.quit)
	_ = p.poll.Close() // Run tells
	p.tasks.Wait()
	return err
}

// receive passes datagrams of sources on, until the socket is closed.
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
		case failures == mostFailures:
			return err
		default: // an error of a datagram that was sent, or a want of memory
			failures++
			continue
		}
		p.pass(buffer[:n], flow)
	}
}

// pass passes a datagram of a source on.
func (p *Proxy) pass(b []byte, flow network.Flow) {
	defer p.contain("passing a datagram to a host")
	if s := p.session(flow); s != nil {
		s.send(b)
	}
}

// contain is deferred by what must not end its goroutine, which all sessions share.
func (p *Proxy) contain(doing string) {
	if v := recover(); v != nil {
		protocol.NewPanic(v).Log(p.log, doing)
	}
}

// mostFailures is how often in a row receiving may fail before the socket is given up.
const mostFailures = 1000

// session returns the session of a flow, a new one if there is none; nil if it cannot
// have one, which was counted.
func (p *Proxy) session(flow network.Flow) *session {
	cfg := p.config.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[flow]; s != nil {
		return s
	}
	switch {
	case p.closed || p.draining.Load():
		p.counts.Draining.Add(1)
		return nil
	case len(p.sessions) >= cfg.MaxSessions:
		p.counts.MaxSessions.Add(1)
		return nil
	}
	s := &session{proxy: p, flow: flow}
	if !s.begin(cfg) {
		return nil
	}
	p.sessions[flow] = s
	p.counts.Opened.Add(1)
	return s
}

// hashOf is what the hosts of a flow's session are chosen by; 0: nothing.
func hashOf(cfg *config.UDPProxy, flow network.Flow) uint64 {
	if !cfg.HashSource {
		return 0
	}
	ip := flow.Source.Addr().Unmap().As16()
	return max(hash.String(string(ip[:])), 1)
}

// unassigned takes note that no host could be given to a session.
func (p *Proxy) unassigned(cluster string, err error) {
	p.counts.NoHost.Add(1)
	now := p.now()
	if last := p.complain.Load(); (last == 0 || now-time.Duration(last) > quiet) && p.complain.CompareAndSwap(last, int64(now)) {
		p.log.Warn("udp_proxy: no host for a session", "cluster", cluster, "error", err)
	}
}

// quiet is how long nothing more is said of what happens again and again.
const quiet = 10 * time.Second

// How often sessions are looked at: four times in the time that they may be silent, so
// that they end at most a quarter late; and while the listener drains, when sessions
// end that are silent for drainSilence.
const (
	leastSweep   = 10 * time.Millisecond
	mostSweep    = 5 * time.Second
	drainSilence = time.Second
)

// patience returns how long sessions may be silent now.
func (p *Proxy) patience() time.Duration {
	idle := p.config.Load().IdleTimeout
	if p.draining.Load() {
		idle = min(idle, drainSilence)
	}
	return idle
}

// sweep ends sessions that are silent, until quit.
func (p *Proxy) sweep() {
	for {
		timer := time.NewTimer(min(max(p.patience()/4, leastSweep), mostSweep))
		select {
		case <-timer.C:
		case <-p.wake:
			timer.Stop()
		case <-p.quit:
			timer.Stop()
			return
		}
		p.endSilent(p.patience())
	}
}

func (p *Proxy) sweepSoon() {
	select {
	case p.wake <- struct{}{}:
	default: // it will, already
	}
}

// endSilent ends the sessions that have been silent for so long.
func (p *Proxy) endSilent(patience time.Duration) {
	since := p.now() - patience
	p.mu.Lock()
	var silent []*session
	for flow, s := range p.sessions {
		if time.Duration(s.last.Load()) <= since {
			silent = append(silent, s)
			delete(p.sessions, flow)
		}
	}
	p.checkEmpty()
	p.mu.Unlock()
	for _, s := range silent {
		s.end()
	}
}

// endAll ends every session, lets none begin any more, and returns how many that were.
func (p *Proxy) endAll() int {
	p.mu.Lock()
	p.closed = true
	all := p.sessions
	p.sessions = make(map[network.Flow]*session)
	p.checkEmpty()
	p.mu.Unlock()
	for _, s := range all {
		s.end()
	}
	return len(all)
}

// checkEmpty closes empty when it is time. p.mu is held.
func (p *Proxy) checkEmpty() {
	if len(p.sessions) > 0 || !p.closed && !p.draining.Load() {
		return
	}
	select {
	case <-p.empty:
	default:
		close(p.empty)
	}
}

// Drain is filter.PacketServer's.
func (p *Proxy) Drain(ctx context.Context) (cut int) {
	p.draining.Store(true)
	p.sweepSoon()
	p.endSilent(drainSilence) // also if Serve does not run
	select {
	case <-p.empty:
	case <-ctx.Done():
	}
	cut = p.endAll()
	_ = p.socket.Close() // ends Serve
	if !p.serving.Load() {
		_ = p.poll.Close() // nothing was told by it
	}
	return cut
}
