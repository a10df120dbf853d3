package proxy

import (
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/proxy/overload"
)

// OverloadStatus is the current state of the overload manager, for the admin API.
type OverloadStatus struct {
	Interval string          `json:"refresh_interval"`
	Monitors []MonitorStatus `json:"resource_monitors"`
	Actions  []ActionStatus  `json:"actions"`
}

// MonitorStatus is the last reading of a monitor.
type MonitorStatus struct {
	Name     string  `json:"name"`
	Pressure float64 `json:"pressure"`          // used as a fraction of limit
	Used     float64 `json:"used"`              // bytes, descriptors, connections, or a fraction of the processors
	Limit    float64 `json:"limit,omitempty"`   // in the same unit; absent: none
	Failing  bool    `json:"failing,omitempty"` // the last read failed
}

// ActionStatus is the state of an action.
type ActionStatus struct {
	Name    string     `json:"name"`
	State   string     `json:"state"` // "inactive", "scaling" or "saturated"
	Value   float64    `json:"value"`
	Monitor string     `json:"because,omitempty"` // the monitor with the highest value
	Since   *time.Time `json:"since,omitempty"`   // time of the last state change; absent: never changed
	Done    uint64     `json:"done_total"`
}

// Overload returns the state of the overload manager, or nil if none is configured.
func (s *Server) Overload() *OverloadStatus { return s.overseer.status.Load() }

// tell publishes the decisions in the log and the status, from which metrics are read.
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

// log logs a state change of an action.
func (w *monitorLoop) log(name config.ActionName, v overload.Decision) {
	log := w.overseer.server.o.Log
	if v.State == overload.Inactive {
		log.Info("overload action inactive", "action", string(name))
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

// export registers the metrics of w. Gauges read the status.
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

// forget removes the gauges that export registered.
func (w *monitorLoop) forget() {
	for _, remove := range w.remove {
		remove()
	}
}
