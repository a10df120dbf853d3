package protocol

import (
	"io"
	"testing"
)

func TestIsIdempotentMethod(t *testing.T) {
	for method, want := range map[string]bool{
		"GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true,
		"POST": false, "PATCH": false, "CONNECT": false, "get": false, "": false,
	} {
		if got := IsIdempotentMethod(method); got != want {
			t.Errorf("IsIdempotentMethod(%q) = %t, want %t", method, got, want)
		}
	}
}

// plainBody is a Body that is not a Rewinder.
type plainBody struct{ Body }

func TestRewindBody(t *testing.T) {
	b := NewStringBody("text")
	_, _ = io.ReadAll(b)
	if !RewindBody(b) || b.Buffered() != len("text") {
		t.Errorf("%d bytes are unread after RewindBody, want all", b.Buffered())
	}
	if !RewindBody(nil) {
		t.Error("RewindBody(nil) = false, want true")
	}
	if RewindBody(plainBody{b}) {
		t.Error("RewindBody = true for a body that is not a Rewinder, want false")
	}
}
