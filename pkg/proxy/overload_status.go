package proxy

import (
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/proxy/overload"
)

// OverloadStatus is the overload manager as it is at a moment, for people.
type OverloadStatus struct {
	Interval string          `json:"refresh_interval"`
	Monitors []MonitorStatus `json:"resource_monitors"`
	Actions  []ActionStatus  `json:"actions"`
}

// MonitorStatus is what a monitor has read.
type MonitorStatus struct {
	Name     string  `json:"name"`
	Pressure float64 `json:"pressure"`          // used as a share of limit
	Used     float64 `json:"used"`              // bytes, descriptors, connections, or a share of processors
	Limit    float64 `json:"limit,omitempty"`   // in the same unit; absent: there is none
	Failing  bool    `json:"failing,omitempty"` // it cannot be read
}

// ActionStatus is what is done.
type ActionStatus struct {
	Name    string     `json:"name"`
	State   string     `json:"state"` // "inactive", "scaling" or "saturated"
	Value   float64    `json:"value"`
	Monitor string     `json:"because,omitempty"` // the monitor
	Since   *time.Time `json:"since,omitempty"`   // when the state became this; absent: it was never another
	Done    uint64     `json:"done_total"`
}

// Overload returns what is watched and done; nil: nothing is configured.
func (s *Server) Overload() *OverloadStatus { return s.overseer.status.Load() }

// tell makes known what was decided: log, metrics and status.
func (w *monitorLoop) tell(now time.Time, verdicts []overload.Decision) {
	s := &OverloadStatus{Interval: w.config.Interval.String()}
	for _, m := range w.monitors {
		s.Monitors = append(s.Monitors, MonitorStatus{
			Name: string(m.config.Name), Pressure: m.pressure, Used: m.used, Limit: m.of, Failing: m.failing,
		})
	}
	for i, a := range w.config.Actions {
		v := verdicts[i]
		if v.Changed {
			w.since[i] = now
			w.log(a.Name, v)
		}
		status := ActionStatus{
			Name: string(a.Name), State: v.State.String(), Value: v.Value, Monitor: string(v.Monitor), Done: w.done[i].count.Value(),
		}
		if !w.since[i].IsZero() {
			at := w.since[i]
			status.Since = &at
		}
		s.Actions = append(s.Actions, status)
	}
	w.overseer.status.Store(s)
}

// log says that an action has turned.
func (w *monitorLoop) log(name config.ActionName, v overload.Decision) {
	log := w.overseer.server.o.Log
	if v.State == overload.Inactive {
		log.Info("overload is over", "action", string(name))
		return
	}
	pressure := 0.0
	for _, m := range w.monitors {
		if m.config.Name == v.Monitor {
			pressure = m.pressure
		}
	}
	log.Warn("overload", "action", string(name), "state", v.State.String(), "value", v.Value,
		"monitor", string(v.Monitor), "pressure", pressure)
}

// export opens the metrics of w: gauges are read out of the status.
func (w *monitorLoop) export() {
	o := w.overseer
	registry := o.server.o.Metrics
	for i, m := range w.config.Monitors {
		registry.Counter(metrics.OverloadFailures, string(m.Name))
		w.remove = append(w.remove, registry.Func(metrics.OverloadPressure, func() float64 {
			if s := o.status.Load(); s != nil && i < len(s.Monitors) {
				return s.Monitors[i].Pressure
			}
			return 0
		}, string(m.Name)))
	}
	for i, a := range w.config.Actions {
		w.remove = append(w.remove, registry.Func(metrics.OverloadValue, func() float64 {
			if s := o.status.Load(); s != nil && i < len(s.Actions) {
				return s.Actions[i].Value
			}
			return 0
		}, string(a.Name)))
		d := doneCount{count: registry.Counter(metrics.OverloadDone, string(a.Name))}
		if n := o.orders.counter(a.Name); n != nil {
			d.from = n.Load
		} else if a.Name == config.ActRejectConnections {
			d.from = o.gate.Refused
		}
		if d.from != nil {
			d.known = d.from()
		}
		w.done = append(w.done, d)
	}
}

// forget ends what export began, but for counters.
func (w *monitorLoop) forget() {
	for _, remove := range w.remove {
		remove()
	}
}
