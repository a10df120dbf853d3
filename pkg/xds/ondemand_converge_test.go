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
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestRandomOnDemandHistoriesConverge is TestRandomHistoriesConverge with clusters and route tables
// that are subscribed and unsubscribed at random. When all are subscribed, the configuration is
// that of a source without on-demand resources. When all are unsubscribed, the Source holds no
// endpoints and no routes.
func TestRandomOnDemandHistoriesConverge(t *testing.T) {
	secrets := xdstest.Secrets(t)
	for name, form := range modes() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				r := rand.New(rand.NewPCG(seed, 3))
				p := newFakeControlPlane(form)
				s, inForce := newTestSourceOf(t, xdstest.LayeredBootstrap(name), slog.New(slog.DiscardHandler))
				l := newOnDemandHistory(t, p, s)
				s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
				p.readRequests(s)
				for range 150 {
					switch r.IntN(8) {
					case 0:
						l.subscribe(func() bool { return r.IntN(3) == 0 })
					case 1:
						l.unsubscribe(func() bool { return r.IntN(3) == 0 })
					default:
						p.randomStep(t, s, r, secrets)
					}
					l.checkActive(inForce, seed)
				}
				p.setAll(r, secrets, 5)
				always := func() bool { return true }
				p.deliverAll(t, s, r)
				l.subscribe(always)
				p.deliverAll(t, s, r)
				l.checkActive(inForce, seed)
				asked := p.subscriptions
				if got, want := withoutOnDemand(inForce), p.freshSnapshot(t, name); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a source without on-demand resources:\n%+v", seed, got, want)
				}
				p.subscriptions = asked
				l.unsubscribe(always)
				l.checkActive(inForce, seed)
				if n := len(s.state.assignments) + len(s.state.tables); n != 0 {
					t.Fatalf("seed %d: %d resources are held, but all are unsubscribed", seed, n)
				}
				for _, url := range []string{resource.EndpointType, resource.RouteType, resource.DubboRouteType} {
					if _, names := s.channels[0].client.Subscription(url); len(names) > 0 {
						t.Fatalf("seed %d: %v of %s are subscribed, want none", seed, names, url)
					}
				}
			}
		})
	}
}

// onDemandHistory subscribes and unsubscribes the on-demand resources of a Source.
type onDemandHistory struct {
	t                *testing.T
	plane            *fakeControlPlane
	source           *Source
	clusters, tables *fakeOnDemand
}

// newOnDemandHistory enables on-demand resources in s, which has not received anything from the
// control plane yet.
func newOnDemandHistory(t *testing.T, p *fakeControlPlane, s *Source) *onDemandHistory {
	h := &onDemandHistory{t, p, s, newFakeOnDemand(), newFakeOnDemand()}
	s.opts.Bootstrap.OnDemand = config.XDSOnDemand{Idle: time.Hour, Wait: onDemandWait, Routes: true}
	s.opts.Clusters, s.opts.Routes = h.clusters, h.tables
	s.startOnDemand()
	return h
}

// subscribe requests the clusters and route tables for which some returns true, as traffic does.
func (h *onDemandHistory) subscribe(some func() bool) {
	w := h.source.state
	for _, name := range slices.Sorted(maps.Keys(w.clusters)) {
		if some() {
			h.clusters.names = append(h.clusters.names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.listeners)) {
		if last := w.listeners[name].received; last != nil && some() {
			h.tables.names = append(h.tables.names, last.RouteConfigNames...)
		}
	}
	h.source.subscribeRequested(h.t.Context())
	h.plane.readRequests(h.source)
}

// unsubscribe unsubscribes the idle resources for which some returns true.
func (h *onDemandHistory) unsubscribe(some func() bool) {
	for _, f := range []*onDemandSet{&h.source.state.onDemand.clusters, &h.source.state.onDemand.tables} {
		for _, name := range slices.Sorted(maps.Keys(f.entries)) {
			if some() {
				f.entries[name].lastUsed = time.Time{}
			}
		}
	}
	h.source.unsubscribeIdle(h.t.Context())
	h.plane.readRequests(h.source)
}

// checkActive fails the test if the active configuration and the state of the Source disagree on
// what is subscribed, if a subscribed cluster has no hosts although none were removed, or if an
// unsubscribed cluster has hosts.
func (h *onDemandHistory) checkActive(inForce *config.Snapshot, seed uint64) {
	h.t.Helper()
	w := h.source.state
	for _, c := range inForce.Clusters {
		if c.Name == "control" {
			continue
		}
		from := w.clusters[c.Name].active.EDSServiceName
		taken := h.plane.mode == ads.Delta && h.plane.everRemoved[resource.EndpointType+from]
		switch awake := w.onDemand.clusters.isReady(c.Name); {
		case c.OnDemand.Unsubscribed == awake:
			h.t.Fatalf("seed %d: active cluster %s is unsubscribed: %v, but its state is subscribed: %v", seed, c.Name, c.OnDemand.Unsubscribed, awake)
		case awake && len(c.Hosts) == 0 && !taken:
			h.t.Fatalf("seed %d: cluster %s is subscribed without hosts, which were not removed", seed, c.Name)
		case !awake && len(c.Hosts) > 0:
			h.t.Fatalf("seed %d: cluster %s is unsubscribed and has hosts", seed, c.Name)
		}
	}
	for _, table := range inForce.Routes {
		if table.OnDemand.Enabled() && table.OnDemand.Unsubscribed == w.onDemand.tables.isReady(table.Name) {
			h.t.Fatalf("seed %d: active table %s is unsubscribed: %v, but its state differs", seed, table.Name, table.OnDemand.Unsubscribed)
		}
	}
}

// withoutOnDemand returns a copy of c in which nothing is on demand.
func withoutOnDemand(c *config.Snapshot) *config.Snapshot {
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
