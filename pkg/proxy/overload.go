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

// overloadManager watches what the process may run short of, and has done about it what the
// configuration says. Without a configuration it does nothing, and has no goroutine.
//
//	monitor      what is short          overload_monitor.go
//	Judge        what is to be done     package overload
//	act          doing it               here
//	orders       on the way of requests shed.go
//	Gate         where connections come in, in package network
type overloadManager struct {
	server *Server             // immutable
	orders overloadPolicy      // what exchanges obey
	gate   network.ConnLimiter // what listeners obey

	watch  *monitorLoop // guarded by Server.applying; nil: nothing is watched
	status atomic.Pointer[OverloadStatus]
}

// monitorLoop is one configuration in force.
type monitorLoop struct {
	overseer *overloadManager
	config   *config.Overload
	end      context.CancelFunc
	ended    sync.WaitGroup

	remove []func() // take the metrics back

	// Owned by run.
	monitors  []*monitor
	judge     *overload.Evaluator
	since     []time.Time // when each action turned
	done      []doneCount // what each action has done
	collected time.Time   // when garbage was last collected because memory is short
	returned  time.Time   // when memory was last given back to the system
}

// doneCount counts what an action has done.
type doneCount struct {
	count *metrics.Counter
	from  func() uint64 // counts it elsewhere; nil: nobody does
	known uint64        // of from, what count has already
}

// prepare makes the monitors of a configuration: what cannot be read is an error. It
// starts nothing. nil: there is nothing to watch.
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

// system is where /proc and /sys are.
func (o *overloadManager) system() fs.FS {
	if s := o.server.o.System; s != nil {
		return s
	}
	return os.DirFS("/")
}

// enforce has w watch in the place of what did. If both are configured alike, what did
// goes on, and what it has begun with it. s.applying is held.
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

// stop ends what watches. What it has begun goes on until release, or until the next
// has looked.
func (o *overloadManager) stop() {
	if w := o.watch; w != nil {
		w.end()
		w.ended.Wait()
		w.forget()
		o.watch = nil
	}
}

// release ends everything that actions have begun.
func (o *overloadManager) release() {
	o.orders.give(0, 0)
	o.gate.SetRejectFraction(0)
	o.gate.ResumeAccept()
	o.server.eachListener(func(l *liveListener) { l.ln.ResetIdleTracking() })
	o.status.Store(nil)
}

// begin looks for the first time, so that what the last one has begun is not ended and
// begun again, and then goes on by itself.
func (w *monitorLoop) begin() {
	w.export()
	w.look(time.Now())
	ctx, end := context.WithCancel(context.Background())
	w.end = end
	w.ended.Go(func() { w.run(ctx) })
}

// run looks again and again until ctx ends.
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
		// What is garbage is not needed, and what pools hold may not be either.
		w.collected = now
		debug.FreeOSMemory()
		pressures = w.read(now)
	}
	verdicts := w.judge.Decide(now, pressures)
	w.act(now, verdicts)
	w.tell(now, verdicts)
}

// collectEvery is how often garbage is collected at most while memory is short.
const collectEvery = 2 * time.Second

// read returns the pressures of the monitors. One that cannot be read stays as it was.
func (w *monitorLoop) read(now time.Time) []float64 {
	pressures := make([]float64, len(w.monitors))
	for i, m := range w.monitors {
		if err := m.update(now); err != nil {
			w.overseer.server.o.Metrics.Counter(metrics.OverloadFailures, string(m.config.Name)).Add(1)
			if !m.failing {
				w.overseer.server.o.Log.Error("a resource monitor cannot be read: its pressure stays as it was",
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

// memoryIsShort reports whether a monitor of memory is where an action begins, or
// where it lets go.
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

// How the actions act.
const (
	// idleFor is how long a connection must have carried nothing for shrink_idle to end
	// it. Callers and hosts that are in the middle of something come back sooner.
	idleFor = time.Second
	// returnEvery is how often shrink_heap gives memory back.
	returnEvery = 10 * time.Second
)

// act does what the verdicts say. Actions that are not configured are not done.
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

// update counts what was done elsewhere since the last time.
func (d *doneCount) update() {
	if d.from != nil {
		n := d.from()
		d.count.Add(n - d.known)
		d.known = n
	}
}

// never is an idle timeout that no connection reaches.
const never = math.MaxInt64

// reduced is what is left of an idle timeout, 0 for none, at a value of a reduce_timeouts.
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

// endIdle ends the callers' connections that carry nothing for as long as after says,
// given the idle timeout of their listener, 0 for none.
func (o *overloadManager) endIdle(now time.Time, after func(idle time.Duration) time.Duration) (ended int) {
	o.server.eachListener(func(l *liveListener) {
		ended += l.ln.CloseIdle(now, after(l.entry.config.IdleTimeout))
	})
	return ended
}

// eachListener calls f with every listener that accepts. f must not wait.
func (s *Server) eachListener(f func(*liveListener)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, live := range s.listeners {
		f(live)
	}
}
