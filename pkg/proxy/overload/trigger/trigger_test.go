package trigger

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// step is an evaluation with a pressure, a duration after the previous one, and the expected value
// and state.
type step struct {
	after    time.Duration
	pressure float64
	value    float64
	state    State
}

func TestActionFollowsTrigger(t *testing.T) {
	const tick = 250 * time.Millisecond
	threshold := config.Trigger{Monitor: "memory", From: 0.9, To: 0.9}
	scaled := config.Trigger{Monitor: "memory", From: 0.5, To: 1}
	tests := []struct {
		name    string
		trigger config.Trigger
		steps   []step
	}{
		{"threshold acts when reached", threshold, []step{
			{0, 0.8999, 0, Inactive}, {tick, 0.9, 1, Saturated},
		}},
		{"threshold releases late", threshold, []step{
			{0, 0.95, 1, Saturated}, {tick, 0.5, 1, Saturated}, {tick, 0.5, 1, Saturated},
			{tick, 0.5, 1, Saturated}, {tick, 0.5, 1, Saturated}, {tick, 0.5, 0, Inactive},
		}},
		{"threshold stays active just below it", threshold, []step{
			{0, 0.95, 1, Saturated}, {tick, 0.89, 1, Saturated}, {10 * ScaleDownDelay, 0.89, 1, Saturated}, {10 * ScaleDownDelay, 0.88, 1, Saturated},
			{tick, 0.87, 1, Saturated}, {ScaleDownDelay, 0.87, 0, Inactive},
		}},
		{"short drop of the pressure is ignored", threshold, []step{
			{0, 0.95, 1, Saturated}, {tick, 0.5, 1, Saturated}, {tick, 0.95, 1, Saturated}, {tick, 0.5, 1, Saturated},
			{3 * tick, 0.5, 1, Saturated}, {tick, 0.5, 0, Inactive},
		}},
		{"scaled trigger scales up in proportion", scaled, []step{
			{0, 0.5, 0, Inactive}, {tick, 0.625, 0.25, Scaling}, {tick, 0.75, 0.5, Scaling}, {tick, 1, 1, Saturated}, {tick, 1.7, 1, Saturated},
		}},
		{"scaled trigger scales down late", scaled, []step{
			{0, 1, 1, Saturated}, {tick, 0.75, 1, Saturated}, {tick, 0.6, 1, Saturated}, {ScaleDownDelay, 0.625, 0.25, Scaling},
			{tick, 0.75, 0.5, Scaling},
		}},
		{"scaled trigger becomes inactive late", scaled, []step{
			{0, 0.75, 0.5, Scaling}, {tick, 0.49, 0.5, Scaling}, {ScaleDownDelay, 0.49, 0, Scaling}, {10 * ScaleDownDelay, 0.49, 0, Scaling},
			{tick, 0.625, 0.25, Scaling}, {tick, 0.4, 0.25, Scaling}, {ScaleDownDelay, 0.4, 0, Inactive}, {tick, 0.4, 0, Inactive},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := New(&config.Overload{
				Monitors: []config.Monitor{{Name: "memory"}},
				Actions:  []config.OverloadAction{{Name: config.ActionStopRequests, Triggers: []config.Trigger{tt.trigger}}},
			})
			now, previous := time.Unix(0, 0), Inactive
			for i, s := range tt.steps {
				now = now.Add(s.after)
				got := e.Decide(now, []float64{s.pressure})[0]
				if got.Value != s.value || got.State != s.state {
					t.Errorf("step %d, pressure %v: value %v, state %v; want %v, %v", i, s.pressure, got.Value, got.State, s.value, s.state)
				}
				if got.Changed != (got.State != previous) {
					t.Errorf("step %d: Changed = %v from %v to %v, want %v", i, got.Changed, previous, got.State, (got.State != previous))
				}
				previous = got.State
			}
		})
	}
}

func TestHighestTriggerWins(t *testing.T) {
	c := &config.Overload{
		Monitors: []config.Monitor{{Name: "memory"}, {Name: "cpu_utilization"}},
		Actions: []config.OverloadAction{
			{Name: config.ActionStopRequests, Triggers: []config.Trigger{
				{Monitor: "cpu_utilization", From: 0.5, To: 1}, {Monitor: "memory", From: 0.8, To: 1},
			}},
			{Name: config.ActionShrinkIdle, Triggers: []config.Trigger{{Monitor: "memory", From: 0.7, To: 0.7}}},
		},
	}
	for _, tt := range []struct {
		memory, cpu float64
		value       float64
		monitor     config.MonitorName
		idleState   State
		idleMonitor config.MonitorName
	}{
		{0, 0, 0, "", Inactive, ""},
		{0.75, 0.6, 0.2, "cpu_utilization", Saturated, "memory"},
		{0.9, 0.6, 0.5, "memory", Saturated, "memory"},
		{0, 1, 1, "cpu_utilization", Inactive, ""},
	} {
		got := New(c).Decide(time.Unix(0, 0), []float64{tt.memory, tt.cpu})
		if v := got[0].Value; v < tt.value-1e-9 || v > tt.value+1e-9 || got[0].Monitor != tt.monitor {
			t.Errorf("memory %v, CPU %v: value %v by monitor %q, want %v by %q", tt.memory, tt.cpu, v, got[0].Monitor, tt.value, tt.monitor)
		}
		if got[1].State != tt.idleState || got[1].Monitor != tt.idleMonitor {
			t.Errorf("memory %v, CPU %v: shrink_idle is %v by monitor %q; want %v, %q", tt.memory, tt.cpu, got[1].State, got[1].Monitor, tt.idleState, tt.idleMonitor)
		}
	}
}

// TestNoOscillation verifies that an action changes its state rarely when it relieves the pressure
// and the pressure returns without it.
func TestNoOscillation(t *testing.T) {
	e := New(&config.Overload{
		Monitors: []config.Monitor{{Name: "memory"}},
		Actions:  []config.OverloadAction{{Name: config.ActionStopRequests, Triggers: []config.Trigger{{Monitor: "memory", From: 0.9, To: 0.9}}}},
	})
	now, pressure, changes := time.Unix(0, 0), 0.85, 0
	for range 4 * 60 { // one minute
		v := e.Decide(now, []float64{pressure})[0]
		if v.Changed {
			changes++
		}
		if v.Value > 0 {
			pressure -= 0.01
		} else {
			pressure += 0.01
		}
		now = now.Add(250 * time.Millisecond)
	}
	if changes == 0 || changes > 45 {
		t.Errorf("the state changed %d times in a minute, want 1 to 45", changes)
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	e := New(&config.Overload{
		Monitors: []config.Monitor{{Name: "memory"}},
		Actions:  []config.OverloadAction{{Name: config.ActionStopRequests, Triggers: []config.Trigger{{Monitor: "memory", From: 0.5, To: 1}}}},
	})
	pressures, now := []float64{0.7}, time.Unix(0, 0)
	if n := testing.AllocsPerRun(100, func() { e.Decide(now, pressures) }); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
