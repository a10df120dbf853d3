package upstream

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestHealthFlagsText(t *testing.T) {
	for flags, want := range map[HealthFlags]string{
		0:                             "",
		FlagUnreachable:               "unreachable",
		FlagFailedCheck | FlagEjected: "failing checks, ejected",
		FlagReportedUnhealthy:         "reported unfit",
		FlagReportedDraining:          "leaving",
	} {
		if got := flags.String(); got != want {
			t.Errorf("HealthFlags(%d) = %q, want %q", flags, got, want)
		}
		var got HealthFlags
		if err := got.UnmarshalText([]byte(want)); err != nil || got != flags {
			t.Errorf("UnmarshalText(%q) = %d, %v, want %d", want, got, err, flags)
		}
	}
	var f HealthFlags
	if err := f.UnmarshalText([]byte("ejected, tired")); err == nil || !strings.Contains(err.Error(), `"tired"`) {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestHostStatusJSON verifies that the reasons of a host that is down keep their names in JSON, and
// that a client reads them back.
func TestHostStatusJSON(t *testing.T) {
	for want, h := range map[string]HostStatus{
		`"health":"up","in_flight":0`:                                {Health: HealthUp},
		`"health":"down","why":"unreachable, leaving","in_flight":0`: {Health: HealthDown, DownReasons: FlagUnreachable | FlagReportedDraining},
	} {
		text, err := json.Marshal(h)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the JSON is %s, %v, want %s in it", text, err, want)
		}
		var got HostStatus
		if err := json.Unmarshal(text, &got); err != nil || got.DownReasons != h.DownReasons {
			t.Errorf("the JSON is read as %v, %v, want %v", got.DownReasons, err, h.DownReasons)
		}
	}
}
