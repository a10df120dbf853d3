package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/demand"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/health"
)

// Cluster is a set of hosts that answer the same requests. It is a cell: there
// is one per name for as long as anybody refers to it, whether it is configured
// at the moment or not, so that it does not matter whether a route or its
// cluster arrives first. Safe for concurrent use.
type Cluster struct {
	name  string // immutable
	env   *env   // immutable
	state atomic.Pointer[state]

	breakers [config.Priorities]Breaker
	ledger   lazyRecorder[ClusterRecorder]
	era      atomic.Int64 // how often it has left the configuration; its accounts are of one era each

	drops     drops
	overflows atomic.Uint64 // exchanges and retries that were refused
	refusals  atomic.Uint64 // of these, the exchanges
	resent    atomic.Uint64
	observed  atomic.Int64 // when a latency was observed last: ns of the set's clock
	onDemand  demand.Item  // its hosts, if they are on demand

	told *clusterCounts // the Loads's: what was reported; nil: nothing

	mu      sync.Mutex       // for replacing state, opening and closing the ledger
	outlier *outlierDetector // guarded by mu; nil: outliers are not looked for
}

// env is what the clusters of a set share. Immutable but for what mu guards.
type env struct {
	Options
	epoch  time.Time
	checks *health.Scheduler
	desk   *demand.Desk // where hosts are asked for, by cluster
	own    selfConns
	loads  atomic.Pointer[LoadReporter] // nil: nobody asks
	tasks  sync.WaitGroup               // timers that are armed or running, and goroutines
	ctx    context.Context              //nolint:containedctx // of connects that no exchange owns: it ends with the set
	end    context.CancelFunc

	mu     sync.Mutex
	closed bool // guarded by mu; nothing is added to tasks any more
}

// contain runs f, which a timer calls. Its panic is logged and does not end the process.
func (e *env) contain(when string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			protocol.NewPanic(p).Log(e.Log, when)
		}
	}()
	f()
}

// start runs f on a goroutine that Close waits for. An exchange that outlives
// the set may start one yet: it waits for that itself, and not for long, because
// ctx has ended.
func (e *env) start(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		go f()
		return
	}
	e.tasks.Go(f)
}

// close ends ctx and waits for the tasks. Every pool is closed, so that no timer
// is armed any more.
func (e *env) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.checks.Close()
	e.tasks.Wait()
}

// now reads the clock of the set: the time since it was made. It is the only
// clock of hosts and pools, and cheaper than time.Now.
func (e *env) now() time.Duration { return time.Since(e.epoch) }

func (*env) random() uint64 { return rand.Uint64() }

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Add accounts for exchanges that entered the cluster.
func (c *Cluster) Add(s metrics.Sum) { c.ledger.add(s) }

// Config returns the configuration in force, not to be changed; nil if the
// cluster is not configured.
func (c *Cluster) Config() *config.Cluster {
	if s := c.state.Load(); s != nil && !s.removed {
		return s.config
	}
	return nil
}

// Hashes reports whether the hosts are chosen by the hash that an exchange brings.
func (c *Cluster) Hashes() bool {
	s := c.state.Load()
	return s != nil && s.config.Policy.Hashes()
}

// ClusterPicker is a way into a cluster: the service that a route ends with. Its fields
// are set before the first use.
type ClusterPicker struct {
	Cluster *Cluster
	// Protocol is spoken to the hosts, whatever the cluster says; "" and Auto: what the
	// cluster says.
	Protocol config.Protocol
	// Fallback is spoken if that says nothing either; "" and Auto: the caller's.
	Fallback config.Protocol
	// Priority says which of the cluster's limits exchanges are held to.
	Priority config.Priority
	// Labels choose a subset of the hosts, with those that filters gave the exchange;
	// nil: none.
	Labels *Labels
	// OnHostSelected, if not nil, is called before each attempt, when its host is known
	// and in x.Record: it may change the request to suit the host.
	OnHostSelected func(x *protocol.Exchange, h *Host)
}

// Serve sends x to one of the cluster's hosts. A host that cannot be connected to
// costs no more than the failed connect: the exchange goes on to the next one,
// each host once, until x.Until. Hosts that x.Record.Attempts lists already are
// used only if there is no other; each attempt is appended to it. What came after
// the request was sent is returned as it is: whether to try that again is for
// Retry to say.
//
// Errors are Faults: NoCluster (not configured), Overflow (a breaker), Dropped,
// NotImplemented (x cannot be said in what the hosts speak), NoHealthyHost (no host at
// all), NotSupplied (nobody has said which hosts there are), what the last attempt failed
// with, or UpstreamTimeout and DownstreamGone while
// it waited for a connection.
func (v *ClusterPicker) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, v, x)
}

// Start is protocol.AsyncService's: it sends x to the first host.
func (v *ClusterPicker) Start(ctx context.Context, x *protocol.Exchange) error {
	c := v.Cluster
	x.Record.Cluster = c
	s, err := c.Breaker(v.Priority).admit()
	if err != nil {
		return err
	}
	if c.mustWait(s) {
		return x.RunBlocking(ctx, waitForHosts{v})
	}
	if len(s.config.Drops) > 0 && len(x.Record.Attempts) == 0 {
		if err := c.drop(s.config); err != nil {
			return err
		}
	}
	p, err := v.choose(s, x, len(x.Record.Attempts))
	if err != nil {
		return err
	}
	x.PushFinisher(v)
	return p.Start(ctx, x)
}

