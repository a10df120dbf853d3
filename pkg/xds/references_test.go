package xds

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestReferencesAreCounted verifies that the reference counts are correct after random updates,
// with and without on-demand resources.
func TestReferencesAreCounted(t *testing.T) {
	secrets := xdstest.Secrets(t)
	for name, mode := range modes() {
		for _, onDemand := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/on-demand=%v", name, onDemand), func(t *testing.T) {
				for seed := range uint64(40) {
					r := rand.New(rand.NewPCG(seed, 9))
					p := newFakeControlPlane(mode)
					s, _, h := newHistorySource(t, p, name, onDemand)
					s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
					p.readRequests(s)
					for range 150 {
						switch r.IntN(8) {
						case 0:
							if onDemand {
								h.subscribe(func() bool { return r.IntN(3) == 0 })
							}
						case 1:
							if onDemand {
								h.unsubscribe(func() bool { return r.IntN(3) == 0 })
							}
						default:
							p.randomStep(t, s, r, secrets)
						}
						s.updateSubscriptions() // the state may have changed since the last call
						checkInvariants(t, s, seed)
					}
				}
			})
		}
	}
}

// TestReplacedReferencesAreUnsubscribed verifies that endpoints of a replaced cluster are
// unsubscribed as soon as the replacement is active: with its endpoints, or after its timeout.
func TestReplacedReferencesAreUnsubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
		s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
		checkSubscribed := func(label string, want ...string) {
			t.Helper()
			if _, names := s.channels[0].client.Subscription(resource.EndpointType); !slices.Equal(names, want) {
				t.Errorf("%s: subscribed to endpoints %q, want %q", label, names, want)
			}
		}
		respondWith(t, s, xdstest.Cluster("c", "e1", "", 0), xdstest.Endpoints("e1", 1))
		respondWith(t, s, xdstest.Cluster("c", "e2", "", 0))
		checkSubscribed("before the new endpoints", "e1", "e2")
		respondWith(t, s, xdstest.Endpoints("e2", 1))
		checkSubscribed("after the new endpoints", "e2")
		respondWith(t, s, xdstest.Cluster("c", "e3", "", time.Second))
		time.Sleep(time.Second)
		s.onDeadline(t.Context())
		checkSubscribed("after the timeout", "e3")
		s.deadlineTimer.Stop()
	})
}
