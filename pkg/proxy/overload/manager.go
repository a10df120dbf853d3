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

// Options are the functions and settings that a Manager needs from the server. Immutable.
type Options struct {
	// System contains proc and sys; nil: the system's root.
	System fs.FS
	// EachListener calls f with each active listener and its idle timeout (0: none). f does not
	// block.
	EachListener func(f func(l *network.Listener, idleTimeout time.Duration))
	// CloseIdleHostConns closes connections to hosts that have been idle for that time, and returns
	// how many.
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
func (o *Manager) Policy() *service.OverloadPolicy { return &o.policy }

// ConnLimiter returns the limiter that the manager applies to the connections of all listeners.
func (o *Manager) ConnLimiter() *network.ConnLimiter { return &o.connLimiter }

// Loop runs one configuration. It does nothing before Activate.
type Loop struct {
	manager *Manager
	config  *config.Overload
	cancel  context.CancelFunc
	running sync.WaitGroup

	unregister []func() // remove the metrics

	// Owned by run.
	monitors         []*monitor
	evaluator        *trigger.Evaluator
	changedAt        []time.Time     // when the state of each action changed
	counters         []actionCounter // counters of each action
	lastGC           time.Time       // last garbage collection because of memory pressure
	lastMemoryReturn time.Time       // last time that memory was returned to the system
}

// actionCounter counts the effects of an action.
type actionCounter struct {
	count   *metrics.Counter
	source  func() uint64 // reads a counter elsewhere; nil: none
	counted uint64        // part of source that count already includes
}

// Prepare creates the monitors of a configuration and starts nothing. A monitor that cannot be read
// is an error. It returns nil for a nil configuration.
func (o *Manager) Prepare(c *config.Overload) (*Loop, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // a nil configuration has no loop
	}
	w := &Loop{manager: o, config: c, evaluator: trigger.New(c), changedAt: make([]time.Time, len(c.Actions))}
	for _, m := range c.Monitors {
		made, err := newMonitor(m, o.options.System, o.connLimiter.Active)
		if err != nil {
			return nil, err
		}
		w.monitors = append(w.monitors, made)
	}
	return w, nil
}

// Activate makes w the active loop. If both configurations are equal, the old loop and its actions
// continue. If w is nil, the effects of all actions end.
func (o *Manager) Activate(w *Loop) {
	old := o.loop
	if old != nil && w != nil && reflect.DeepEqual(old.config, w.config) {
		return
	}
	o.stop()
	o.connLimiter.SetLimit(0)
	if w == nil {
		o.resetActions()
		return
	}
	for _, m := range w.config.Monitors {
		if m.Name == config.MonitorConnections {
			o.connLimiter.SetLimit(m.Max)
		}
	}
	o.loop = w
	w.start()
}

// stop ends the loop. Its actions stay in effect until release or until the next loop has evaluated
// them.
func (o *Manager) stop() {
	if w := o.loop; w != nil {
		w.cancel()
		w.running.Wait()
		w.unregisterMetrics()
		o.loop = nil
	}
}

// resetActions ends the effects of all actions.
func (o *Manager) resetActions() {
	o.policy.SetFractions(0, 0)
	o.connLimiter.SetRejectFraction(0)
	o.connLimiter.ResumeAccept()
	o.resetIdleTracking()
	o.status.Store(nil)
}

// start evaluates once, so that actions of the previous loop continue without a gap, and then
// starts run.
func (w *Loop) start() {
	w.registerMetrics()
	w.evaluate(time.Now())
	ctx, end := context.WithCancel(context.Background())
	w.cancel = end
	w.running.Go(func() { w.run(ctx) })
}

// run evaluates periodically until ctx ends.
func (w *Loop) run(ctx context.Context) {
	tick := time.NewTicker(w.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.evaluate(now)
		}
	}
}

// evaluate reads the monitors, decides, and carries out the decisions.
func (w *Loop) evaluate(now time.Time) {
	pressures := w.read(now)
	if w.underMemoryPressure(pressures) && now.Sub(w.lastGC) >= minGCInterval {
		// Garbage collection and emptying the pools may relieve the pressure.
		w.lastGC = now
		debug.FreeOSMemory()
		pressures = w.read(now)
	}
	verdicts := w.evaluator.Decide(now, pressures)
	w.act(now, verdicts)
	w.publish(now, verdicts)
}

// minGCInterval is the minimum interval between garbage collections under memory pressure.
const minGCInterval = 2 * time.Second

