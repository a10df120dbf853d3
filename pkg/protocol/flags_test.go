package protocol

import "testing"

// TestFlagsNamesWithReason compares the names with the names in Envoy's access log.
func TestFlagsNamesWithReason(t *testing.T) {
	for _, tt := range []struct {
		flags  Flags
		reason Reason
		want   string
	}{
		{0, ReasonNone, "-"}, {0, ReasonNoRoute, "NR"}, {0, ReasonDenied, "-"}, {0, Unauthenticated, "-"},
		{DelayInjected, ReasonNone, "DI"}, {DelayInjected, FaultInjected, "DI,FI"}, {DelayInjected, UpstreamTimeout, "DI,UT"},
		{RetryLimitExceeded, ReasonNone, "URX"}, {RetryLimitExceeded, ConnectFailure, "URX,UF"},
		{RetryOverflow, ReasonNone, "UO"}, {RetryOverflow, ConnectFailure, "UO,UF"}, {RetryOverflow, Overflow, "UO"},
		{ExternallyDenied, ReasonDenied, "UAEX"}, {DelayInjected | RetryLimitExceeded, UpstreamReset, "DI,URX,UR"}, {HealthCheckFailed, ReasonNone, "LH"},
	} {
		if got := tt.flags.NamesWith(tt.reason); got != tt.want {
			t.Errorf("%b with %s: %q, want %q", tt.flags, tt.reason, got, tt.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = Flags(0).NamesWith(ReasonNoRoute) }); n != 0 {
		t.Errorf("NamesWith without flags: %v allocations, want 0", n)
	}
}
