package http2

import "fmt"

// callState is the state of a call, guarded by UpstreamConn.mu. It determines which goroutine
// continues the call.
//
// The goroutine that works on a call owns it: first the one that opens its stream and sends its
// request, later the one that delivers an event while the call waits. While a goroutine owns a
// call, events only change its state.
//
//	working ── yield ──▶ waiting ── resolve ──▶ resolved (owned by the resolving goroutine)
//	   │  ▲                 │
//	   │  └───── claim ─────┘
//	   ├───── resolve ──▶ resolved (the owner continues instead of waiting)
//	   └── enqueue ──▶ queued ── open ──▶ working
//	                      └── resolve ──▶ resolved (owned by the resolving goroutine)
//
// An asynchronous call resumes its exchange on the goroutine that owns the call. A blocking call is
// never claimed, because its own goroutine waits in await and continues the call in every state.
// A blocking call that leaves the queue is in callOpened, or callResolvedBeforeUpload once it has a
// result, until its goroutine starts to upload the request's body.
type callState uint8

// States of a call.
const (
	callUnused               callState = iota // in the pool
	callWorking                               // a goroutine owns the call, which has no result yet
	callQueued                                // in UpstreamConn.pending, until a stream may be opened
	callOpened                                // blocking: left the queue; its goroutine has to upload the body
	callWaiting                               // waits for the response
	callResolved                              // has a result: a final response head, or an error
	callResolvedBeforeUpload                  // resolved in callOpened: its goroutine has to start the upload first
	numCallStates
)

// callEvent is an event that changes the state of a call.
type callEvent uint8

// Events of a call.
const (
	callEnqueue      callEvent = iota // no stream may be opened yet
	callOpen                          // asynchronous: its stream was opened from the queue
	callOpenBlocking                  // blocking: its stream was opened from the queue
	callYield                         // its goroutine begins to wait for an event
	callClaim                         // an event needs a goroutine, which then owns the call
	callUpload                        // its goroutine starts the upload
	callResolve                       // a final head has arrived, or the call has failed
	numCallEvents
)

// callTransitions holds the next state for each state and event. callUnused marks an event that
// must not happen in that state.
//
//nolint:gochecknoglobals // a constant table
var callTransitions = [numCallStates][numCallEvents]callState{
	callWorking:              {callEnqueue: callQueued, callYield: callWaiting, callResolve: callResolved},
	callQueued:               {callOpen: callWorking, callOpenBlocking: callOpened, callResolve: callResolved},
	callOpened:               {callUpload: callWaiting, callResolve: callResolvedBeforeUpload},
	callWaiting:              {callClaim: callWorking, callResolve: callResolved},
	callResolvedBeforeUpload: {callUpload: callResolved},
}

// transition changes the state because of an event. It panics if the event must not happen in the
// state.
func (s *callState) transition(e callEvent) {
	next := callTransitions[*s][e]
	if next == callUnused {
		panic(fmt.Sprintf("http2: event %d in call state %d", e, *s))
	}
	*s = next
}

// resolved reports whether the call has a result.
func (s callState) resolved() bool { return s == callResolved || s == callResolvedBeforeUpload }

// yield changes a call that has no result to callWaiting, and reports whether it did.
func (s *callState) yield() (waits bool) {
	if s.resolved() {
		return false
	}
	s.transition(callYield)
	return true
}

// claim makes the caller the owner of an asynchronous call that waits. It returns false if the call
// does not wait.
func (s *callState) claim() (claimed bool) {
	if *s != callWaiting {
		return false
	}
	s.transition(callClaim)
	return true
}

// startUpload reports whether the goroutine of a blocking call has to upload now. It returns true
// once.
func (s *callState) startUpload() bool {
	if *s != callOpened && *s != callResolvedBeforeUpload {
		return false
	}
	s.transition(callUpload)
	return true
}

// resolve records that the call has a result. It reports whether the caller now owns the call,
// because no other goroutine owned it. A blocking call continues on its own goroutine in any case.
func (s *callState) resolve() (nowOwner bool) {
	nowOwner = *s == callWaiting || *s == callQueued
	s.transition(callResolve)
	return nowOwner
}
