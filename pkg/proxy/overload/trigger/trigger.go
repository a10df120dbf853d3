// Package trigger computes the value of each action of an overload manager from the pressures. It
// is pure: package overload reads the pressures and the clock, and acts.
//
// An action scales up immediately and scales down late, so that its own effect does not make it
// oscillate. A value falls only after its target has been lower for ScaleDownDelay. A trigger that
// has acted releases only when its pressure is at most ReleaseRatio of its threshold.
package trigger

import (
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// ScaleDownDelay is how long the target of an action must be below its value before the action
// scales down.
const ScaleDownDelay = time.Second

// ReleaseRatio is the fraction of a trigger's threshold to which the pressure must fall before the
// trigger releases.
const ReleaseRatio = 0.97

// State is the state of an action, for status and logs.
type State uint8

// States of an action.
const (
	Inactive State = iota
	Scaling        // the action acts below its maximum, or is not released yet
	Saturated
)

func (s State) String() string {
	switch s {
	case Inactive:
		return "inactive"
	case Scaling:
		return "scaling"
	case Saturated:
		return "saturated"
	}
	panic("overload: unknown state")
}

// Decision is the value and state that an action must have.
type Decision struct {
	Value   float64 // from 0 (nothing) to 1 (maximum)
	State   State
	Changed bool // State differs from the previous decision
	Monitor config.MonitorName
}

// Evaluator makes the decisions for one configuration. One goroutine owns it.
type Evaluator struct {
	config    *config.Overload // immutable
	triggers  [][]trigger      // triggers of each action, in the order of config.Actions
	decisions []Decision       // in the order of config.Actions
}

// New returns an evaluator whose actions are inactive.
func New(c *config.Overload) *Evaluator {
	e := &Evaluator{config: c, triggers: make([][]trigger, len(c.Actions)), decisions: make([]Decision, len(c.Actions))}
	for i, a := range c.Actions {
		for _, t := range a.Triggers {
			e.triggers[i] = append(e.triggers[i], trigger{Trigger: t, monitor: monitorIndex(c, t.Monitor)})
		}
	}
	return e
}

// Decide returns the decisions for the actions, in configuration order. pressures are those of the
// monitors, in configuration order. now must not be earlier than in the last call. The next call
// overwrites the result.
func (e *Evaluator) Decide(now time.Time, pressures []float64) []Decision {
	for i := range e.triggers {
		previous := e.decisions[i].State
		d := Decision{}
		for k := range e.triggers[i] {
			t := &e.triggers[i][k]
			t.update(now, pressures[t.monitor])
			if t.active && (d.State == Inactive || t.value > d.Value) {
				d = Decision{Value: t.value, State: Scaling, Monitor: t.Monitor}
			}
		}
		if d.Value >= 1 {
			d.State = Saturated
		}
		d.Changed = d.State != previous
		e.decisions[i] = d
	}
	return e.decisions
}

// trigger is the state of a config.Trigger.
type trigger struct {
	config.Trigger
	monitor int // index of the monitor

	value      float64
	active     bool      // the trigger acts, or has acted and is not released yet
	lowerSince time.Time // when the target fell below value; zero: the target is not below value
}

// targetValue returns the value for a pressure.
func (t *trigger) targetValue(pressure float64) float64 {
	switch {
	case pressure >= t.To:
		return 1
	case pressure <= t.From:
		return 0
	}
	return (pressure - t.From) / (t.To - t.From)
}

// update updates the value for a pressure.
func (t *trigger) update(now time.Time, pressure float64) {
	target := t.targetValue(pressure)
	aboveRelease := pressure > ReleaseRatio*t.From
	switch {
	case target > 0 && target >= t.value:
		t.value, t.active, t.lowerSince = target, true, time.Time{}
		return
	case !t.active:
		return
	case aboveRelease && target == 0 && (t.From == t.To || t.value == 0): // below the threshold but not yet released
		t.lowerSince = time.Time{}
		return
	case t.lowerSince.IsZero():
		t.lowerSince = now
	}
	if now.Sub(t.lowerSince) < ScaleDownDelay {
		return
	}
	t.value, t.active, t.lowerSince = target, target > 0 || aboveRelease, time.Time{}
}

// monitorIndex returns the index of a monitor in c. Validation has checked that it exists.
func monitorIndex(c *config.Overload, name config.MonitorName) int {
	return slices.IndexFunc(c.Monitors, func(m config.Monitor) bool { return m.Name == name })
}
