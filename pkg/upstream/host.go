package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// Host is one address of a cluster. The address is its identity: health,
// connections and counts stay when its weight, hostname or metadata change, and
// go when no host of that address is left in the cluster. Safe for concurrent
// use.
type Host struct {
	cluster *Cluster // immutable
	address string   // immutable

	entry  atomic.Pointer[config.Host] // how it is configured now
	load   balance.Load                // exchanges in flight, from pick to the end of the answer
	health health
	ledger ledger[Account]

	attempts        atomic.Uint64
	failures        atomic.Uint64 // attempts that brought no answer
	connects        atomic.Uint64
	connectFailures atomic.Uint64

	lanes atomic.Pointer[lane] // one for each protocol in use, linked by lane.next

	mu      sync.Mutex // for changing lanes, opening and closing the ledger
	retired bool       // guarded by mu: new pools are born closed
}

func newHost(c *Cluster, entry *config.Host) *Host {
	h := &Host{cluster: c, address: entry.Address}
	h.entry.Store(entry)
	return h
}

// Name returns the address.
func (h *Host) Name() string { return h.address }

// Cluster returns the cluster that the host belongs to.
func (h *Host) Cluster() *Cluster { return h.cluster }

// Config returns how the host is configured; not to be changed. In a cluster
// with discovery the address is the one that was found.
func (h *Host) Config() *config.Host { return h.entry.Load() }

// InFlight returns the number of exchanges that the host has now.
func (h *Host) InFlight() int64 { return h.load.InFlight() }

// Add accounts for exchanges whose answers, or failures, came from the host.
func (h *Host) Add(s metrics.Sum) { h.ledger.add(s) }

// lane is a protocol spoken to a host. Immutable.
type lane struct {
	protocol config.Protocol
	mode     config.PoolMode // as configured when it was made
	pool     pool
	next     *lane
}

// pool returns the pool of connections that speak a protocol, nil if nothing
// connects with it. It is replaced when the cluster asks for another mode.
func (h *Host) pool(name config.Protocol, mode config.PoolMode) pool {
	for l := h.lanes.Load(); l != nil; l = l.next {
		if l.protocol == name && l.mode == mode {
			return l.pool
		}
	}
	return h.open(name, mode)
}

// open makes a lane, in the place of one of another mode.
func (h *Host) open(name config.Protocol, mode config.PoolMode) pool {
	connector := h.cluster.env.Connectors[name]
	if connector == nil {
		return nil
	}
	h.mu.Lock()
	h.openAccount()
	var others *lane
	var old pool
	for l := h.lanes.Load(); l != nil; l = l.next {
		switch {
		case l.protocol != name:
			others = &lane{l.protocol, l.mode, l.pool, others}
		case l.mode == mode: // another exchange was here first
			h.mu.Unlock()
			return l.pool
		default:
			old = l.pool
		}
	}
	p := newPool(base{host: h, connector: connector, open: new(atomic.Int64)}, mode, h.retired)
	h.lanes.Store(&lane{name, mode, p, others})
	h.mu.Unlock()
	if old != nil {
		old.close()
	}
	return p
}

// openAccount is called with h.mu held.
func (h *Host) openAccount() {
	if meter := h.cluster.env.Meter; meter != nil && !h.retired {
		h.ledger.open(func() Account { return meter.Host(h.cluster.name, h.address) })
	}
}

// retire ends the host: idle connections close now, those in use when their
// exchange ends. Exchanges that picked the host before are still served.
func (h *Host) retire() {
	h.mu.Lock()
	h.retired = true
	h.ledger.close()
	first := h.lanes.Load()
	h.mu.Unlock()
	for l := first; l != nil; l = l.next {
		l.pool.close()
	}
}

// countFailed counts a connection that could not be opened.
func (h *Host) countFailed() {
	h.connectFailures.Add(1)
	h.cluster.count(ConnectFailed)
}

// connectFailed takes note that a connection could not be opened.
func (h *Host) connectFailed(err error) {
	c := h.cluster
	h.countFailed()
	if pause, down := h.health.failed(c.env.now(), c.env.random()); down {
		c.count(HostDown)
		c.env.Log.Warn("upstream host down", logCluster, c.name, logHost, h.address, logPause, pause, logError, err)
	}
}

// connected takes note that a connection was opened.
func (h *Host) connected() {
	h.connects.Add(1)
	h.cluster.count(ConnectionOpened)
	h.answered()
}

// answered takes note that the host is alive: it took a connection or answered.
func (h *Host) answered() {
	if h.health.up() {
		return
	}
	if h.health.succeeded() {
		h.cluster.count(HostUp)
		h.cluster.env.Log.Info("upstream host up", logCluster, h.cluster.name, logHost, h.address)
	}
}

// Keys of log attributes.
const (
	logCluster = "cluster"
	logHost    = "host"
	logPause   = "pause"
	logError   = "error"
)

// health is whether connecting to a host works.
//
//	    connect fails           pause over           claimed
//	up ───────────────▶ down ───────────────▶ due ──────────────▶ on trial
//	▲                    ▲ connect fails: twice the pause │          │ │
//	│                    └────────────────────────────────┴──────────┘ │
//	└──────────────────────────────────────────────────────────────────┘
//	      connect succeeds, or the host answers on a connection it had
//
// One exchange at a time tries a host that is due; the others go elsewhere
// meanwhile. A trial that comes to no result is due again after a while. The
// zero value is up.
type health struct {
	// notBefore is 0 for up, else the time, in ns of the set's clock, from which
	// the host is due. Claiming a trial moves it on.
	notBefore atomic.Int64

	mu       sync.Mutex
	failures int           // guarded by mu; connects that failed in a row, one counted per pause
	until    time.Duration // guarded by mu; end of the pause that the last of them began
}

// The first pause is about as long as an application takes to restart its
// listener; the last bounds how late a host is found alive again.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

func (s *health) up() bool { return s.notBefore.Load() == 0 }

// due reports whether the host is down and its pause is over.
func (s *health) due(now time.Duration) bool {
	from := s.notBefore.Load()
	return from != 0 && from <= int64(now)
}

// claim makes the caller the one that tries a host that is due; for so long
// nobody else may.
func (s *health) claim(now, trial time.Duration) bool {
	from := s.notBefore.Load()
	return from != 0 && from <= int64(now) && s.notBefore.CompareAndSwap(from, int64(now+trial))
}

// failed takes note of a failed connect. It returns the pause that begins, and
// whether the host was up before. Failures during a pause say nothing new:
// fifty exchanges that meet a dead host at once must not make the pause fifty
// steps longer.
func (s *health) failed(now time.Duration, random uint64) (pause time.Duration, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 && now < s.until {
		return 0, false
	}
	pause = lastPause
	if s.failures < 7 { // 100 ms doubled seven times is above 10 s
		pause = firstPause << s.failures
	}
	// Up to a quarter less, so that the proxies of a fleet do not knock together.
	pause -= time.Duration(random % uint64(pause/4))
	s.failures++
	s.until = now + pause
	s.notBefore.Store(int64(s.until))
	return pause, s.failures == 1
}

// succeeded makes the host up and reports whether it was not.
func (s *health) succeeded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.failures > 0
	s.failures = 0
	s.notBefore.Store(0)
	return was
}
