package xds

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// referencedNames has the sorted names of the resources that clusters and listeners, active or
// received, refer to.
type referencedNames struct {
	assignments, tables, extensions []string
	secrets                         []resource.SecretRef
}

// referenced returns what clusters and listeners refer to. It does not use the reference counts.
func (w *state) referenced() referencedNames {
	assignments, tables, secrets, extensions := map[string]bool{}, map[string]bool{}, map[resource.SecretRef]bool{}, map[string]bool{}
	for name, s := range w.clusters {
		for _, c := range []*resource.Cluster{s.received, s.active} {
			if c == nil {
				continue
			}
			if c.EDSServiceName != "" && w.requestsEndpoints(name) {
				assignments[c.EDSServiceName] = true
			}
			addKeys(secrets, c.Secrets())
		}
	}
	for _, s := range w.listeners {
		for _, l := range []*resource.Listener{s.received, s.active} {
			if l != nil {
				addKeys(tables, w.requestedTables(l.RouteConfigNames))
				addKeys(secrets, l.Secrets())
				for _, slot := range l.DynamicFilters {
					extensions[slot.Name] = true
				}
			}
		}
	}
	return referencedNames{
		assignments: slices.Sorted(maps.Keys(assignments)),
		tables:      slices.Sorted(maps.Keys(tables)),
		extensions:  slices.Sorted(maps.Keys(extensions)),
		secrets:     slices.SortedFunc(maps.Keys(secrets), resource.SecretRef.Compare),
	}
}

// countedNames returns the names that have a reference count.
func (r *references) countedNames() referencedNames {
	return referencedNames{
		assignments: slices.Sorted(maps.Keys(r.assignments.counts)),
		tables:      slices.Sorted(maps.Keys(r.tables.counts)),
		extensions:  slices.Sorted(maps.Keys(r.extensions.counts)),
		secrets:     slices.SortedFunc(maps.Keys(r.secrets.counts), resource.SecretRef.Compare),
	}
}

// checkReferenceCounts fails t if the reference counts of w are wrong, or if w keeps resources or
// dependents that nothing refers to. w has no pending subscription changes.
func (w *state) checkReferenceCounts(t *testing.T, seed uint64) {
	t.Helper()
	want := w.referenced()
	if got := w.references.countedNames(); !reflect.DeepEqual(got, want) {
		t.Fatalf("seed %d: counted are %+v, want %+v", seed, got, want)
	}
	asleep := 0
	for name, c := range w.clusters {
		if c.received != nil && c.received.EDSServiceName != "" && !w.requestsEndpoints(name) {
			asleep++
		}
	}
	if w.references.unsubscribed != asleep {
		t.Fatalf("seed %d: %d clusters are counted as unsubscribed, want %d", seed, w.references.unsubscribed, asleep)
	}
	only := func(what string, names []string, kept ...[]string) {
		for _, all := range kept {
			for _, name := range all {
				if !slices.Contains(names, name) {
					t.Fatalf("seed %d: of %s is kept %q, want at most %q", seed, what, name, names)
				}
			}
		}
	}
	keys := func(m map[string]map[string]bool) []string { return slices.Collect(maps.Keys(m)) }
	only("endpoints", want.assignments, slices.Collect(maps.Keys(w.assignments)), keys(w.dependents.assignments))
	only("routes", want.tables, slices.Collect(maps.Keys(w.tables)), keys(w.dependents.tables))
	only("filters", want.extensions, slices.Collect(maps.Keys(w.extensions)), keys(w.dependents.extensions))
	for _, all := range []map[resource.SecretRef]map[string]bool{w.dependents.clusterSecrets, w.dependents.listenerSecrets} {
		for ref := range all {
			if !slices.Contains(want.secrets, ref) {
				t.Fatalf("seed %d: secret %v has users, but no resource refers to it", seed, ref)
			}
		}
	}
	if l := w.onDemand; l != nil {
		only("those awake", slices.Collect(maps.Keys(w.clusters)), slices.Collect(maps.Keys(l.clusters.entries)))
		only("those awake", want.tables, slices.Collect(maps.Keys(l.tables.entries)))
	}
}

// TestReferencesAreCounted verifies that reference counts are right after random updates, with and
// without on-demand resources, and that nothing else is kept.
func TestReferencesAreCounted(t *testing.T) {
	secrets := xdstest.Secrets(t)
	for name, form := range modes() {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lazy=%v", name, leaves), func(t *testing.T) {
				for seed := range uint64(40) {
					r := rand.New(rand.NewPCG(seed, 9))
					p := newFakeControlPlane(form)
					s, _ := newTestSourceOf(t, xdstest.LayeredBootstrap(name), slog.New(slog.DiscardHandler))
					var l *onDemandHistory
					if leaves {
						l = newOnDemandHistory(t, p, s)
					}
					s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
					p.readRequests(s)
					for range 150 {
						switch r.IntN(8) {
						case 0:
							if leaves {
								l.subscribe(func() bool { return r.IntN(3) == 0 })
							}
						case 1:
							if leaves {
								l.unsubscribe(func() bool { return r.IntN(3) == 0 })
							}
						default:
							p.randomStep(t, s, r, secrets)
						}
						s.updateSubscriptions() // the state may have changed since the last call
						s.state.checkReferenceCounts(t, seed)
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
		asked := func(when string, want ...string) {
			t.Helper()
			if _, names := s.channels[0].client.Subscription(resource.EndpointType); !slices.Equal(names, want) {
				t.Errorf("%s: subscribed to endpoints %q, want %q", when, names, want)
			}
		}
		respondWith(t, s, xdstest.Cluster("c", "e1", "", 0), xdstest.Endpoints("e1", 1))
		respondWith(t, s, xdstest.Cluster("c", "e2", "", 0))
		asked("while the new ones are waited for", "e1", "e2")
		respondWith(t, s, xdstest.Endpoints("e2", 1))
		asked("once they are there", "e2")
		respondWith(t, s, xdstest.Cluster("c", "e3", "", time.Second))
		time.Sleep(time.Second)
		s.onDeadline(t.Context())
		asked("once they were waited for long enough", "e3")
		s.deadlineTimer.Stop()
	})
}

// TestStaticSecretsAreNotRequested verifies that a secret is not requested while the file defines
// it.
func TestStaticSecretsAreNotRequested(t *testing.T) {
	w, ref := newState(), resource.SecretRef{Name: "s"}
	file := func(names ...string) {
		x := &staticResources{}
		for _, name := range names {
			x.secrets = append(x.secrets, staticResource{name: name})
		}
		w.setStaticNames(x)
	}
	asks := func(when string, want bool) {
		t.Helper()
		w.takeSubscriptionChanges()
		if got := w.isSecretRequested(ref); got != want {
			t.Errorf("%s: subscribed = %t, want %t", when, got, want)
		}
		if w.dependents.clusterSecrets[ref] == nil {
			t.Errorf("%s: the users of the secret are not recorded", when)
		}
	}
	says := func(when string, more, less bool) {
		t.Helper()
		got := w.takeSubscriptionChanges().secrets
		if slices.Contains(got.added, ref) != more || slices.Contains(got.removed, ref) != less {
			t.Errorf("%s: %+v, want more %t and less %t", when, got, more, less)
		}
	}
	file("s")
	applyResource(t, w, xdstest.Cluster("c", "", "s", 0), time.Now())
	asks("the file has it", false)
	file()
	says("it has it no longer", true, false)
	asks("from then on", true)
	file("s", "other")
	says("it has it again", false, true)
	asks("from then on", false)
	w.checkpoint()
	file()
	w.rollback()
	asks("what is taken away is taken back", false)
}
