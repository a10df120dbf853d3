package http2

import (
	"errors"
	"testing"
	"time"
)

// TestUnsolicitedPingAckFlood verifies, on both sides, that acknowledgements of PING frames that
// the session never sent are limited like PING frames.
func TestUnsolicitedPingAckFlood(t *testing.T) {
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
				t.Fatalf("role %d: an unsolicited acknowledgement is the event %v, want none", role, e.Kind)
			}
		}
		var connErr *ConnectionError
		if !errors.As(err, &connErr) || connErr.Flood != FloodPing || connErr.Code != EnhanceYourCalm {
			t.Fatalf("role %d: after %d unsolicited acknowledgements: %v, want the flood %v", role, handled, err, FloodPing)
		}
		if handled != 101 {
			t.Errorf("role %d: %d unsolicited acknowledgements were handled, want 101: the burst of 100 and one that exceeds it", role, handled)
		}
	}
}

// TestSolicitedPingAcksAreFree verifies that acknowledgements of the session's PING frames are not
// limited.
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
