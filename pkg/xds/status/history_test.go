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
		url     string
		wrong   []ads.ResourceError
		body    string // in the history afterwards; "": none
		stays   bool
		refused bool
	}{
		"removal":          {url: resource.ClusterType},
		"rejected removal": {url: resource.ClusterType, wrong: []ads.ResourceError{{Name: "a", Reason: "in use"}}, stays: true, refused: true},
		"removed secret":   {url: resource.SecretType, stays: true, body: "first"},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			now := time.Unix(1, 0)
			one := ads.Resource{Name: "a", Version: "1", Body: []byte("first")}
			h.RecordUpdate(ads.Update{Type: c.url, Changed: []ads.Resource{one, {Name: "resources[1]", DecodeError: "no name"}}},
				[]ads.ResourceError{{Name: "resources[1]", Reason: "no name"}}, nil, now)
			held := map[string]ads.Resource{"a": one}
			for range 2 { // the second removal finds no accepted resource
				h.RecordUpdate(ads.Update{Type: c.url, Removed: []string{"a"}}, c.wrong, held, now)
				if len(c.wrong) == 0 {
					held = nil
				}
			}
			all := h.copyOf(c.url, held)
			if names := slices.Collect(maps.Keys(all)); (len(names) == 1) != c.stays || c.stays && names[0] != "a" {
				t.Fatalf("history = %q, want a in it: %t", names, c.stays)
			}
			body := ""
			if last := all["a"].removed; last != nil {
				body = string(last.Body)
			}
			if body != c.body || h.IsRejected(c.url, "a") != c.refused {
				t.Errorf("body %q, rejected %t; want %q, %t", body, h.IsRejected(c.url, "a"), c.body, c.refused)
			}
			h.Forget(c.url, []string{"a"})
			if left := h.copyOf(c.url, held); len(left) != 0 {
				t.Errorf("history after Forget = %v, want none", left)
			}
		})
	}
}
