package protocol

import "testing"

// TestOverflowSetsEnvoyOverloaded verifies that only the local reply of an open circuit breaker has
// x-envoy-overloaded, as in Envoy.
func TestOverflowSetsEnvoyOverloaded(t *testing.T) {
	for reason, want := range map[Reason]string{Overflow: "true", ConnectFailure: "", Overloaded: ""} {
		x := new(Exchange)
		x.Reset()
		x.LocalReplyError(NewFault(reason, nil))
		if got := x.Response.Header.Get("x-envoy-overloaded"); got != want {
			t.Errorf("%v: x-envoy-overloaded is %q, want %q", reason, got, want)
		}
		if spec := reason.Spec(); x.Response.Status != spec.HTTP {
			t.Errorf("%v: status %d, want %d", reason, x.Response.Status, spec.HTTP)
		}
	}
}
