// Package overload protects the process when a resource is nearly used up:
//
//	Manager         starts and ends the actions of a configuration   manager.go
//	monitor         reads the pressure of a resource                 monitor.go
//	trigger         decides (pure)                                   package trigger
//	OverloadPolicy  applies to each request                          package service, shed.go
//	ConnLimiter     limits new connections                           package network
//	Status          for the admin port, logs and metrics             status.go
package overload

import (
	"context"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/proxy/overload/trigger"
	"github.com/weft-proxy/weft/pkg/proxy/service"
)

// Options holds the functions and settings that a Manager needs from the server. Immutable.
type Options struct {
	// System is a file system with the directories proc and sys; nil: the root file system.
	System fs.FS
	// EachListener calls f with each active listener and its idle timeout (0: none). f does not
	// block.
	EachListener func(f func(l *network.Listener, idleTimeout time.Duration))
	// CloseIdleHostConns closes the upstream connections that have been idle for that time and
	// returns their number.
	CloseIdleHostConns func(idle time.Duration) (closed int)
	Metrics            *metrics.Registry
	Log                *slog.Logger
}

// Manager monitors the resources of the process and takes the configured actions. Without a
// configuration it does nothing and has no goroutine. One goroutine at a time calls Prepare and
// Activate.
type Manager struct {
	options     Options
	policy      service.OverloadPolicy
	connLimiter network.ConnLimiter

	loop   *Loop // owned by the goroutine that calls Activate; nil: none
	status atomic.Pointer[Status]
}

// New returns a Manager that has no configuration.
func New(o Options) *Manager {
	if o.System == nil {
		o.System = os.DirFS("/")
	}
	return &Manager{options: o}
}

// Policy returns the policy that the manager applies to exchanges.
func (m *Manager) Policy() *service.OverloadPolicy { return &m.policy }

// ConnLimiter returns the limiter that the manager applies to the connections of all listeners.
func (m *Manager) ConnLimiter() *network.ConnLimiter { return &m.connLimiter }

// Loop runs one configuration. It does nothing before Activate.
type Loop struct {
	manager *Manager
	config  *config.Overload
	cancel  context.CancelFunc
	running sync.WaitGroup

	unregister []func() // functions that remove the metrics

	// Owned by run once it has started.
	monitors         []*monitor
	evaluator        *trigger.Evaluator
	changedAt        []time.Time     // when the state of each action last changed
	counters         []actionCounter // counters of each action
	lastGC           time.Time       // last garbage collection because of memory pressure
	lastMemoryReturn time.Time       // last time that memory was returned to the system
}

// actionCounter counts the effects of an action.
type actionCounter struct {
	counter   *metrics.Counter
	source    func() uint64 // reads the counter of the policy or limiter that carries out the action; nil: act counts the effects
	lastValue uint64        // value of source that counter already includes
}

// Prepare creates the monitors of a configuration and starts nothing. It returns an error if the
// system or the build does not support a monitor. It returns nil for a nil configuration.
func (m *Manager) Prepare(c *config.Overload) (*Loop, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // a nil configuration has no loop
	}
	l := &Loop{manager: m, config: c, evaluator: trigger.New(c), changedAt: make([]time.Time, len(c.Actions))}
	for _, mc := range c.Monitors {
		mon, err := newMonitor(mc, m.options.System, m.connLimiter.Active)
		if err != nil {
			return nil, err
		}
		l.monitors = append(l.monitors, mon)
	}
	return l, nil
}

// Activate makes l the active loop. If the active loop has an equal configuration, it continues
// with its actions instead. If l is nil, the effects of all actions end.
func (m *Manager) Activate(l *Loop) {
	old := m.loop
	if old != nil && l != nil && reflect.DeepEqual(old.config, l.config) {
		return
	}
	m.stop()
	m.connLimiter.SetLimit(0)
	if l == nil {
		m.resetActions()
		return
	}
	for _, mc := range l.config.Monitors {
		if mc.Name == config.MonitorConnections {
			m.connLimiter.SetLimit(mc.Max)
		}
	}
	m.loop = l
	l.start()
}

// stop ends the loop. Its actions stay in effect until resetActions or until the next loop has
// evaluated them.
func (m *Manager) stop() {
	if l := m.loop; l != nil {
		l.cancel()
		l.running.Wait()
		l.unregisterMetrics()
		m.loop = nil
	}
}

// resetActions ends the effects of all actions.
func (m *Manager) resetActions() {
	m.policy.SetFractions(0, 0)
	m.connLimiter.SetRejectFraction(0)
	m.connLimiter.ResumeAccept()
	m.resetIdleTracking()
	m.status.Store(nil)
}

// start evaluates once, so that actions of the previous loop continue without a gap, and then
// starts run.
func (l *Loop) start() {
	l.registerMetrics()
	l.evaluate(time.Now())
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.running.Go(func() { l.run(ctx) })
}

// run evaluates periodically until ctx ends.
func (l *Loop) run(ctx context.Context) {
	tick := time.NewTicker(l.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.evaluate(now)
		}
	}
}

// evaluate reads the monitors, decides, and carries out the decisions.
func (l *Loop) evaluate(now time.Time) {
	pressures := l.read(now)
	if l.underMemoryPressure(pressures) && now.Sub(l.lastGC) >= minGCInterval {
		// Garbage collection and emptying the pools may relieve the pressure.
		l.lastGC = now
		debug.FreeOSMemory()
		pressures = l.read(now)
	}
	decisions := l.evaluator.Decide(now, pressures)
	l.act(now, decisions)
	l.publish(now, decisions)
}

