package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/demand"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/health"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
	"github.com/weft-proxy/weft/pkg/upstream/tasks"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// Cluster is a set of hosts that serve the same requests. There is one Cluster per name for as long
// as anything refers to it, even if it is not configured: a route and its cluster may arrive in any
// order. Safe for concurrent use.
type Cluster struct {
	name  string // immutable
	env   *env   // immutable
	state atomic.Pointer[state]
	// config is the last configuration, which stays when the cluster is removed: connections and
	// their exchanges outlive the removal and still need it. It is stored just before state.
	config atomic.Pointer[config.Cluster]

	breakers   [config.NumPriorities]breaker.Breaker
	recorder   lazyRecorder[ClusterRecorder]
	generation atomic.Int64 // how often the cluster was removed from the configuration; recorders belong to one generation

	drops             dropCounts
	destOverflows     atomic.Uint64 // exchanges that were rejected because there are too many original destinations
	resent            atomic.Uint64
	latencyObservedAt atomic.Int64 // time of the last observed latency, as nanoseconds of env.now
	panicLogged       atomic.Bool  // the log says that the cluster is in panic
	onDemand          demand.Item  // use of the cluster, and the exchanges that wait for on-demand hosts

	reportedCounts *clusterCounts // owned by the LoadReporter: counts that were reported; nil: none

	mu      sync.Mutex        // held to replace state, and to open or close the recorder
	outlier *outlierDetection // guarded by mu; nil: no outlier detection
}

// env holds what the clusters of a set share.
type env struct {
	Options
	checks       *health.Scheduler
	hostRequests *demand.RequestQueue // clusters whose on-demand hosts were requested
	selfConns    selfConns
	loadReporter atomic.Pointer[LoadReporter] // nil: nothing collects load reports
	tasks        *tasks.Group
	findOrCreate func(name string) *Cluster // Set.Get
}

// close ends the tasks and the checks, and waits for them. The caller has closed every pool, so
// nothing arms a timer any more.
func (e *env) close() {
	e.tasks.Close()
	e.checks.Close()
	e.tasks.Wait()
}

// now returns the time of the set's clock: the time since the set was created.
func (e *env) now() time.Duration { return e.tasks.Now() }

func (*env) random() uint64 { return rand.Uint64() }

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Add records the exchanges of b, which entered the cluster, in the cluster's metrics.
func (c *Cluster) Add(b metrics.Batch) { c.recorder.add(b) }

// Config returns the active configuration, or nil if the cluster is not configured. The caller must
// not change it.
func (c *Cluster) Config() *config.Cluster {
	if s := c.state.Load(); s != nil && !s.removed {
		return s.config
	}
	return nil
}

// Hashes reports whether the policy picks hosts by the hash of an exchange.
func (c *Cluster) Hashes() bool {
	s := c.state.Load()
	if s != nil && s.aggregate != nil {
		return slices.ContainsFunc(s.aggregate.members, func(m *Cluster) bool {
			member := m.state.Load()
			return member != nil && member.config.LBPolicy.UsesHash()
		})
	}
	return s != nil && s.config.LBPolicy.UsesHash()
}

// ClusterPicker is the service at the end of a route: it sends exchanges to a cluster. Its fields
// are set before the first use.
type ClusterPicker struct {
	Cluster *Cluster
	// Protocol is the upstream protocol. "" and Auto mean the protocol of the cluster.
	Protocol config.Protocol
	// FallbackProtocol is the upstream protocol if Protocol and the cluster set none. "" and Auto
	// mean the downstream protocol.
	FallbackProtocol config.Protocol
	// Priority selects the circuit breakers that limit the exchanges.
	Priority config.Priority
	// Labels select a subset of the hosts, together with the labels that filters set on the
	// exchange; nil: none.
	Labels *subset.Labels
	// OnHostSelected, if not nil, runs before each attempt, when x.Record already contains the
	// attempt's host h. It may adapt the request to h.
	OnHostSelected func(x *protocol.Exchange, h *Host)
}

// Start implements protocol.Service: it sends x to the first host.
func (cp *ClusterPicker) Start(ctx context.Context, x *protocol.Exchange) error {
	c := cp.Cluster
	x.Record.Cluster = c
	s, err := c.admit(cp.Priority)
	if err != nil {
		return err
	}
	if c.mustAwaitHosts(s) {
		return x.RunBlocking(ctx, waitForHosts{cp})
	}
	if s.aggregate != nil && s.aggregate.unsubscribed() {
		return x.RunBlocking(ctx, waitForMembers{cp, s.aggregate})
	}
	if len(s.config.DropOverloads) > 0 && len(x.Record.Attempts) == 0 {
		if err := c.dropOverload(s.config); err != nil {
			return err
		}
	}
	return cp.startOnHost(ctx, s, x)
}

