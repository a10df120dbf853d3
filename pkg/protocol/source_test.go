package protocol

import (
	"testing"
	"time"
)

func TestLocalReplyResetsSource(t *testing.T) {
	for name, answer := range map[string]func(x *Exchange){
		"Reply":         func(x *Exchange) { x.LocalReply(200, "", "") },
		"Fail":          func(x *Exchange) { x.LocalReplyError(NewFault(UpstreamTimeout, nil)) },
		"ResetResponse": func(x *Exchange) { x.ResetResponse() },
		"Reset":         func(x *Exchange) { x.Reset() },
	} {
		var x Exchange
		x.Response.Source = UpstreamResponse
		answer(&x)
		if x.Response.Source != LocalReply {
			t.Errorf("%s leaves the source at %v", name, x.Response.Source)
		}
	}
}

// TestBeginAttemptClearsTimes checks that an attempt that never reaches its
// host has no times of sending and response.
func TestBeginAttemptClearsTimes(t *testing.T) {
	var r Record
	r.UpstreamStart, r.UpstreamFirstByte = time.Unix(1, 0), time.Unix(2, 0)
	r.BeginAttempt(nil)
	if len(r.Attempts) != 1 || !r.UpstreamStart.IsZero() || !r.UpstreamFirstByte.IsZero() {
		t.Errorf("got %+v, want one attempt and no times", r)
	}
}
