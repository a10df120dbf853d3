package hosthealth

import (
	"testing"
	"time"
)

func TestHealthFlagsEndIndependently(t *testing.T) {
	type step struct {
		add, end Flags
		changed  bool
		up, due  bool // state after the step, long after every backoff
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"the first flag takes the host down, the end of the last one brings it up", []step{
			{add: FailedCheck, changed: true}, {add: Ejected}, {end: FailedCheck}, {end: Ejected, changed: true, up: true},
		}},
		{"setting a flag again changes nothing", []step{{add: Ejected, changed: true}, {add: Ejected}}},
		{"clearing an absent flag changes nothing", []step{{end: FailedCheck, up: true}, {add: Ejected, changed: true}, {end: FailedCheck}}},
		{"only a host with no flag but unreachable is due", []step{
			{add: Unreachable, changed: true, due: true}, {add: FailedCheck}, {end: FailedCheck, due: true}, {add: Ejected},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s State
			for i, step := range tt.steps {
				var changed bool
				if step.add != 0 {
					changed = s.Set(step.add)
				} else {
					changed = s.Clear(step.end)
				}
				if changed != step.changed || s.Up() != step.up || s.ProbeDue(time.Hour) != step.due {
					t.Fatalf("step %d: changed %v, up %v, due %v, want %v, %v, %v", i, changed, s.Up(), s.ProbeDue(time.Hour), step.changed, step.up, step.due)
				}
				if claimed := s.ClaimProbe(time.Hour, 0); claimed != step.due {
					t.Fatalf("step %d: ClaimProbe = %v, want %v", i, claimed, step.due)
				}
			}
		})
	}
}

func TestChangedAddressResetsBackoff(t *testing.T) {
	var s State
	s.RecordFailure(time.Minute, 0)
	if s.ProbeDue(time.Minute) {
		t.Fatal("the host is due during its backoff")
	}
	s.ResetBackoff()
	if !s.ProbeDue(time.Minute) || s.Up() {
		t.Errorf("after the address changed: due %v, up %v, want due and not up", s.ProbeDue(time.Minute), s.Up())
	}
	if !s.ClaimProbe(time.Minute, time.Second) || s.ProbeDue(time.Minute) {
		t.Error("the probe was not claimed or is still due")
	}
}
