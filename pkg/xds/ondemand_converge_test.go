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
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				r := rand.New(rand.NewPCG(seed, 3))
				p := newFakeControlPlane(mode)
				s, active, h := newHistorySource(t, p, name, true)
				s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
				p.readRequests(s)
				for range 150 {
					switch r.IntN(8) {
					case 0:
						h.subscribe(func() bool { return r.IntN(3) == 0 })
					case 1:
						h.unsubscribe(func() bool { return r.IntN(3) == 0 })
					default:
						p.randomStep(t, s, r, secrets)
					}
					h.checkActive(active, seed)
				}
				p.setAll(r, secrets, 5)
				always := func() bool { return true }
				p.deliverAll(t, s, r)
				h.subscribe(always)
				p.deliverAll(t, s, r)
				h.checkActive(active, seed)
				subscriptions := p.subscriptions
				if got, want := withoutOnDemand(active), p.freshSnapshot(t, name); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a source without on-demand resources:\n%+v", seed, got, want)
				}
				p.subscriptions = subscriptions
				h.unsubscribe(always)
				h.checkActive(active, seed)
				for key := range s.state.Ignored() {
					if key.Type == resource.EndpointType || key.Type == resource.RouteType || key.Type == resource.DubboRouteType {
						t.Fatalf("seed %d: the state holds %+v, want none without a subscription", seed, key)
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
	controlPlane     *fakeControlPlane
	source           *Source
	clusters, tables *fakeOnDemand
	now              time.Time // time of the last idle check
}

// newHistorySource returns a Source that does not connect to its control plane p, and the snapshot
// that it applies. If onDemand is true, clusters and routes are on demand; else h is nil.
func newHistorySource(t *testing.T, p *fakeControlPlane, apiType string, onDemand bool) (s *Source, active *config.Snapshot, h *onDemandHistory) {
	b := xdstest.LayeredBootstrap(apiType)
	if !onDemand {
		s, active = newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
		return s, active, nil
	}
	b.OnDemand = config.XDSOnDemand{Idle: time.Hour, Wait: onDemandWait, Routes: true}
	h = &onDemandHistory{t: t, controlPlane: p, clusters: newFakeOnDemand(), tables: newFakeOnDemand(), now: time.Now()}
	h.source, active = newTestSourceWith(t, b, slog.New(slog.DiscardHandler), func(o *Options) { o.Clusters, o.Routes = h.clusters, h.tables })
	return h.source, active, h
}

// subscribe requests the clusters and route tables for which choose returns true, as traffic does.
func (h *onDemandHistory) subscribe(choose func() bool) {
	clusters, listeners := maps.Collect(h.source.state.Clusters()), maps.Collect(h.source.state.Listeners())
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		if choose() {
			h.clusters.names = append(h.clusters.names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		if received := listeners[name].Received; received != nil && choose() {
			h.tables.names = append(h.tables.names, received.RouteConfigNames...)
		}
	}
	h.source.subscribeRequested(h.t.Context())
	h.controlPlane.readRequests(h.source)
}

// unsubscribe unsubscribes the clusters and route tables for which choose returns true, because
// they are idle. The others are in use.
func (h *onDemandHistory) unsubscribe(choose func() bool) {
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
		h.clusters.setInUse(name, !choose())
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		h.tables.setInUse(name, !choose())
	}
	h.now = h.now.Add(2 * time.Hour)
	h.source.unsubscribeIdle(h.t.Context(), h.now)
	h.controlPlane.readRequests(h.source)
}

// checkActive fails the test if the active configuration and the state of the Source differ. It
// also fails if a subscribed cluster has no hosts although its endpoints were not removed, or if an
// unsubscribed cluster has hosts.
func (h *onDemandHistory) checkActive(active *config.Snapshot, seed uint64) {
	h.t.Helper()
	checkInvariants(h.t, h.source, seed)
	if want := h.source.stack.Snapshot(); !reflect.DeepEqual(active, want) {
		h.t.Fatalf("seed %d: active:\n%+v\nwant the snapshot of the stack:\n%+v", seed, active, want)
	}
	clusters := maps.Collect(h.source.state.Clusters())
	for _, c := range active.Clusters {
		if c.Name == "control" {
			continue
		}
		serviceName := clusters[c.Name].Active.EDSServiceName
		removed := h.controlPlane.mode == ads.Delta && h.controlPlane.everRemoved[resource.EndpointType+serviceName]
		switch {
		case !c.OnDemand.Unsubscribed && len(c.Hosts) == 0 && !removed:
			h.t.Fatalf("seed %d: cluster %s is subscribed without hosts although its endpoints were not removed", seed, c.Name)
		case c.OnDemand.Unsubscribed && len(c.Hosts) > 0:
			h.t.Fatalf("seed %d: cluster %s is unsubscribed and has hosts", seed, c.Name)
		}
	}
}

// withoutOnDemand returns a copy of c without on-demand settings.
func withoutOnDemand(c *config.Snapshot) *config.Snapshot {
	next := *c
	next.Clusters = slices.Clone(c.Clusters)
	for i, original := range next.Clusters {
		modified := *original
		modified.OnDemand = config.OnDemand{}
		next.Clusters[i] = &modified
	}
	next.Routes = slices.Clone(c.Routes)
	for i, original := range next.Routes {
		modified := *original
		modified.OnDemand = config.OnDemand{}
		next.Routes[i] = &modified
	}
	return &next
}