// Finish is protocol.Finisher's.
func (v *ClusterPicker) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	more, err := v.tried(x, err)
	if more {
		return x.RunBlocking(ctx, &remainingHosts{v, len(x.Record.Attempts) - 1, err})
	}
	return err
}

// remainingHosts are the hosts to try after the first: those that there are now. A cluster
// that was removed meanwhile has none.
type remainingHosts struct {
	*ClusterPicker
	first int   // attempt
	err   error // of the first
}

// Serve is protocol.Service's.
func (o *remainingHosts) Serve(ctx context.Context, x *protocol.Exchange) error {
	s := o.Cluster.state.Load()
	err := o.err
	for {
		p, none := o.choose(s, x, o.first)
		if none != nil {
			return err
		}
		var more bool
		if more, err = o.tried(x, p.Serve(ctx, x)); !more {
			return err
		}
	}
}

// choose picks a host for x that none of the attempts from first on was made at,
// and returns the pool of connections to it. The host then counts x as in flight, until
// a connection releases x or the pool returns a notSent error. If choose panics nothing
// is counted.
func (v *ClusterPicker) choose(s *state, x *protocol.Exchange, first int) (pool, error) {
	c := v.Cluster
	name, err := v.upstreamProtocol(s.config, x)
	if err != nil {
		return nil, err
	}
	h, err := v.host(s, x, first)
	if err != nil {
		return nil, err
	}
	if err := c.checkShared(s.config); err != nil {
		return nil, err
	}
	p := h.pool(name, s.config.Pool.Mode, v.Priority)
	if p == nil {
		return nil, protocol.Faultf(protocol.Internal, "cluster %s: no connector speaks %q", c.name, name)
	}
	x.Record.BeginAttempt(h)
	if v.OnHostSelected != nil {
		v.OnHostSelected(x, h)
	}
	h.load.Begin() // before it is counted: what is counted and not in flight has ended
	h.attempts.Add(1)
	return p, nil
}

// tried takes note of how the last attempt went, and reports whether another host
// is to be tried.
func (v *ClusterPicker) tried(x *protocol.Exchange, err error) (more bool, result error) {
	a := &x.Record.Attempts[len(x.Record.Attempts)-1]
	h, _ := a.Host.(*Host)
	h.judge(x, err)
	if err == nil {
		h.observe(x, nil)
		a.Status = x.Response.Status
		if a.Status >= serverFailed {
			h.bad.Add(1)
		}
		return false, nil
	}
	a.Reason = protocol.ReasonOf(err)
	if a.Reason == protocol.ReasonDownstreamDisconnect { // that says nothing of the host
		h.cancelled.Add(1)
		v.Cluster.count(AttemptCancelled)
	} else {
		h.failures.Add(1)
		if a.Reason == protocol.Overflow {
			h.unsent.Add(1)
		}
	}
	kept, ok := errors.AsType[*notSent](err)
	if !ok {
		h.observe(x, err)
		return false, err
	}
	h.load.End()
	if goesOn(kept.err) && !expired(x.EffectiveDeadline()) {
		return true, kept.err
	}
	return false, kept.err
}

// goesOn reports whether err is of a kind that another host may not have: the
// connection could not be opened.
func goesOn(err error) bool {
	reason := protocol.ReasonOf(err)
	return reason == protocol.ConnectFailure || reason == protocol.ConnectTimeout || errors.Is(err, errFull)
}

func expired(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// admit returns the state to serve an exchange with. It counts nothing: an exchange is
// counted once it waits for a connection or has one.
func (b *Breaker) admit() (*state, error) {
	c := b.cluster
	s := c.state.Load()
	if s == nil || s.removed {
		return nil, protocol.Faultf(protocol.NoCluster, "cluster %s is not configured", c.name)
	}
	if c.env.Meter != nil && c.ledger.account.Load() == nil {
		c.openAccount()
	}
	if err := b.connectable(s.config); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *Cluster) openAccount() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.state.Load(); !s.removed {
		c.ledger.open(func() ClusterRecorder { return c.env.Meter.Cluster(c.name, c) })
	}
}

// publish adds one to count unless that makes it larger than limit, one of config.Breakers.
func publish(count *atomic.Int64, limit int) bool {
	if limit == 0 {
		count.Add(1)
		return true
	}
	for {
		n := count.Load()
		if n >= int64(limit) {
			return false
		}
		if count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// count counts an event, if the cluster has an account.
func (c *Cluster) count(e Event) {
	if a, ok := c.ledger.get(); ok {
		a.Count(e)
	}
}

// Count counts an event that services before the cluster know of.
func (c *Cluster) Count(e Event) { c.count(e) }

// settings returns the configuration that pools go by: the last that the
// cluster had. Connections outlive it, the exchanges on them end by it.
func (c *Cluster) settings() *config.Cluster { return c.state.Load().config }
