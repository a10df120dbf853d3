package http2

import "testing"

func TestCallTransitions(t *testing.T) {
	const none = callUnused
	for state, want := range map[callState][numCallEvents]callState{
		// enqueue, open, open blocking, yield, claim, upload, resolve
		callUnused:               {none, none, none, none, none, none, none},
		callWorking:              {callQueued, none, none, callWaiting, none, none, callResolved},
		callQueued:               {none, callWorking, callOpened, none, none, none, callResolved},
		callOpened:               {none, none, none, none, none, callWaiting, callResolvedBeforeUpload},
		callWaiting:              {none, none, none, none, callWorking, none, callResolved},
		callResolved:             {none, none, none, none, none, none, none},
		callResolvedBeforeUpload: {none, none, none, none, none, callResolved, none},
	} {
		for event := range numCallEvents {
			if got := stateAfter(state, event); got != want[event] {
				t.Errorf("event %d in state %d: state %d, want %d", event, state, got, want[event])
			}
		}
	}
}

// stateAfter returns the state after an event, or callUnused if the event panics.
func stateAfter(s callState, e callEvent) (after callState) {
	defer func() {
		if recover() != nil {
			after = callUnused
		}
	}()
	s.transition(e)
	return s
}

func TestCallState(t *testing.T) {
	tests := []struct {
		name   string
		state  callState
		method func(*callState) bool
		want   bool
		after  callState
	}{
		{"yield of a working call", callWorking, (*callState).yield, true, callWaiting},
		{"yield of a resolved call", callResolved, (*callState).yield, false, callResolved},
		{"claim of a waiting call", callWaiting, (*callState).claim, true, callWorking},
		{"claim of a working call", callWorking, (*callState).claim, false, callWorking},
		{"claim of a resolved call", callResolved, (*callState).claim, false, callResolved},
		{"startUpload of an opened call", callOpened, (*callState).startUpload, true, callWaiting},
		{"startUpload of a resolved opened call", callResolvedBeforeUpload, (*callState).startUpload, true, callResolved},
		{"startUpload of a waiting call", callWaiting, (*callState).startUpload, false, callWaiting},
		{"startUpload of a resolved call", callResolved, (*callState).startUpload, false, callResolved},
		{"resolve of a working call", callWorking, (*callState).resolve, false, callResolved},
		{"resolve of a waiting call", callWaiting, (*callState).resolve, true, callResolved},
		{"resolve of a queued call", callQueued, (*callState).resolve, true, callResolved},
		{"resolve of an opened call", callOpened, (*callState).resolve, false, callResolvedBeforeUpload},
	}
	for _, tt := range tests {
		s := tt.state
		if got := tt.method(&s); got != tt.want || s != tt.after {
			t.Errorf("%s: %t in state %d, want %t in state %d", tt.name, got, s, tt.want, tt.after)
		}
	}
}
