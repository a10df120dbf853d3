package xds

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestEveryLazyHistoryEndsTheSame is TestEveryHistoryEndsTheSame of one that leaves with
// the control plane what is not used, while clusters and tables are woken and fall asleep
// at random. Once all are awake, what is in force is what one has that asks for everything;
// once all are asleep, nothing is held of them.
func TestEveryLazyHistoryEndsTheSame(t *testing.T) {
	secrets := someSecrets(t)
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				r := rand.New(rand.NewPCG(seed, 3))
				p := newPlane(form)
				s, inForce := aSourceOf(t, layered(name), slog.New(slog.DiscardHandler))
				l := lazily(t, p, s)
				s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
				p.listen(s)
				for range 150 {
					switch r.IntN(8) {
					case 0:
						l.wake(func() bool { return r.IntN(3) == 0 })
					case 1:
						l.sleep(func() bool { return r.IntN(3) == 0 })
					default:
						p.step(t, s, r, secrets)
					}
					l.sound(inForce, seed)
				}
				p.setAll(r, secrets, 5)
				always := func() bool { return true }
				p.supply(t, s, r)
				l.wake(always)
				p.supply(t, s, r)
				l.sound(inForce, seed)
				asked := p.asked
				if got, want := awakeOf(inForce), p.afresh(t, name); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a source without on-demand resources:\n%+v", seed, got, want)
				}
				p.asked = asked
				l.sleep(always)
				l.sound(inForce, seed)
				if n := len(s.world.assignments) + len(s.world.tables); n != 0 {
					t.Fatalf("seed %d: %d resources are held, but all are unsubscribed", seed, n)
				}
				for _, url := range []string{resource.EndpointType, resource.RouteType, resource.DubboRouteType} {
					if _, names := s.feeds[0].client.Wanted(url); len(names) > 0 {
						t.Fatalf("seed %d: %v of %s are subscribed, want none", seed, names, url)
					}
				}
			}
		})
	}
}

// history is what happens to a Source that is lazy.
type history struct {
	t                *testing.T
	plane            *plane
	source           *Source
	clusters, tables *callers
}

// lazily makes s, to which nothing has been said yet, one that is lazy.
func lazily(t *testing.T, p *plane, s *Source) *history {
	h := &history{t, p, s, newCallers(), newCallers()}
	s.o.Bootstrap.Lazy = config.ControlPlaneLazy{Idle: time.Hour, Wait: lazyWait, Routes: true}
	s.o.Clusters, s.o.Tables = h.clusters, h.tables
	s.beginNaps()
	return h
}

// wake has exchanges come for some of what there is.
func (h *history) wake(some func() bool) {
	w := h.source.world
	for _, name := range slices.Sorted(maps.Keys(w.clusters)) {
		if some() {
			h.clusters.names = append(h.clusters.names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.listeners)) {
		if last := w.listeners[name].last; last != nil && some() {
			h.tables.names = append(h.tables.names, last.Routes...)
		}
	}
	h.source.rouse(h.t.Context())
	h.plane.listen(h.source)
}

// sleep has some of what is awake not used for long enough.
func (h *history) sleep(some func() bool) {
	for _, f := range []*wakeful{&h.source.world.lazy.clusters, &h.source.world.lazy.tables} {
		for _, name := range slices.Sorted(maps.Keys(f.all)) {
			if some() {
				f.all[name].used = time.Time{}
			}
		}
	}
	h.source.doze(h.t.Context())
	h.plane.listen(h.source)
}

// sound fails if somebody is in force as awake without hosts or routes, which nobody took
// away, or as asleep who is not.
func (h *history) sound(inForce *config.Snapshot, seed uint64) {
	h.t.Helper()
	w := h.source.world
	for _, c := range inForce.Clusters {
		if c.Name == "control" {
			continue
		}
		from := w.clusters[c.Name].live.Endpoints
		taken := h.plane.form == ads.Delta && h.plane.gone[resource.EndpointType+from]
		switch awake := w.lazy.clusters.isAwake(c.Name); {
		case c.OnDemand.Asleep == awake:
			h.t.Fatalf("seed %d: active cluster %s is unsubscribed: %v, but its state is subscribed: %v", seed, c.Name, c.OnDemand.Asleep, awake)
		case awake && len(c.Hosts) == 0 && !taken:
			h.t.Fatalf("seed %d: cluster %s is subscribed without hosts, which were not removed", seed, c.Name)
		case !awake && len(c.Hosts) > 0:
			h.t.Fatalf("seed %d: cluster %s is unsubscribed and has hosts", seed, c.Name)
		}
	}
	for _, table := range inForce.Routes {
		if table.OnDemand.Applies() && table.OnDemand.Asleep == w.lazy.tables.isAwake(table.Name) {
			h.t.Fatalf("seed %d: active table %s is unsubscribed: %v, but its state differs", seed, table.Name, table.OnDemand.Asleep)
		}
	}
}

// awakeOf is c as it would be if nothing were on demand.
func awakeOf(c *config.Snapshot) *config.Snapshot {
	next := *c
	next.Clusters = slices.Clone(c.Clusters)
	for i, one := range next.Clusters {
		always := *one
		always.OnDemand = config.OnDemand{}
		next.Clusters[i] = &always
	}
	next.Routes = slices.Clone(c.Routes)
	for i, one := range next.Routes {
		always := *one
		always.OnDemand = config.OnDemand{}
		next.Routes[i] = &always
	}
	return &next
}
