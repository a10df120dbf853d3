package upstream

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// TestHostStatusJSON verifies that the reasons of a host that is down keep their names in JSON, and
// that a client reads them back.
func TestHostStatusJSON(t *testing.T) {
	for want, h := range map[string]HostStatus{
		`"health":"up","in_flight":0`:                                          {Health: HealthUp},
		`"health":"down","why":"unreachable, reported draining","in_flight":0`: {Health: HealthDown, DownReasons: hosthealth.Unreachable | hosthealth.ReportedDraining},
	} {
		text, err := json.Marshal(h)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("JSON = %s, %v, want it to contain %s", text, err, want)
		}
		var got HostStatus
		if err := json.Unmarshal(text, &got); err != nil || got.DownReasons != h.DownReasons {
			t.Errorf("DownReasons after Unmarshal = %v, %v, want %v", got.DownReasons, err, h.DownReasons)
		}
	}
}
