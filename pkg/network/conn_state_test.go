package network

import (
	"strings"
	"testing"
)

// reachableStates returns the states that legal events can reach.
func reachableStates() map[connState]bool {
	reachable := map[connState]bool{0: true}
	queue := []connState{0}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for e := range connEventCount {
			if after := s.after(e); s.legal(e) && !reachable[after] {
				reachable[after] = true
				queue = append(queue, after)
			}
		}
	}
	return reachable
}

// TestConnStateInvariants verifies that legal events reach exactly the states without contradictory
// bits.
func TestConnStateInvariants(t *testing.T) {
	consistent := func(s connState) bool {
		ends := s&(stateDraining|stateDrainAfterNext) != 0
		switch {
		case s&stateIdleSeen != 0 && s&stateParked == 0,
			s&stateShed != 0 && !ends,
			s&stateDrainExpiring != 0 && s&stateDraining == 0,
			// A drain waits for the first exchange.
			s.awaitsFirst() && s&stateDrainAfterNext == 0,
			s&stateAwaitFirst != 0 && s&stateNoExchange == 0 && s&stateDraining == 0:
			return false
		}
		return true
	}
	reachable := reachableStates()
	for s := range connState(1 << connStateBits) {
		if reachable[s] != consistent(s) {
			t.Errorf("%v: reachable %t, want %t", s, reachable[s], consistent(s))
		}
	}
}

// TestConnStateTransitions verifies that in every reachable state, each event changes only the bits
// that belong to it.
func TestConnStateTransitions(t *testing.T) {
	const drainBits = stateDraining | stateDrainAfterNext
	for e, bits := range map[connEvent]struct{ sets, clears, optional connState }{
		eventAccept:            {sets: stateNoExchange},
		eventIdle:              {sets: stateIdle},
		eventIdleAfterExchange: {sets: stateIdle, clears: stateNoExchange, optional: stateDraining},
		eventBusy:              {clears: stateIdle},
		eventPark:              {sets: stateParked},
		eventUnpark:            {clears: stateParked | stateIdleSeen},
		eventIdleSeen:          {optional: stateIdleSeen},
		eventDrainAfterNext:    {sets: stateDrainAfterNext},
		eventDrain:             {optional: drainBits},
		eventDrainAwaitFirst:   {sets: stateAwaitFirst, optional: drainBits},
		eventDrainNow:          {sets: stateDraining, clears: stateAwaitFirst},
		eventDrainExpiring:     {sets: stateDraining | stateDrainExpiring, clears: stateAwaitFirst},
		eventForceClose:        {sets: stateForceClosed},
		eventShed:              {sets: stateShed | stateDrainAfterNext},
		eventShedIdle:          {sets: stateShed, optional: drainBits},
		eventInterrupt:         {sets: stateInterrupted},
		eventResume:            {clears: stateInterrupted},
	} {
		for s := range reachableStates() {
			got, want := s.after(e), s&^bits.clears|bits.sets
			if got&^bits.optional != want&^bits.optional || got&bits.optional < s&bits.optional {
				t.Errorf("%v after event %d = %v, want %v, possibly with %v", s, e, got, want, bits.optional)
			}
		}
	}
}

