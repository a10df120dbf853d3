package trigger

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// step is a look at a pressure: after so long it is so much, and then the value and
// the state are to be these.
type step struct {
	after    time.Duration
	pressure float64
	value    float64
	state    State
}

func TestActionFollowsTrigger(t *testing.T) {
	const look = 250 * time.Millisecond
	step1 := config.Trigger{Monitor: "memory", From: 0.9, To: 0.9}
	scaled := config.Trigger{Monitor: "memory", From: 0.5, To: 1}
	tests := []struct {
		name    string
		trigger config.Trigger
		steps   []step
	}{
		{"a threshold acts where it is reached", step1, []step{
			{0, 0.8999, 0, Inactive}, {look, 0.9, 1, Saturated},
		}},
		{"a threshold lets go late", step1, []step{
			{0, 0.95, 1, Saturated}, {look, 0.5, 1, Saturated}, {look, 0.5, 1, Saturated},
			{look, 0.5, 1, Saturated}, {look, 0.5, 1, Saturated}, {look, 0.5, 0, Inactive},
		}},
		{"just below the threshold nothing ends", step1, []step{
			{0, 0.95, 1, Saturated}, {look, 0.89, 1, Saturated}, {10 * ScaleDownDelay, 0.89, 1, Saturated}, {10 * ScaleDownDelay, 0.88, 1, Saturated},
			{look, 0.87, 1, Saturated}, {ScaleDownDelay, 0.87, 0, Inactive},
		}},
		{"a pressure that comes back in time is not noticed", step1, []step{
			{0, 0.95, 1, Saturated}, {look, 0.5, 1, Saturated}, {look, 0.95, 1, Saturated}, {look, 0.5, 1, Saturated},
			{3 * look, 0.5, 1, Saturated}, {look, 0.5, 0, Inactive},
		}},
		{"a scaled one goes up in proportion", scaled, []step{
			{0, 0.5, 0, Inactive}, {look, 0.625, 0.25, Scaling}, {look, 0.75, 0.5, Scaling}, {look, 1, 1, Saturated}, {look, 1.7, 1, Saturated},
		}},
		{"a scaled one comes down late", scaled, []step{
			{0, 1, 1, Saturated}, {look, 0.75, 1, Saturated}, {look, 0.6, 1, Saturated}, {ScaleDownDelay, 0.625, 0.25, Scaling},
			{look, 0.75, 0.5, Scaling},
		}},
		{"a scaled one that wants nothing says so late", scaled, []step{
			{0, 0.75, 0.5, Scaling}, {look, 0.49, 0.5, Scaling}, {ScaleDownDelay, 0.49, 0, Scaling}, {10 * ScaleDownDelay, 0.49, 0, Scaling},
			{look, 0.625, 0.25, Scaling}, {look, 0.4, 0.25, Scaling}, {ScaleDownDelay, 0.4, 0, Inactive}, {look, 0.4, 0, Inactive},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := New(&config.Overload{
				Monitors: []config.Monitor{{Name: "memory"}},
				Actions:  []config.OverloadAction{{Name: config.ActionStopRequests, Triggers: []config.Trigger{tt.trigger}}},
			})
			now, before := time.Unix(0, 0), Inactive
			for i, s := range tt.steps {
				now = now.Add(s.after)
				got := j.Decide(now, []float64{s.pressure})[0]
				if got.Value != s.value || got.State != s.state {
					t.Errorf("look %d, pressure %v: %v, %v; want %v, %v", i, s.pressure, got.Value, got.State, s.value, s.state)
				}
				if got.Changed != (got.State != before) {
					t.Errorf("look %d: Turned = %v from %v to %v", i, got.Changed, before, got.State)
				}
				before = got.State
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
		memory, cpu   float64
		value         float64
		because       config.MonitorName
		idle          State
		becauseOfIdle config.MonitorName
	}{
		{0, 0, 0, "", Inactive, ""},
		{0.75, 0.6, 0.2, "cpu_utilization", Saturated, "memory"},
		{0.9, 0.6, 0.5, "memory", Saturated, "memory"},
		{0, 1, 1, "cpu_utilization", Inactive, ""},
	} {
		got := New(c).Decide(time.Unix(0, 0), []float64{tt.memory, tt.cpu})
		if v := got[0].Value; v < tt.value-1e-9 || v > tt.value+1e-9 || got[0].Monitor != tt.because {
			t.Errorf("memory %v, processors %v: %v because of %q, want %v because of %q", tt.memory, tt.cpu, v, got[0].Monitor, tt.value, tt.because)
		}
		if got[1].State != tt.idle || got[1].Monitor != tt.becauseOfIdle {
			t.Errorf("memory %v, processors %v: shrink_idle is %v because of %q", tt.memory, tt.cpu, got[1].State, got[1].Monitor)
		}
	}
}

// TestNoOscillation: pressure that an action relieves, and that comes back without it,
// as closing the door and opening it does, turns it once in a while at most.
func TestNoOscillation(t *testing.T) {
	j := New(&config.Overload{
		Monitors: []config.Monitor{{Name: "memory"}},
		Actions:  []config.OverloadAction{{Name: config.ActionStopRequests, Triggers: []config.Trigger{{Monitor: "memory", From: 0.9, To: 0.9}}}},
	})
	now, pressure, turns := time.Unix(0, 0), 0.85, 0
	for range 4 * 60 { // a minute
		v := j.Decide(now, []float64{pressure})[0]
		if v.Changed {
			turns++
		}
		if v.Value > 0 {
			pressure -= 0.01
		} else {
			pressure += 0.01
		}
		now = now.Add(250 * time.Millisecond)
	}
	if turns == 0 || turns > 45 {
		t.Errorf("it turned %d times in a minute", turns)
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	j := New(&config.Overload{
		Monitors: []config.Monitor{{Name: "memory"}},
		Actions:  []config.OverloadAction{{Name: config.ActionStopRequests, Triggers: []config.Trigger{{Monitor: "memory", From: 0.5, To: 1}}}},
	})
	pressures, now := []float64{0.7}, time.Unix(0, 0)
	if n := testing.AllocsPerRun(100, func() { j.Decide(now, pressures) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