// startOnHost sends x to the first host.
func (cp *ClusterPicker) startOnHost(ctx context.Context, s *state, x *protocol.Exchange) error {
	p, err := cp.pickPool(s, x, len(x.Record.Attempts))
	if err != nil {
		return err
	}
	x.PushFinisher(cp)
	return p.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (cp *ClusterPicker) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	tryNext, err := cp.finishAttempt(x, err)
	if tryNext {
		return x.RunBlocking(ctx, &remainingHosts{cp, len(x.Record.Attempts) - 1, err})
	}
	return err
}

// remainingHosts sends an exchange to further hosts after the first host could not be reached. The
// hosts are those of the state when Serve begins: a removed cluster has none.
type remainingHosts struct {
	*ClusterPicker
	firstIndex int   // index in x.Record.Attempts of the attempt at the first host
	firstErr   error // error of that attempt
}

// Serve implements protocol.BlockingService.
func (r *remainingHosts) Serve(ctx context.Context, x *protocol.Exchange) error {
	s := r.Cluster.state.Load()
	err := r.firstErr
	for {
		p, pickErr := r.pickPool(s, x, r.firstIndex)
		if pickErr != nil {
			return err
		}
		var tryNext bool
		if tryNext, err = r.finishAttempt(x, x.Serve(ctx, p)); !tryNext {
			return err
		}
	}
}

// pickPool picks a host for x that none of x.Record.Attempts[first:] used, and returns its
// connection pool. The host then counts x as in flight until a connection releases x or the pool
// returns a pool.NotSentError. If pickPool panics, nothing is counted.
func (cp *ClusterPicker) pickPool(s *state, x *protocol.Exchange, first int) (pool.Pool, error) {
	var h *Host
	var err error
	if s.aggregate != nil {
		if h, s, err = s.aggregate.pickHost(cp, x, first); err != nil {
			return nil, err
		}
	}
	proto, err := cp.upstreamProtocol(s.config, x)
	if err != nil {
		return nil, err
	}
	if h == nil {
		if h, err = cp.pickHost(s, x, first); err != nil {
			return nil, err
		}
	}
	if err := h.cluster.checkProxyProtocolPool(s.config); err != nil {
		return nil, err
	}
	p := h.pool(proto, s.config.Pool.Mode, cp.Priority)
	if p == nil {
		return nil, protocol.Faultf(protocol.Internal, "cluster %s: no connector for protocol %q", h.cluster.name, proto)
	}
	x.Record.BeginAttempt(h)
	if cp.OnHostSelected != nil {
		cp.OnHostSelected(x, h)
	}
	h.load.Begin() // before attempts.Add: readCounters takes a counted attempt not in flight as ended
	h.attempts.Add(1)
	return p, nil
}

// finishAttempt records the result of the last attempt, and reports whether to try another host.
func (cp *ClusterPicker) finishAttempt(x *protocol.Exchange, err error) (tryNext bool, result error) {
	a := &x.Record.Attempts[len(x.Record.Attempts)-1]
	h, _ := a.Host.(*Host)
	h.recordAttempt(x, err)
	if err == nil {
		h.observeLatency(x, nil)
		a.Status = x.Response.Status
		if a.Status >= minServerErrorStatus {
			h.badResponses.Add(1)
		}
		return false, nil
	}
	a.Reason = protocol.ReasonOf(err)
	if a.Reason == protocol.ReasonDownstreamDisconnect { // a disconnect says nothing about the host
		h.canceled.Add(1)
		cp.Cluster.count(AttemptCanceled)
	} else {
		h.failures.Add(1)
		if a.Reason == protocol.Overflow {
			h.limitFailures.Add(1)
		}
	}
	notSent, ok := errors.AsType[*pool.NotSentError](err)
	if !ok {
		h.observeLatency(x, err)
		return false, err
	}
	h.load.End()
	if pool.CanTryAnotherHost(notSent.Err) && !wait.Expired(x.EffectiveDeadline()) {
		return true, notSent.Err
	}
	return false, notSent.Err
}

// admit returns the state with which to serve an exchange. Errors are Faults: NoCluster, and
// Overflow if max_connections allows no connections. The exchange is counted later, when it waits
// for a connection or has one.
func (c *Cluster) admit(p config.Priority) (*state, error) {
	s := c.state.Load()
	if s == nil || s.removed {
		return nil, protocol.Faultf(protocol.NoCluster, "cluster %s is not configured", c.name)
	}
	if c.env.Meter != nil && c.recorder.recorder.Load() == nil {
		c.openRecorder()
	}
	if err := c.breakers[p].CheckConnections(s.config); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *Cluster) openRecorder() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.state.Load(); !s.removed {
		c.recorder.open(func() ClusterRecorder { return c.env.Meter.Cluster(c.name, c) })
	}
}

// count counts an event, if the cluster has a recorder.
func (c *Cluster) count(e Event) {
	if r, ok := c.recorder.get(); ok {
		r.Count(e)
	}
}

// Count counts an event that a service in front of the cluster reports.
func (c *Cluster) Count(e Event) { c.count(e) }

// lastConfig returns the last configuration of the cluster, nil if there was none.
func (c *Cluster) lastConfig() *config.Cluster { return c.config.Load() }
