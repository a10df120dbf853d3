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
	Monitor string     `json:"monitor,omitempty"` // monitor of the trigger with the highest value
	Since   *time.Time `json:"since,omitempty"`   // time of the last state change; absent: never changed
	Effects uint64     `json:"effects_total"`
}

// Status returns the state of the manager, or nil if it has no configuration.
func (m *Manager) Status() *Status { return m.status.Load() }

// publish logs state changes and stores the status, from which gauges read their values.
func (l *Loop) publish(now time.Time, decisions []trigger.Decision) {
	s := &Status{Interval: l.config.Interval.String()}
	for _, m := range l.monitors {
		s.Monitors = append(s.Monitors, MonitorStatus{
			Name: string(m.config.Name), Pressure: m.pressure, Used: m.used, Limit: m.limit, Failing: m.failing,
		})
	}
	for i, a := range l.config.Actions {
		d := decisions[i]
		if d.Changed {
			l.changedAt[i] = now
			l.logChange(a.Name, d)
		}
		status := ActionStatus{
			Name: string(a.Name), State: d.State.String(), Value: d.Value, Monitor: string(d.Monitor), Effects: l.counters[i].counter.Value(),
		}
		if !l.changedAt[i].IsZero() {
			changedAt := l.changedAt[i]
			status.Since = &changedAt
		}
		s.Actions = append(s.Actions, status)
	}
	l.manager.status.Store(s)
}

// logChange logs a state change of an action.
func (l *Loop) logChange(name config.ActionName, d trigger.Decision) {
	log := l.manager.options.Log
	if d.State == trigger.Inactive {
		log.Info("overload action inactive", "action", string(name))
		return
	}
	pressure := 0.0
	for _, m := range l.monitors {
		if m.config.Name == d.Monitor {
			pressure = m.pressure
		}
	}
	log.Warn("overload", "action", string(name), "state", d.State.String(), "value", d.Value,
		"monitor", string(d.Monitor), "pressure", pressure)
}

// registerMetrics registers the metrics of l. Gauges read the status.
func (l *Loop) registerMetrics() {
	manager := l.manager
	registry := manager.options.Metrics
	for i, m := range l.config.Monitors {
		registry.Counter(metrics.OverloadFailures, string(m.Name))
		l.unregister = append(l.unregister, registry.Func(metrics.OverloadPressure, func() float64 {
			if s := manager.status.Load(); s != nil && i < len(s.Monitors) {
				return s.Monitors[i].Pressure
			}
			return 0
		}, string(m.Name)))
	}
	for i, a := range l.config.Actions {
		l.unregister = append(l.unregister, registry.Func(metrics.OverloadValue, func() float64 {
			if s := manager.status.Load(); s != nil && i < len(s.Actions) {
				return s.Actions[i].Value
			}
			return 0
		}, string(a.Name)))
		counter := actionCounter{counter: registry.Counter(metrics.OverloadEffects, string(a.Name))}
		if n := manager.policy.Counter(a.Name); n != nil {
			counter.source = n.Load
		} else if a.Name == config.ActionRejectConnections {
			counter.source = manager.connLimiter.Refused
		}
		if counter.source != nil {
			counter.lastValue = counter.source()
		}
		l.counters = append(l.counters, counter)
	}
}

// unregisterMetrics removes the gauges that registerMetrics registered.
func (l *Loop) unregisterMetrics() {
	for _, remove := range l.unregister {
		remove()
	}
}
