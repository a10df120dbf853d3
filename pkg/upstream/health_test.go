package upstream

import (
	"testing"
	"time"
)

func TestHealthFlagsEndIndependently(t *testing.T) {
	type step struct {
		add, end HealthFlags
		turned   bool
		up, due  bool // afterwards, long after every pause
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"the first ailment turns the host, the last one's end turns it back", []step{
			{add: FlagFailedCheck, turned: true}, {add: FlagEjected}, {end: FlagFailedCheck}, {end: FlagEjected, turned: true, up: true},
		}},
		{"an ailment that it has already changes nothing", []step{{add: FlagEjected, turned: true}, {add: FlagEjected}}},
		{"the end of what it has not changes nothing", []step{{end: FlagFailedCheck, up: true}, {add: FlagEjected, turned: true}, {end: FlagFailedCheck}}},
		{"only a host that is nothing but unreachable is due", []step{
			{add: FlagUnreachable, turned: true, due: true}, {add: FlagFailedCheck}, {end: FlagFailedCheck, due: true}, {add: FlagEjected},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s healthState
			for i, step := range tt.steps {
				var turned bool
				if step.add != 0 {
					turned = s.set(step.add)
				} else {
					turned = s.clear(step.end)
				}
				if turned != step.turned || s.up() != step.up || s.probeDue(time.Hour) != step.due {
					t.Fatalf("step %d: turned %v, up %v, due %v, want %v, %v, %v", i, turned, s.up(), s.probeDue(time.Hour), step.turned, step.up, step.due)
				}
				if claimed := s.claimProbe(time.Hour, 0); claimed != step.due {
					t.Fatalf("step %d: claimed %v, want %v", i, claimed, step.due)
				}
			}
		})
	}
}

func TestChangedAddressResetsBackoff(t *testing.T) {
	var s healthState
	s.recordFailure(time.Minute, 0)
	if s.probeDue(time.Minute) {
		t.Fatal("it is due while its pause lasts")
	}
	s.resetBackoff()
	if !s.probeDue(time.Minute) || s.up() {
		t.Errorf("after it moved: due %v, up %v, want due, not up", s.probeDue(time.Minute), s.up())
	}
	if !s.claimProbe(time.Minute, time.Second) || s.probeDue(time.Minute) {
		t.Error("a trial is not claimed by one alone")
	}
}
