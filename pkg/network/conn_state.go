package network

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/invariants"
)

// connState is the state of a Conn, as a set of bits. connTransitions lists the effect of each
// event. All bits are in one word, so that a reader that begins to wait and a goroutine that drains
// the connection at the same moment cannot miss each other.
//
// The bits form four groups. First, what the reader does. The reading goroutine changes these bits.
// Listener.CloseIdle sets stateIdleSeen for the parked connections that it records:
//
//	          eventIdle           eventPark            eventIdleSeen
//	busy ──────────────────▶ idle ──────────▶ parked ──────────────────▶ parked, seen idle
//	 ▲ ▲      eventBusy       │                 │                               │
//	 │ └──────────────────────┘                 │ eventUnpark                   │
//	 └──────────────────────────────────────────┴───────────────────────────────┘
//
// Listener.park applies eventPark before eventIdle, and eventUnpark before eventBusy: a parked
// connection is idle except for a moment.
//
// Second, how the connection ends. Any goroutine may cause a transition. No transition goes back,
// and states may be skipped. When the connection drains, an idle reader wakes up and gets
// ErrDraining, unless bytes of another exchange have arrived; a busy reader finishes its exchange:
//
//	open ──▶ draining after the next exchange ──▶ draining ──▶ drain expiring ──▶ force-closed
//	      eventDrainAfterNext          eventDrain     eventDrainExpiring   eventForceClose
//	      eventShed                    eventShedIdle
//
// stateShed is set next to these bits when overload is the reason. A closed connection has no bit:
// see closeHooks.
//
// Third, the first exchange of an accepted connection. A drain with eventDrainAwaitFirst ends a
// fresh connection only after that exchange, because the client does not expect a new connection to
// close. A dialed connection has none of these bits:
//
//	accepted ── eventAccept ──▶ no exchange ── eventIdleAfterExchange ──▶ (an awaited drain begins)
//
// Fourth, stateInterrupted, from eventInterrupt to eventResume: the reader gets ErrInterrupted.
type connState uint32

const (
	stateIdle           connState = 1 << iota // the reader waits between exchanges
	stateParked                               // the listener waits for bytes, outside of the handler
	stateIdleSeen                             // the connection has stayed parked since CloseIdle recorded it
	stateDrainAfterNext                       // like stateDraining, but an idle connection may have one more exchange
	stateDraining                             // the connection ends after its current exchange
	stateDrainExpiring                        // the drain deadline is near
	stateForceClosed                          // the connection did not end before the drain deadline
	stateShed                                 // the connection ends because of overload
	stateNoExchange                           // a listener accepted the connection, and it has had no exchange yet
	stateAwaitFirst                           // a drain lets a fresh connection have its first exchange
	stateInterrupted                          // the reader must return

	connStateBits = iota
)

// stateNames are the names of the bits, lowest first.
const stateNames = "idle,parked,idle seen,drain after next,draining,drain expiring,force-closed,shed,no exchange,await first,interrupted"

// connEvent changes a connState.
type connEvent uint8

const (
	eventAccept            connEvent = iota // a listener has accepted the connection
	eventIdle                               // the reader begins to wait; there was no exchange yet
	eventIdleAfterExchange                  // the reader begins to wait; there was an exchange
	eventBusy                               // the reader has bytes of an exchange, or no longer waits for one
	eventPark                               // the listener begins to wait for bytes
	eventUnpark                             // the listener stops waiting
	eventIdleSeen                           // CloseIdle has recorded the connection
	eventDrainAfterNext                     // the connection must end after its current or next exchange
	eventDrain                              // the connection must end after its current exchange, or now if it is idle
	eventDrainAwaitFirst                    // eventDrain that lets a fresh connection have its first exchange
	eventDrainNow                           // eventDrain without a first exchange, even if an earlier drain allowed it
	eventDrainExpiring                      // eventDrainNow when the drain deadline is near
	eventForceClose                         // the drain deadline has passed
	eventShed                               // eventDrainAfterNext because of overload
	eventShedIdle                           // eventDrain because of overload
	eventInterrupt                          // the reader must return
	eventResume                             // the reader may wait again

	connEventCount
)

// connTransition is the effect of an event: which bits it clears and sets. rule, if not nil,
// returns the state that replaces after.
type connTransition struct {
	clears, sets connState
	rule         func(before, after connState) connState
}

