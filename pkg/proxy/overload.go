package proxy

import (
	"context"
	"io/fs"
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
	"github.com/weft-proxy/weft/pkg/proxy/overload"
)

// overloadManager monitors the resources of the process and takes the configured actions. Without a
// configuration it does nothing and has no goroutine.
//
//	monitor          reads pressures             overload_monitor.go
//	Evaluator        decides                     package overload
//	act              acts                        here
//	overloadPolicy   applies to each request     shed.go
//	ConnLimiter      limits new connections      package network
type overloadManager struct {
	server *Server             // immutable
	orders overloadPolicy      // applied to exchanges
	gate   network.ConnLimiter // applied to listeners

	watch  *monitorLoop // guarded by Server.applying; nil: none
	status atomic.Pointer[OverloadStatus]
}

// monitorLoop runs one configuration.
type monitorLoop struct {
	overseer *overloadManager
	config   *config.Overload
	end      context.CancelFunc
	ended    sync.WaitGroup

	remove []func() // remove the metrics

	// Owned by run.
	monitors  []*monitor
	judge     *overload.Evaluator
	since     []time.Time // when the state of each action changed
	done      []doneCount // counters of each action
	collected time.Time   // last garbage collection because of memory pressure
	returned  time.Time   // last time that memory was returned to the system
}

// doneCount counts what an action has done.
type doneCount struct {
	count *metrics.Counter
	from  func() uint64 // a counter elsewhere; nil: none
	known uint64        // value of from that count already includes
}

// prepare creates the monitors of a configuration and starts nothing. A monitor that cannot be read
// is an error. It returns nil for a nil configuration.
func (o *overloadManager) prepare(c *config.Overload) (*monitorLoop, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // as said
	}
	w := &monitorLoop{overseer: o, config: c, judge: overload.New(c), since: make([]time.Time, len(c.Actions))}
	for _, m := range c.Monitors {
		made, err := newMonitor(m, o.system(), o.gate.Active)
		if err != nil {
			return nil, err
		}
		w.monitors = append(w.monitors, made)
	}
	return w, nil
}

// system returns the file system that contains /proc and /sys.
func (o *overloadManager) system() fs.FS {
	if s := o.server.o.System; s != nil {
		return s
	}
	return os.DirFS("/")
}

// enforce makes w the active loop. If both configurations are equal, the old loop and its actions
// continue. s.applying is held.
func (o *overloadManager) enforce(w *monitorLoop) {
	old := o.watch
	if old != nil && w != nil && reflect.DeepEqual(old.config, w.config) {
		return
	}
	o.stop()
	o.gate.SetLimit(0)
	if w == nil {
		o.release()
		return
	}
	for _, m := range w.config.Monitors {
		if m.Name == config.MonitorConnections {
			o.gate.SetLimit(m.Max)
		}
	}
	o.watch = w
	w.begin()
}

// stop ends the loop. Its actions stay in effect until release or until the next loop has evaluated
// them.
func (o *overloadManager) stop() {
	if w := o.watch; w != nil {
		w.end()
		w.ended.Wait()
		w.forget()
		o.watch = nil
	}
}

// release ends the effects of all actions.
func (o *overloadManager) release() {
	o.orders.give(0, 0)
	o.gate.SetRejectFraction(0)
	o.gate.ResumeAccept()
	o.server.eachListener(func(l *liveListener) { l.ln.ResetIdleTracking() })
	o.status.Store(nil)
}

// begin evaluates once, so that actions of the previous loop continue without a gap, and then
// starts run.
func (w *monitorLoop) begin() {
	w.export()
	w.look(time.Now())
	ctx, end := context.WithCancel(context.Background())
	w.end = end
	w.ended.Go(func() { w.run(ctx) })
}

// run evaluates periodically until ctx ends.
func (w *monitorLoop) run(ctx context.Context) {
	tick := time.NewTicker(w.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.look(now)
		}
	}
}

// look reads the monitors, decides and acts.
func (w *monitorLoop) look(now time.Time) {
	pressures := w.read(now)
	if w.memoryIsShort(pressures) && now.Sub(w.collected) >= collectEvery {
		// Garbage collection and emptying the pools may relieve the pressure.
		w.collected = now
		debug.FreeOSMemory()
		pressures = w.read(now)
	}
	verdicts := w.judge.Decide(now, pressures)
	w.act(now, verdicts)
	w.tell(now, verdicts)
}

// collectEvery is the minimum interval between garbage collections under memory pressure.
const collectEvery = 2 * time.Second

