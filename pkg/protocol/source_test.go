package protocol

import (
	"testing"
	"time"
)

func TestLocalReplyResetsSource(t *testing.T) {
	for name, reset := range map[string]func(x *Exchange){
		"LocalReply":      func(x *Exchange) { x.LocalReply(200, "", "") },
		"LocalReplyError": func(x *Exchange) { x.LocalReplyError(NewFault(UpstreamTimeout, nil)) },
		"ResetResponse":   func(x *Exchange) { x.ResetResponse() },
		"Reset":           func(x *Exchange) { x.Reset() },
	} {
		var x Exchange
		x.Response.Source = UpstreamResponse
		reset(&x)
		if x.Response.Source != LocalReply {
			t.Errorf("source %v after %s, want LocalReply", x.Response.Source, name)
		}
	}
}

// TestBeginAttemptClearsTimes verifies that BeginAttempt clears the times of the previous attempt.
func TestBeginAttemptClearsTimes(t *testing.T) {
	var r Record
	r.UpstreamStart, r.UpstreamFirstByte = time.Unix(1, 0), time.Unix(2, 0)
	r.BeginAttempt(nil)
	if len(r.Attempts) != 1 || !r.UpstreamStart.IsZero() || !r.UpstreamFirstByte.IsZero() {
		t.Errorf("got %+v, want one attempt and no times", r)
	}
}