//nolint:gochecknoglobals // a constant table
var connTransitions = [connEventCount]connTransition{
	eventAccept:            {sets: stateNoExchange},
	eventIdle:              {sets: stateIdle},
	eventIdleAfterExchange: {clears: stateNoExchange, sets: stateIdle, rule: beginAwaitedDrain},
	eventBusy:              {clears: stateIdle},
	eventPark:              {sets: stateParked},
	eventUnpark:            {clears: stateParked | stateIdleSeen},
	eventIdleSeen:          {sets: stateIdleSeen, rule: ifParked},
	eventDrainAfterNext:    {sets: stateDrainAfterNext},
	eventDrain:             {rule: drainUnlessAwaiting},
	eventDrainAwaitFirst:   {sets: stateAwaitFirst, rule: drainUnlessAwaiting},
	eventDrainNow:          {clears: stateAwaitFirst, rule: drainUnlessAwaiting},
	eventDrainExpiring:     {clears: stateAwaitFirst, sets: stateDrainExpiring, rule: drainUnlessAwaiting},
	eventForceClose:        {sets: stateForceClosed},
	eventShed:              {sets: stateShed | stateDrainAfterNext},
	eventShedIdle:          {sets: stateShed, rule: drainUnlessAwaiting},
	eventInterrupt:         {sets: stateInterrupted},
	eventResume:            {clears: stateInterrupted},
}

// after returns the state after e.
func (s connState) after(e connEvent) connState {
	t := &connTransitions[e]
	next := s&^t.clears | t.sets
	if t.rule != nil {
		return t.rule(s, next)
	}
	return next
}

// drainUnlessAwaiting makes the current exchange the last one. If a drain waits for the first
// exchange, that exchange will be the last one.
func drainUnlessAwaiting(_, after connState) connState {
	if after.awaitsFirst() {
		return after | stateDrainAfterNext
	}
	return after | stateDraining
}

// beginAwaitedDrain drains a connection whose first exchange has ended, if a drain waited for that
// exchange.
func beginAwaitedDrain(before, after connState) connState {
	if before.awaitsFirst() {
		return after | stateDraining
	}
	return after
}

// ifParked discards the change if the connection is not parked.
func ifParked(before, after connState) connState {
	if before&stateParked == 0 {
		return before
	}
	return after
}

// legal reports whether e may occur in the state s. Only eventAccept, eventPark and eventUnpark
// have conditions; every other event may occur at any time.
func (s connState) legal(e connEvent) bool {
	switch e {
	case eventAccept: // before any other goroutine has access to the connection
		return s&^stateNoExchange == 0
	case eventPark:
		return s&stateParked == 0
	case eventUnpark:
		return s&stateParked != 0
	default:
		return true
	}
}

// awaitsFirst reports whether a drain waits for the first exchange.
func (s connState) awaitsFirst() bool {
	const bits = stateNoExchange | stateAwaitFirst
	return s&bits == bits
}

// idle reports whether the reader waits between exchanges.
func (s connState) idle() bool { return s&stateIdle != 0 }

// endsAfterExchange reports whether the connection ends after its current exchange.
func (s connState) endsAfterExchange() bool { return s&(stateDraining|stateDrainAfterNext) != 0 }

// drainingWhileIdle reports whether the connection drains while its reader waits between exchanges:
// the reader must stop waiting.
func (s connState) drainingWhileIdle() bool {
	const bits = stateDraining | stateIdle
	return s&bits == bits
}

// interrupted reports whether the reader must return ErrInterrupted.
func (s connState) interrupted() bool { return s&stateInterrupted != 0 }

// wakesReader reports whether a waiting reader must wake up although no bytes have arrived.
func (s connState) wakesReader() bool { return s.interrupted() || s.drainingWhileIdle() }

// closeReason returns the close reason of a connection whose handler has set reason: a forced close
// replaces every reason, overload only ClosedDrained.
func (s connState) closeReason(reason CloseReason) CloseReason {
	switch {
	case s&stateForceClosed != 0:
		return ClosedDrainTimeout
	case s&stateShed != 0 && reason == ClosedDrained:
		return ClosedOverload
	}
	return reason
}

// String lists the bits that are set.
func (s connState) String() string {
	var names []string
	for i, name := range strings.Split(stateNames, ",") {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// atomicConnState holds the current connState of a Conn. Safe for concurrent use.
type atomicConnState struct{ bits atomic.Uint32 }

func (a *atomicConnState) load() connState { return connState(a.bits.Load()) }

// apply applies e and returns the state after it.
func (a *atomicConnState) apply(e connEvent) connState {
	for {
		before := a.load()
		if invariants.Enabled && !before.legal(e) {
			panic(fmt.Sprintf("network: event %d of a connection in state %v", e, before))
		}
		after := before.after(e)
		if after == before || a.bits.CompareAndSwap(uint32(before), uint32(after)) {
			return after
		}
	}
}
