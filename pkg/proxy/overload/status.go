package overload

import (
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/proxy/overload/trigger"
)

// Status is the current state of a Manager, for the admin API.
type Status struct {
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

// Status returns the state of the manager, or nil if it has no configuration.
func (o *Manager) Status() *Status { return o.status.Load() }

// publish writes the decisions to the log and to the status, from which metrics are read.
func (w *Loop) publish(now time.Time, verdicts []trigger.Decision) {
	s := &Status{Interval: w.config.Interval.String()}
	for _, m := range w.monitors {
		s.Monitors = append(s.Monitors, MonitorStatus{
			Name: string(m.config.Name), Pressure: m.pressure, Used: m.used, Limit: m.limit, Failing: m.failing,
		})
	}
	for i, a := range w.config.Actions {
		v := verdicts[i]
		if v.Changed {
			w.changedAt[i] = now
			w.logChange(a.Name, v)
		}
		status := ActionStatus{
			Name: string(a.Name), State: v.State.String(), Value: v.Value, Monitor: string(v.Monitor), Done: w.counters[i].count.Value(),
		}
		if !w.changedAt[i].IsZero() {
			at := w.changedAt[i]
			status.Since = &at
		}
		s.Actions = append(s.Actions, status)
	}
	w.manager.status.Store(s)
}

// logChange logs a state change of an action.
func (w *Loop) logChange(name config.ActionName, v trigger.Decision) {
	log := w.manager.options.Log
	if v.State == trigger.Inactive {
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

// registerMetrics registers the metrics of w. Gauges read the status.
func (w *Loop) registerMetrics() {
	o := w.manager
	registry := o.options.Metrics
	for i, m := range w.config.Monitors {
		registry.Counter(metrics.OverloadFailures, string(m.Name))
		w.unregister = append(w.unregister, registry.Func(metrics.OverloadPressure, func() float64 {
			if s := o.status.Load(); s != nil && i < len(s.Monitors) {
				return s.Monitors[i].Pressure
			}
			return 0
		}, string(m.Name)))
	}
	for i, a := range w.config.Actions {
		w.unregister = append(w.unregister, registry.Func(metrics.OverloadValue, func() float64 {
			if s := o.status.Load(); s != nil && i < len(s.Actions) {
				return s.Actions[i].Value
			}
			return 0
		}, string(a.Name)))
		d := actionCounter{count: registry.Counter(metrics.OverloadDone, string(a.Name))}
		if n := o.policy.Counter(a.Name); n != nil {
			d.source = n.Load
		} else if a.Name == config.ActionRejectConnections {
			d.source = o.connLimiter.Refused
		}
		if d.source != nil {
			d.counted = d.source()
		}
		w.counters = append(w.counters, d)
	}
}

// unregisterMetrics removes the gauges that registerMetrics registered.
func (w *Loop) unregisterMetrics() {
	for _, remove := range w.unregister {
		remove()
	}
}
