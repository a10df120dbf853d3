package http2

import (
	"errors"
	"testing"
	"time"
)

// TestUnsolicitedPingAcksAreAFlood verifies, on both sides, that acknowledgements of PING
// frames which the session never sent are limited like PING frames.
func TestUnsolicitedPingAcksAreAFlood(t *testing.T) {
	now := time.Unix(0, 0)
	for _, role := range []Role{Server, Client} {
		s := NewSession(Config{Role: role})
		s.settingsReceived = true
		ack, _, err := ParseFrame(AppendPing(nil, true, [8]byte{7}), MinFrameSize)
		if err != nil {
			t.Fatal(err)
		}
		handled := 0
		for ; err == nil && handled < 1000; handled++ {
			var e Event
			if _, err = s.Handle(nil, ack, now, &e); err == nil && e.Kind != NoEvent {
				t.Fatalf("role %d: an unsolicited acknowledgement is the event %v, want nothing", role, e.Kind)
			}
		}
		var wrong *ConnectionError
		if !errors.As(err, &wrong) || wrong.Flood != FloodPing || wrong.Code != EnhanceYourCalm {
			t.Fatalf("role %d: after %d unsolicited acknowledgements: %v, want the flood %v", role, handled, err, FloodPing)
		}
		if handled != 101 {
			t.Errorf("role %d: %d unsolicited acknowledgements were taken, want the budget of 100 and the one that exceeds it", role, handled)
		}
	}
}

// TestSolicitedPingAcksAreFree verifies that acknowledgements of the session's PING frames
// are not limited.
func TestSolicitedPingAcksAreFree(t *testing.T) {
	now := time.Unix(0, 0)
	s := NewSession(Config{Role: Server})
	s.settingsReceived = true
	for i := range 1000 {
		ping, _, err := ParseFrame(s.AppendPing(nil, uint64(i)), MinFrameSize)
		if err != nil {
			t.Fatal(err)
		}
		ping.Flags |= FlagAck
		var e Event
		_, err = s.Handle(nil, ping, now, &e)
		if err != nil || e.Kind != PingAcked || e.Ping != uint64(i) {
			t.Fatalf("acknowledgement %d: %v, %+v, want the event %v", i, err, e, PingAcked)
		}
	}
}
