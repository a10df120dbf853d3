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

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// wanted are the names of resources that others refer to, in order: of what is in
// force and of what is to come.
type wanted struct {
	assignments, tables, extensions []string
	secrets                         []resource.SecretRef
}

// wanted finds out what references count, from the beginning.
func (w *world) wanted() wanted {
	assignments, tables, secrets, extensions := map[string]bool{}, map[string]bool{}, map[resource.SecretRef]bool{}, map[string]bool{}
	for name, s := range w.clusters {
		for _, c := range []*resource.Cluster{s.last, s.live} {
			if c == nil {
				continue
			}
			if c.Endpoints != "" && w.asksForHosts(name) {
				assignments[c.Endpoints] = true
			}
			add(secrets, c.Secrets())
		}
	}
	for _, s := range w.listeners {
		for _, l := range []*resource.Listener{s.last, s.live} {
			if l != nil {
				add(tables, w.asksForTables(l.Routes))
				add(secrets, l.Secrets())
				for _, slot := range l.Slots {
					extensions[slot.Name] = true
				}
			}
		}
	}
	return wanted{
		assignments: slices.Sorted(maps.Keys(assignments)),
		tables:      slices.Sorted(maps.Keys(tables)),
		extensions:  slices.Sorted(maps.Keys(extensions)),
		secrets:     slices.SortedFunc(maps.Keys(secrets), resource.SecretRef.Compare),
	}
}

// counted are those that are counted.
func (r *references) counted() wanted {
	return wanted{
		assignments: slices.Sorted(maps.Keys(r.assignments.counts)),
		tables:      slices.Sorted(maps.Keys(r.tables.counts)),
		extensions:  slices.Sorted(maps.Keys(r.extensions.counts)),
		secrets:     slices.SortedFunc(maps.Keys(r.secrets.counts), resource.SecretRef.Compare),
	}
}

// tidy fails t if w, after a turn, counts other resources than are referred to, or keeps
// any that nobody refers to, or who would.
func (w *world) tidy(t *testing.T, seed uint64) {
	t.Helper()
	want := w.wanted()
	if got := w.references.counted(); !reflect.DeepEqual(got, want) {
		t.Fatalf("seed %d: counted are %+v, want %+v", seed, got, want)
	}
	asleep := 0
	for name, c := range w.clusters {
		if c.last != nil && c.last.Endpoints != "" && !w.asksForHosts(name) {
			asleep++
		}
	}
	if w.references.asleep != asleep {
		t.Fatalf("seed %d: %d clusters are counted as unsubscribed, want %d", seed, w.references.asleep, asleep)
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
	only("endpoints", want.assignments, slices.Collect(maps.Keys(w.assignments)), keys(w.users.assignments))
	only("routes", want.tables, slices.Collect(maps.Keys(w.tables)), keys(w.users.tables))
	only("filters", want.extensions, slices.Collect(maps.Keys(w.extensions)), keys(w.users.extensions))
	for _, all := range []map[resource.SecretRef]map[string]bool{w.users.secrets, w.users.own} {
		for ref := range all {
			if !slices.Contains(want.secrets, ref) {
				t.Fatalf("seed %d: secret %v has users, but no resource refers to it", seed, ref)
			}
		}
	}
	if l := w.lazy; l != nil {
		only("those awake", slices.Collect(maps.Keys(w.clusters)), slices.Collect(maps.Keys(l.clusters.all)))
		only("those awake", want.tables, slices.Collect(maps.Keys(l.tables.all)))
	}
}

// TestReferencesAreCounted: whatever comes, is refused or taken back, falls asleep or is
// woken, what is asked for is what others refer to, and nothing else is kept.
func TestReferencesAreCounted(t *testing.T) {
	secrets := someSecrets(t)
	for name, form := range forms() {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lazy=%v", name, leaves), func(t *testing.T) {
				for seed := range uint64(40) {
					r := rand.New(rand.NewPCG(seed, 9))
					p := newPlane(form)
					s, _ := aSourceOf(t, layered(name), slog.New(slog.DiscardHandler))
					var l *history
					if leaves {
						l = lazily(t, p, s)
					}
					s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
					p.listen(s)
					for range 150 {
						switch r.IntN(8) {
						case 0:
							if leaves {
								l.wake(func() bool { return r.IntN(3) == 0 })
							}
						case 1:
							if leaves {
								l.sleep(func() bool { return r.IntN(3) == 0 })
							}
						default:
							p.step(t, s, r, secrets)
						}
						s.ask() // the world may have changed since it was last
						s.world.tidy(t, seed)
					}
				}
			})
		}
	}
}

// TestWhatTookThePlaceOfAnotherEndsItsBeingAskedFor, as soon as it is in force: be it that
// what it lacked has come, or that it was waited for long enough.
func TestWhatTookThePlaceOfAnotherEndsItsBeingAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
		s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
		asked := func(when string, want ...string) {
			t.Helper()
			if _, names := s.feeds[0].client.Wanted(resource.EndpointType); !slices.Equal(names, want) {
				t.Errorf("%s: subscribed to endpoints %q, want %q", when, names, want)
			}
		}
		say(t, s, aCluster("c", "e1", "", 0), someHosts("e1", 1))
		say(t, s, aCluster("c", "e2", "", 0))
		asked("while the new ones are waited for", "e1", "e2")
		say(t, s, someHosts("e2", 1))
		asked("once they are there", "e2")
		say(t, s, aCluster("c", "e3", "", time.Second))
		time.Sleep(time.Second)
		s.wake(t.Context())
		asked("once they were waited for long enough", "e3")
		s.again.Stop()
	})
}

// TestSecretsOfTheFileAreNotAskedFor, for as long as it has them.
func TestSecretsOfTheFileAreNotAskedFor(t *testing.T) {
	w, ref := newWorld(), resource.SecretRef{Name: "s"}
	file := func(names ...string) {
		x := &fixtures{}
		for _, name := range names {
			x.secrets = append(x.secrets, given{name: name})
		}
		w.setFixed(x)
	}
	asks := func(when string, want bool) {
		t.Helper()
		w.turn()
		if got := w.isAsked(ref); got != want {
			t.Errorf("%s: subscribed = %t, want %t", when, got, want)
		}
		if w.users.secrets[ref] == nil {
			t.Errorf("%s: the users of the secret are not recorded", when)
		}
	}
	says := func(when string, more, less bool) {
		t.Helper()
		got := w.turn().secrets
		if slices.Contains(got.more, ref) != more || slices.Contains(got.less, ref) != less {
			t.Errorf("%s: %+v, want more %t and less %t", when, got, more, less)
		}
	}
	file("s")
	hear(t, w, aCluster("c", "", "s", 0), time.Now())
	asks("the file has it", false)
	file()
	says("it has it no longer", true, false)
	asks("from then on", true)
	file("s", "other")
	says("it has it again", false, true)
	asks("from then on", false)
	w.mark()
	file()
	w.takeBack()
	asks("what is taken away is taken back", false)
}
