package hosthealth

import (
	"strings"
	"testing"
)

func TestFlagsText(t *testing.T) {
	for flags, want := range map[Flags]string{
		0:                     "",
		Unreachable:           "unreachable",
		FailedCheck | Ejected: "failing checks, ejected",
		ReportedUnhealthy:     "reported unhealthy",
		ReportedDraining:      "reported draining",
	} {
		if got := flags.String(); got != want {
			t.Errorf("Flags(%d) = %q, want %q", flags, got, want)
		}
		var got Flags
		if err := got.UnmarshalText([]byte(want)); err != nil || got != flags {
			t.Errorf("UnmarshalText(%q) = %d, %v, want %d", want, got, err, flags)
		}
	}
	var f Flags
	if err := f.UnmarshalText([]byte("ejected, unknown")); err == nil || !strings.Contains(err.Error(), `"unknown"`) {
		t.Errorf("UnmarshalText of an unknown name: %v; want an error that names it", err)
	}
}
