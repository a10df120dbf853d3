// Package overload owns the decision what is done about pressure: how far each
// action of an overload manager is to go, given how short everything is. It is
// pure: who reads the pressures, tells the time and acts is package proxy.
//
// An action goes up with the pressure at once, and comes down late, so that what it
// brings about does not turn it off and on: a value falls once less has been wanted for
// Hold, and a trigger that has acted lets go only when its pressure is ReleaseRatio of what
// it began at.
package overload

import (
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// ScaleDownDelay is how long less must have been wanted of an action before it comes down.
const ScaleDownDelay = time.Second

// ReleaseRatio is the share of the pressure at which a trigger acts to which the pressure
// must fall before it acts no more.
const ReleaseRatio = 0.97

// State is what an action is doing, for people.
type State uint8

// The states.
const (
	Inactive State = iota
	Scaling        // it acts, and not as far as it can
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

// Decision is what an action is to do.
type Decision struct {
	Value   float64 // from 0, nothing, to 1, all that it can
	State   State
	Changed bool // State is not what it was before
	Monitor config.MonitorName
}

// Evaluator decides for one configuration. It belongs to one goroutine.
type Evaluator struct {
	config   *config.Overload // immutable
	actions  [][]trigger      // as config.Actions
	verdicts []Decision       // as config.Actions
}

// New returns a judge to whom nothing is short.
func New(c *config.Overload) *Evaluator {
	j := &Evaluator{config: c, actions: make([][]trigger, len(c.Actions)), verdicts: make([]Decision, len(c.Actions))}
	for i, a := range c.Actions {
		for _, t := range a.Triggers {
			j.actions[i] = append(j.actions[i], trigger{Trigger: t, monitor: place(c, t.Monitor)})
		}
	}
	return j
}

// Decide returns what the actions are to do at a time that is not before that of the
// last call. Pressures are those of the monitors, in the configuration's order, and
// so are the verdicts of the actions; those are the judge's until the next call.
func (j *Evaluator) Decide(now time.Time, pressures []float64) []Decision {
	for i := range j.actions {
		was := j.verdicts[i].State
		v := Decision{}
		for k := range j.actions[i] {
			t := &j.actions[i][k]
			t.follow(now, pressures[t.monitor])
			if t.on && (v.State == Inactive || t.value > v.Value) {
				v = Decision{Value: t.value, State: Scaling, Monitor: t.Monitor}
			}
		}
		if v.Value >= 1 {
			v.State = Saturated
		}
		v.Changed = v.State != was
		j.verdicts[i] = v
	}
	return j.verdicts
}

// trigger is a config.Trigger and how far it went.
type trigger struct {
	config.Trigger
	monitor int // place among the monitors

	value float64
	on    bool      // it acts, or has and does not let go yet
	less  time.Time // since when less is wanted than value; zero: it is not
}

// wanted is the value that belongs to a pressure.
func (t *trigger) wanted(pressure float64) float64 {
	switch {
	case pressure >= t.To:
		return 1
	case pressure <= t.From:
		return 0
	}
	return (pressure - t.From) / (t.To - t.From)
}

// follow goes where a pressure leads.
func (t *trigger) follow(now time.Time, pressure float64) {
	want := t.wanted(pressure)
	held := pressure > ReleaseRatio*t.From
	switch {
	case want > 0 && want >= t.value:
		t.value, t.on, t.less = want, true, time.Time{}
		return
	case !t.on:
		return
	case held && want == 0 && (t.From == t.To || t.value == 0): // not short any more, and not well
		t.less = time.Time{}
		return
	case t.less.IsZero():
		t.less = now
	}
	if now.Sub(t.less) < ScaleDownDelay {
		return
	}
	t.value, t.on, t.less = want, want > 0 || held, time.Time{}
}

// place is that of a monitor among those of c, which has it: that has been checked.
func place(c *config.Overload, name config.MonitorName) int {
	return slices.IndexFunc(c.Monitors, func(m config.Monitor) bool { return m.Name == name })
}
