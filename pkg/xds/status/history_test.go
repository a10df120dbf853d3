package status

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestRemovedResourcesInHistory verifies which resources of an update with removals stay in the
// history: those whose removal was rejected, and secrets, which stay in use.
func TestRemovedResourcesInHistory(t *testing.T) {
	for name, c := range map[string]struct {
		url      string
		errs     []ads.ResourceError
		body     string // in the history afterwards; "": none
		remains  bool
		rejected bool
	}{
		"removal":          {url: resource.ClusterType},
		"rejected removal": {url: resource.ClusterType, errs: []ads.ResourceError{{Name: "a", Reason: "in use"}}, remains: true, rejected: true},
		"removed secret":   {url: resource.SecretType, remains: true, body: "first"},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			now := time.Unix(1, 0)
			first := ads.Resource{Name: "a", Version: "1", Body: []byte("first")}
			h.RecordUpdate(ads.Update{Type: c.url, Changed: []ads.Resource{first, {Name: "resources[1]", DecodeError: "no name"}}},
				[]ads.ResourceError{{Name: "resources[1]", Reason: "no name"}}, nil, now)
			accepted := map[string]ads.Resource{"a": first}
			for range 2 { // the second removal finds no accepted resource
				h.RecordUpdate(ads.Update{Type: c.url, Removed: []string{"a"}}, c.errs, accepted, now)
				if len(c.errs) == 0 {
					accepted = nil
				}
			}
			got := h.copyOf(c.url, accepted)
			if names := slices.Collect(maps.Keys(got)); (len(names) == 1) != c.remains || c.remains && names[0] != "a" {
				t.Fatalf("history = %q, want a in it: %t", names, c.remains)
			}
			body := ""
			if last := got["a"].removed; last != nil {
				body = string(last.Body)
			}
			if body != c.body || h.IsRejected(c.url, "a") != c.rejected {
				t.Errorf("body %q, rejected %t; want %q, %t", body, h.IsRejected(c.url, "a"), c.body, c.rejected)
			}
			h.Forget(c.url, []string{"a"})
			if remaining := h.copyOf(c.url, accepted); len(remaining) != 0 {
				t.Errorf("history after Forget = %v, want none", remaining)
			}
		})
	}
}