// read returns the pressures of the monitors. A monitor that cannot be read keeps its value.
func (w *monitorLoop) read(now time.Time) []float64 {
	pressures := make([]float64, len(w.monitors))
	for i, m := range w.monitors {
		if err := m.update(now); err != nil {
			w.overseer.server.o.Metrics.Counter(metrics.OverloadFailures, string(m.config.Name)).Add(1)
			if !m.failing {
				w.overseer.server.o.Log.Error("resource monitor cannot be read, its pressure stays unchanged",
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

// memoryIsShort reports whether the pressure of a memory monitor is above the release threshold of
// an action.
func (w *monitorLoop) memoryIsShort(pressures []float64) bool {
	for i, m := range w.config.Monitors {
		if m.Name != config.MonitorHeap && m.Name != config.MonitorMemory && m.Name != config.MonitorCgroup {
			continue
		}
		for _, a := range w.config.Actions {
			for _, t := range a.Triggers {
				if t.Monitor == m.Name && pressures[i] > overload.ReleaseRatio*t.From {
					return true
				}
			}
		}
	}
	return false
}

// Parameters of the actions.
const (
	// idleFor is how long a connection must be idle before shrink_idle closes it. Clients and hosts
	// in the middle of an operation use it sooner.
	idleFor = time.Second
	// returnEvery is the minimum interval at which shrink_heap returns memory to the system.
	returnEvery = 10 * time.Second
)

// act carries out the decisions. It resets actions that are not configured.
func (w *monitorLoop) act(now time.Time, verdicts []overload.Decision) {
	o := w.overseer
	var refuse, end, reject float64
	shut, looksAtIdle := false, false
	for i, a := range w.config.Actions {
		v := verdicts[i]
		switch a.Name {
		case config.ActStopRequests:
			refuse = v.Value
		case config.ActDisableKeepAlive:
			end = v.Value
		case config.ActRejectConnections:
			reject = v.Value
		case config.ActStopAccepting:
			shut = v.State == overload.Saturated
			if shut && v.Changed {
				w.done[i].count.Add(1)
			}
		case config.ActShrinkIdle:
			if v.State == overload.Saturated {
				looksAtIdle = true
				n := o.endIdle(now, func(time.Duration) time.Duration { return idleFor })
				w.done[i].count.Add(uint64(n + o.server.clusters.CloseIdle(idleFor)))
			}
		case config.ActReduceTimeouts:
			if v.Value > 0 {
				looksAtIdle = true
				w.done[i].count.Add(uint64(o.endIdle(now, func(d time.Duration) time.Duration { return reduced(d, a, v.Value) })))
			}
		case config.ActShrinkHeap:
			if v.State == overload.Saturated && now.Sub(w.returned) >= returnEvery {
				w.returned = now
				debug.FreeOSMemory()
				w.done[i].count.Add(1)
			}
		}
	}
	o.orders.give(refuse, end)
	o.gate.SetRejectFraction(reject)
	if shut {
		o.gate.PauseAccept()
	} else {
		o.gate.ResumeAccept()
	}
	if !looksAtIdle {
		o.server.eachListener(func(l *liveListener) { l.ln.ResetIdleTracking() })
	}
	for i := range w.done {
		w.done[i].update()
	}
}

// update adds what from has counted since the last call.
func (d *doneCount) update() {
	if d.from != nil {
		n := d.from()
		d.count.Add(n - d.known)
		d.known = n
	}
}

// never is an idle timeout that no connection reaches.
const never = math.MaxInt64

// reduced returns the idle timeout that reduce_timeouts sets at that value. Timeout 0 means none.
func reduced(timeout time.Duration, a config.OverloadAction, value float64) time.Duration {
	if timeout <= 0 {
		return never
	}
	least := a.LeastTimeout
	if least == 0 {
		least = time.Duration(a.LeastShare * float64(timeout))
	}
	if least >= timeout {
		return timeout
	}
	return timeout - time.Duration(value*float64(timeout-least))
}

// endIdle closes downstream connections that have been idle for the time that after returns for
// their listener's idle timeout (0: none).
func (o *overloadManager) endIdle(now time.Time, after func(idle time.Duration) time.Duration) (ended int) {
	o.server.eachListener(func(l *liveListener) {
		ended += l.ln.CloseIdle(now, after(l.entry.config.IdleTimeout))
	})
	return ended
}

// eachListener calls f with every active listener. f must not block.
func (s *Server) eachListener(f func(*liveListener)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, live := range s.listeners {
		f(live)
	}
}
