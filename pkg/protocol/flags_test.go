package protocol

import "testing"

// TestFlagsNamesWithReason compares the names with those of Envoy's access log.
func TestFlagsNamesWithReason(t *testing.T) {
	for _, test := range []struct {
		flags  Flags
		reason Reason
		want   string
	}{
		{0, ReasonNone, "-"}, {0, ReasonNoRoute, "NR"}, {0, ReasonDenied, "-"}, {0, Unauthenticated, "-"},
		{DelayInjected, ReasonNone, "DI"}, {DelayInjected, FaultInjected, "DI,FI"}, {DelayInjected, UpstreamTimeout, "DI,UT"},
		{RetryLimitExceeded, ReasonNone, "URX"}, {RetryLimitExceeded, ConnectFailure, "URX,UF"},
		{ExternallyDenied, ReasonDenied, "UAEX"}, {DelayInjected | RetryLimitExceeded, UpstreamReset, "DI,URX,UR"},
	} {
		if got := test.flags.NamesWith(test.reason); got != test.want {
			t.Errorf("%b with %s: %q, want %q", test.flags, test.reason, got, test.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = Flags(0).NamesWith(ReasonNoRoute) }); n != 0 {
		t.Errorf("a reason alone costs %v allocations", n)
	}
}