// read returns the pressures of the monitors. A monitor that cannot be read keeps its value.
func (w *Loop) read(now time.Time) []float64 {
	pressures := make([]float64, len(w.monitors))
	for i, m := range w.monitors {
		if err := m.update(now); err != nil {
			w.manager.options.Metrics.Counter(metrics.OverloadFailures, string(m.config.Name)).Add(1)
			if !m.failing {
				w.manager.options.Log.Error("resource monitor cannot be read, its pressure stays unchanged",
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
func (w *Loop) underMemoryPressure(pressures []float64) bool {
	for i, m := range w.config.Monitors {
		if m.Name != config.MonitorHeap && m.Name != config.MonitorMemory && m.Name != config.MonitorCgroup {
			continue
		}
		for _, a := range w.config.Actions {
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
	// shrinkIdleAfter is how long a connection must be idle before shrink_idle closes it. Clients
	// and hosts in the middle of an operation use it sooner.
	shrinkIdleAfter = time.Second
	// minMemoryReturnInterval is the minimum interval at which shrink_heap returns memory to the
	// system.
	minMemoryReturnInterval = 10 * time.Second
)

// act carries out the decisions. It resets actions that are not configured.
func (w *Loop) act(now time.Time, verdicts []trigger.Decision) {
	o := w.manager
	var refuse, end, reject float64
	shut, looksAtIdle := false, false
	for i, a := range w.config.Actions {
		v := verdicts[i]
		switch a.Name {
		case config.ActionStopRequests:
			refuse = v.Value
		case config.ActionDisableKeepAlive:
			end = v.Value
		case config.ActionRejectConnections:
			reject = v.Value
		case config.ActionStopAccepting:
			shut = v.State == trigger.Saturated
			if shut && v.Changed {
				w.counters[i].count.Add(1)
			}
		case config.ActionShrinkIdle:
			if v.State == trigger.Saturated {
				looksAtIdle = true
				n := o.closeIdle(now, func(time.Duration) time.Duration { return shrinkIdleAfter })
				w.counters[i].count.Add(uint64(n + o.options.CloseIdleHostConns(shrinkIdleAfter)))
			}
		case config.ActionReduceTimeouts:
			if v.Value > 0 {
				looksAtIdle = true
				w.counters[i].count.Add(uint64(o.closeIdle(now, func(d time.Duration) time.Duration { return reducedTimeout(d, a, v.Value) })))
			}
		case config.ActionShrinkHeap:
			if v.State == trigger.Saturated && now.Sub(w.lastMemoryReturn) >= minMemoryReturnInterval {
				w.lastMemoryReturn = now
				debug.FreeOSMemory()
				w.counters[i].count.Add(1)
			}
		}
	}
	o.policy.SetFractions(refuse, end)
	o.connLimiter.SetRejectFraction(reject)
	if shut {
		o.connLimiter.PauseAccept()
	} else {
		o.connLimiter.ResumeAccept()
	}
	if !looksAtIdle {
		o.resetIdleTracking()
	}
	for i := range w.counters {
		w.counters[i].update()
	}
}

// update adds the increase of source since the last call.
func (d *actionCounter) update() {
	if d.source != nil {
		n := d.source()
		d.count.Add(n - d.counted)
		d.counted = n
	}
}

// noIdleTimeout is an idle timeout that no connection reaches.
const noIdleTimeout = math.MaxInt64

// reducedTimeout returns the idle timeout that reduce_timeouts sets at that value. Timeout 0 means
// none.
func reducedTimeout(timeout time.Duration, a config.OverloadAction, value float64) time.Duration {
	if timeout <= 0 {
		return noIdleTimeout
	}
	least := a.MinTimeout
	if least == 0 {
		least = time.Duration(a.MinScale * float64(timeout))
	}
	if least >= timeout {
		return timeout
	}
	return timeout - time.Duration(value*float64(timeout-least))
}

// closeIdle closes downstream connections that have been idle for the time that after returns for
// their listener's idle timeout (0: none).
func (o *Manager) closeIdle(now time.Time, after func(idle time.Duration) time.Duration) (ended int) {
	o.options.EachListener(func(l *network.Listener, idleTimeout time.Duration) {
		ended += l.CloseIdle(now, after(idleTimeout))
	})
	return ended
}

// resetIdleTracking makes the listeners discard the idle times that CloseIdle has recorded.
func (o *Manager) resetIdleTracking() {
	o.options.EachListener(func(l *network.Listener, _ time.Duration) { l.ResetIdleTracking() })
}