// minGCInterval is the minimum interval between the garbage collections of evaluate.
const minGCInterval = 2 * time.Second

// read returns the pressures of the monitors. A monitor that cannot be read keeps its value.
func (l *Loop) read(now time.Time) []float64 {
	pressures := make([]float64, len(l.monitors))
	for i, m := range l.monitors {
		if err := m.update(now); err != nil {
			l.manager.options.Metrics.Counter(metrics.OverloadFailures, string(m.config.Name)).Add(1)
			if !m.failing {
				l.manager.options.Log.Error("resource monitor cannot be read, its pressure stays unchanged",
					"monitor", string(m.config.Name), "pressure", m.pressure, "error", err)
			}
			m.failing = true
		} else {
			m.failing = false
		}
		pressures[i] = m.pressure
	}
	return pressures
}

// underMemoryPressure reports whether the pressure of a memory monitor is above the release
// threshold of an action.
func (l *Loop) underMemoryPressure(pressures []float64) bool {
	for i, m := range l.config.Monitors {
		if m.Name != config.MonitorHeap && m.Name != config.MonitorMemory && m.Name != config.MonitorCgroup {
			continue
		}
		for _, a := range l.config.Actions {
			for _, t := range a.Triggers {
				if t.Monitor == m.Name && pressures[i] > trigger.ReleaseRatio*t.From {
					return true
				}
			}
		}
	}
	return false
}

// Parameters of the actions.
const (
	// shrinkIdleAfter is how long a connection must be idle before shrink_idle closes it. It is
	// longer than the usual pauses of a client or host that is still sending.
	shrinkIdleAfter = time.Second
	// minMemoryReturnInterval is the minimum interval at which shrink_heap returns memory to the
	// system.
	minMemoryReturnInterval = 10 * time.Second
)

// act carries out the decisions. It resets actions that are not configured.
func (l *Loop) act(now time.Time, decisions []trigger.Decision) {
	m := l.manager
	var rejectRequests, disableKeepAlive, rejectConns float64
	stopAccepting, tracksIdle := false, false
	for i, a := range l.config.Actions {
		decision := decisions[i]
		switch a.Name {
		case config.ActionStopRequests:
			rejectRequests = decision.Value
		case config.ActionDisableKeepAlive:
			disableKeepAlive = decision.Value
		case config.ActionRejectConnections:
			rejectConns = decision.Value
		case config.ActionStopAccepting:
			stopAccepting = decision.State == trigger.Saturated
			if stopAccepting && decision.Changed {
				l.counters[i].counter.Add(1)
			}
		case config.ActionShrinkIdle:
			if decision.State == trigger.Saturated {
				tracksIdle = true
				n := m.closeIdle(now, func(time.Duration) time.Duration { return shrinkIdleAfter })
				l.counters[i].counter.Add(uint64(n + m.options.CloseIdleHostConns(shrinkIdleAfter)))
			}
		case config.ActionReduceTimeouts:
			if decision.Value > 0 {
				tracksIdle = true
				l.counters[i].counter.Add(uint64(m.closeIdle(now, func(d time.Duration) time.Duration { return reducedTimeout(d, a, decision.Value) })))
			}
		case config.ActionShrinkHeap:
			if decision.State == trigger.Saturated && now.Sub(l.lastMemoryReturn) >= minMemoryReturnInterval {
				l.lastMemoryReturn = now
				debug.FreeOSMemory()
				l.counters[i].counter.Add(1)
			}
		}
	}
	m.policy.SetFractions(rejectRequests, disableKeepAlive)
	m.connLimiter.SetRejectFraction(rejectConns)
	if stopAccepting {
		m.connLimiter.PauseAccept()
	} else {
		m.connLimiter.ResumeAccept()
	}
	if !tracksIdle {
		m.resetIdleTracking()
	}
	for i := range l.counters {
		l.counters[i].update()
	}
}

// update adds the increase of source since the last call.
func (c *actionCounter) update() {
	if c.source != nil {
		n := c.source()
		c.counter.Add(n - c.lastValue)
		c.lastValue = n
	}
}

// noIdleTimeout is an idle timeout that no connection reaches.
const noIdleTimeout = math.MaxInt64

// reducedTimeout returns the idle timeout that a, a reduce_timeouts action, sets when the action
// has this value. timeout is the configured idle timeout; 0: none.
func reducedTimeout(timeout time.Duration, a config.OverloadAction, value float64) time.Duration {
	if timeout <= 0 {
		return noIdleTimeout
	}
	minTimeout := a.MinTimeout
	if minTimeout == 0 {
		minTimeout = time.Duration(a.MinScale * float64(timeout))
	}
	if minTimeout >= timeout {
		return timeout
	}
	return timeout - time.Duration(value*float64(timeout-minTimeout))
}

// closeIdle closes idle downstream connections. idleFor returns the minimum idle time of the
// connections to close on a listener with this idle timeout (0: none).
func (m *Manager) closeIdle(now time.Time, idleFor func(idleTimeout time.Duration) time.Duration) (closed int) {
	m.options.EachListener(func(l *network.Listener, idleTimeout time.Duration) {
		closed += l.CloseIdle(now, idleFor(idleTimeout))
	})
	return closed
}

// resetIdleTracking makes the listeners discard the idle times that CloseIdle has recorded.
func (m *Manager) resetIdleTracking() {
	m.options.EachListener(func(l *network.Listener, _ time.Duration) { l.ResetIdleTracking() })
}
