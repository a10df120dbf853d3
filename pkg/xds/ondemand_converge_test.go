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
	withoutRace(t)
	secrets := xdstest.Secrets(t)
	for name, form := range modes() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				r := rand.New(rand.NewPCG(seed, 3))
				p := newFakeControlPlane(form)
				s, inForce, l := newHistorySource(t, p, name, true)
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
				for held := range s.state.Ignored() {
					if held.Type == resource.EndpointType || held.Type == resource.RouteType || held.Type == resource.DubboRouteType {
						t.Fatalf("seed %d: %+v is received although nothing is subscribed", seed, held)
					}
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
	now              time.Time // of the last idle check
}

// newHistorySource returns a Source that does not connect to its control plane p, and the snapshot
// that it applies. form is the api_type. If lazy is true, the resources are on demand; else h is
// nil.
func newHistorySource(t *testing.T, p *fakeControlPlane, form string, lazy bool) (s *Source, inForce *config.Snapshot, h *onDemandHistory) {
	b := xdstest.LayeredBootstrap(form)
	if !lazy {
		s, inForce = newTestSourceOf(t, b, slog.New(slog.DiscardHandler))
		return s, inForce, nil
	}
	b.OnDemand = config.XDSOnDemand{Idle: time.Hour, Wait: onDemandWait, Routes: true}
	h = &onDemandHistory{t: t, plane: p, clusters: newFakeOnDemand(), tables: newFakeOnDemand(), now: time.Now()}
	h.source, inForce = newTestSourceWith(t, b, slog.New(slog.DiscardHandler), func(o *Options) { o.Clusters, o.Routes = h.clusters, h.tables })
	return h.source, inForce, h
}

// subscribe requests the clusters and route tables for which some returns true, as traffic does.
func (h *onDemandHistory) subscribe(some func() bool) {
	clusters, listeners := maps.Collect(h.source.state.Clusters()), maps.Collect(h.source.state.Listeners())
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		if some() {
			h.clusters.names = append(h.clusters.names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		if last := listeners[name].Received; last != nil && some() {
			h.tables.names = append(h.tables.names, last.RouteConfigNames...)
		}
	}
	h.source.subscribeRequested(h.t.Context())
	h.plane.readRequests(h.source)
}

// unsubscribe unsubscribes the idle clusters and route tables: those for which some returns true.
// The others are in use.
func (h *onDemandHistory) unsubscribe(some func() bool) {
	clusters, tables := map[string]bool{}, map[string]bool{}
	for name := range h.source.state.Clusters() {
		clusters[name] = true
	}
	for _, l := range h.source.state.Listeners() {
		for _, version := range []*resource.Listener{l.Received, l.Active} {
			if version != nil {
				for _, name := range version.RouteConfigNames {
					tables[name] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		h.clusters.setInUse(name, !some())
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		h.tables.setInUse(name, !some())
	}
	h.now = h.now.Add(2 * time.Hour)
	h.source.unsubscribeIdle(h.t.Context(), h.now)
	h.plane.readRequests(h.source)
}

// checkActive fails the test if the active configuration and the state of the Source differ, if a
// subscribed cluster has no hosts although its endpoints were not removed, or if an unsubscribed
// cluster has hosts.
func (h *onDemandHistory) checkActive(inForce *config.Snapshot, seed uint64) {
	h.t.Helper()
	checkInvariants(h.t, h.source, seed)
	if want := h.source.stack.Snapshot(); !reflect.DeepEqual(inForce, want) {
		h.t.Fatalf("seed %d: active:\n%+v\nbut the source assumes:\n%+v", seed, inForce, want)
	}
	clusters := maps.Collect(h.source.state.Clusters())
	for _, c := range inForce.Clusters {
		if c.Name == "control" {
			continue
		}
		from := clusters[c.Name].Active.EDSServiceName
		removed := h.plane.mode == ads.Delta && h.plane.everRemoved[resource.EndpointType+from]
		switch {
		case !c.OnDemand.Unsubscribed && len(c.Hosts) == 0 && !removed:
			h.t.Fatalf("seed %d: cluster %s is subscribed without hosts although its endpoints were not removed", seed, c.Name)
		case c.OnDemand.Unsubscribed && len(c.Hosts) > 0:
			h.t.Fatalf("seed %d: cluster %s is unsubscribed and has hosts", seed, c.Name)
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