// TestConnStateLifecycles verifies the states of typical connection lifecycles.
func TestConnStateLifecycles(t *testing.T) {
	for name, test := range map[string]struct {
		events            []connEvent
		want              connState
		endsAfterExchange bool
		wakesReader       bool
		reason            CloseReason // result of closeReason(ClosedDrained)
	}{
		"new":                       {[]connEvent{}, 0, false, false, ClosedDrained},
		"idle":                      {[]connEvent{eventAccept, eventIdle}, stateNoExchange | stateIdle, false, false, ClosedDrained},
		"idle again":                {[]connEvent{eventAccept, eventIdle, eventBusy, eventIdleAfterExchange}, stateIdle, false, false, ClosedDrained},
		"parked":                    {[]connEvent{eventPark, eventIdle}, stateParked | stateIdle, false, false, ClosedDrained},
		"parked, seen by CloseIdle": {[]connEvent{eventPark, eventIdle, eventIdleSeen}, stateParked | stateIdle | stateIdleSeen, false, false, ClosedDrained},
		"seen by CloseIdle after it was unparked": {
			[]connEvent{eventPark, eventIdle, eventUnpark, eventBusy, eventIdleSeen}, 0, false, false, ClosedDrained,
		},
		"idle, drained": {[]connEvent{eventIdle, eventDrain}, stateIdle | stateDraining, true, true, ClosedDrained},
		"busy, drained": {[]connEvent{eventDrain}, stateDraining, true, false, ClosedDrained},
		"busy, drained, then idle": {
			[]connEvent{eventDrain, eventIdleAfterExchange}, stateDraining | stateIdle, true, true, ClosedDrained,
		},
		"idle, drained after the next exchange": {
			[]connEvent{eventIdle, eventDrainAfterNext}, stateIdle | stateDrainAfterNext, true, false, ClosedDrained,
		},
		"drain awaits the first exchange": {
			[]connEvent{eventAccept, eventIdle, eventDrainAwaitFirst},
			stateNoExchange | stateIdle | stateAwaitFirst | stateDrainAfterNext, true, false, ClosedDrained,
		},
		"drain after the awaited exchange": {
			[]connEvent{eventAccept, eventIdle, eventDrainAwaitFirst, eventBusy, eventIdleAfterExchange},
			stateIdle | stateAwaitFirst | stateDrainAfterNext | stateDraining, true, true, ClosedDrained,
		},
		"drain expires before the first exchange": {
			[]connEvent{eventAccept, eventIdle, eventDrainAwaitFirst, eventDrainExpiring},
			stateNoExchange | stateIdle | stateDrainAfterNext | stateDraining | stateDrainExpiring, true, true, ClosedDrained,
		},
		"force-closed by a drain": {
			[]connEvent{eventDrain, eventForceClose}, stateDraining | stateForceClosed, true, false, ClosedDrainTimeout,
		},
		"overload": {[]connEvent{eventShed}, stateShed | stateDrainAfterNext, true, false, ClosedOverload},
		"overload, idle": {
			[]connEvent{eventPark, eventIdle, eventShedIdle}, stateParked | stateIdle | stateShed | stateDraining, true, true, ClosedOverload,
		},
		"overload, awaits the first exchange": {
			[]connEvent{eventAccept, eventDrainAwaitFirst, eventShedIdle},
			stateNoExchange | stateAwaitFirst | stateDrainAfterNext | stateShed, true, false, ClosedOverload,
		},
		"interrupted": {[]connEvent{eventInterrupt}, stateInterrupted, false, true, ClosedDrained},
		"resumed":     {[]connEvent{eventInterrupt, eventResume}, 0, false, false, ClosedDrained},
	} {
		var s connState
		for _, e := range test.events {
			if !s.legal(e) {
				t.Errorf("%s: event %d is illegal in %v, want a legal event", name, e, s)
			}
			s = s.after(e)
		}
		if s != test.want || s.endsAfterExchange() != test.endsAfterExchange || s.wakesReader() != test.wakesReader || s.closeReason(ClosedDrained) != test.reason {
			t.Errorf("%s: %v, last exchange %t, wakes the reader %t, reason %v; want %v, %t, %t, %v",
				name, s, s.endsAfterExchange(), s.wakesReader(), s.closeReason(ClosedDrained), test.want, test.endsAfterExchange, test.wakesReader, test.reason)
		}
	}
	if got := stateForceClosed.closeReason(ClosedByPeer); got != ClosedDrainTimeout {
		t.Errorf("closeReason of a force-closed connection = %v, want %v", got, ClosedDrainTimeout)
	}
	if got := stateShed.closeReason(ClosedByPeer); got != ClosedByPeer {
		t.Errorf("closeReason of a connection closed by its peer = %v, want %v", got, ClosedByPeer)
	}
}

// TestConnStateIllegal verifies which events are illegal in which states.
func TestConnStateIllegal(t *testing.T) {
	for e := range connEventCount {
		for s := range reachableStates() {
			want := false
			switch e {
			case eventAccept:
				want = s != 0 && s != stateNoExchange
			case eventPark:
				want = s&stateParked != 0
			case eventUnpark:
				want = s&stateParked == 0
			default:
			}
			if s.legal(e) == want {
				t.Errorf("event %d in %v: legal %t, want %t", e, s, want, !want)
			}
		}
	}
}

func TestConnStateString(t *testing.T) {
	if got := (stateIdle | stateDraining | stateInterrupted).String(); got != "{idle, draining, interrupted}" {
		t.Errorf("String = %s, want {idle, draining, interrupted}", got)
	}
	want := "{" + strings.ReplaceAll(stateNames, ",", ", ") + "}"
	if got := connState(1<<connStateBits - 1).String(); got != want {
		t.Errorf("String of all bits = %s, want %s", got, want)
	}
}
