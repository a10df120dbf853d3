package hosthealth

import (
	"testing"
	"time"
)

func TestBackoffGrows(t *testing.T) {
	var s State
	now := time.Hour
	bounds := []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
		1600 * time.Millisecond, 3200 * time.Millisecond, 6400 * time.Millisecond,
		MaxBackoff, MaxBackoff, MaxBackoff,
	}
	for i, bound := range bounds {
		for _, random := range []uint64{0, 1 << 63, ^uint64(0)} {
			probe := State{failures: s.failures}
			if backoff, _, _ := probe.RecordFailure(now, random); backoff > bound || backoff <= bound-bound/4 {
				t.Errorf("backoff %d = %v, want at most %v, and at least three quarters of it", i+1, backoff, bound)
			}
		}
		backoff, first, _ := s.RecordFailure(now, 0)
		if first != (i == 0) {
			t.Errorf("failure %d: first = %v, want %v", i+1, first, i == 0)
		}
		now += backoff
	}
}

// TestFailuresDuringBackoffCountOnce verifies that concurrent exchanges that fail on an unreachable
// host count as one failure.
func TestFailuresDuringBackoffCountOnce(t *testing.T) {
	var s State
	for range 50 {
		s.RecordFailure(time.Second, 0)
	}
	if s.ProbeDue(time.Second+MinBackoff-1) || !s.ProbeDue(time.Second+MinBackoff) {
		t.Errorf("probe due at %v, want %v", time.Duration(s.probeAfter.Load()), time.Second+MinBackoff)
	}
}

func TestStateTransitions(t *testing.T) {
	type step struct {
		op   string
		at   time.Duration
		want bool
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"up until the first failure", []step{{"up", 0, true}, {"due", 0, false}, {"claim", 0, false}, {"fail", 1, true}, {"up", 1, false}}},
		{"one claim after the backoff", []step{
			{"fail", 1, true}, {"claim", 50 * time.Millisecond, false},
			{"claim", 200 * time.Millisecond, true}, {"claim", 201 * time.Millisecond, false},
		}},
		{"a probe without a result is due again", []step{
			{"fail", 1, true}, {"claim", 200 * time.Millisecond, true}, {"claim", 1200 * time.Millisecond, true},
		}},
		{"a failed probe begins a longer backoff", []step{
			{"fail", 1, true}, {"claim", 200 * time.Millisecond, true}, {"fail", 201 * time.Millisecond, false},
			{"due", 400 * time.Millisecond, false}, {"due", 401 * time.Millisecond, true},
		}},
		{"success brings the host up immediately", []step{
			{"fail", 1, true}, {"succeed", 2, true}, {"up", 2, true}, {"succeed", 3, false}, {"fail", 4, true},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s State
			for i, step := range tt.steps {
				var got bool
				switch step.op {
				case "up":
					got = s.Up()
				case "due":
					got = s.ProbeDue(step.at)
				case "claim":
					got = s.ClaimProbe(step.at, time.Second)
				case "fail":
					_, got, _ = s.RecordFailure(step.at, 0)
				case "succeed":
					got, _ = s.RecordSuccess()
				}
				if got != step.want {
					t.Fatalf("step %d, %s at %v: %v, want %v", i, step.op, step.at, got, step.want)
				}
			}
		})
	}
}
