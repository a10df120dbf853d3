package metrics

import (
	"testing"
	"time"
)

func TestScrapeReadsDiscoveryOnce(t *testing.T) {
	r := testRegistry()
	reads := 0
	r.Discovery(func() Discovery {
		reads++
		return Discovery{
			Registries: 1, ConnectedRegistries: 2, Published: 3, RegisteredServices: 4, Subscribed: 5, Providers: 6, WithoutSnapshot: 7, RestoredServices: 8, EmptyProtected: 9,
			OldestSnapshot: 1500 * time.Millisecond, Applied: 10, ApplyFailures: 11, StateFileFailures: 12,
		}
	})
	r.Counter(DiscoveryCalls, "/pub", ResultOK).Add(13)
	got := exported(t, r, "discovery_")
	wantLines(t, got,
		`discovery_api_calls_total{path="/pub",result="ok"} 13`,
		`discovery_changes_total{result="applied"} 10`,
		`discovery_changes_total{result="failed"} 11`,
		`discovery_list_age_seconds 1.5`,
		`discovery_providers 6`,
		`discovery_published 3`,
		`discovery_published_registered 4`,
		`discovery_registries 1`,
		`discovery_registries_connected 2`,
		`discovery_state_file_failures_total 12`,
		`discovery_subscribed 5`,
		`discovery_subscribed_pending 7`,
		`discovery_subscribed_restored 8`,
		`discovery_subscribed_retained 9`,
	)
	if reads != 1 {
		t.Errorf("the scrape called the function %d times, want 1", reads)
	}
}
