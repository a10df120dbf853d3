package xds

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// fakeControlPlane is an in-memory control plane with one stream.
type fakeControlPlane struct {
	mode        ads.Mode
	resources   map[string]map[string]ads.Resource // by type and name
	version     int
	everSet     map[string]bool // type URL + name of each resource that was ever set
	everRemoved map[string]bool // type URL + name of each resource that was ever removed

	subscriptions map[string]*subscription // subscriptions of the current stream, by type
	nonce         int
}

type subscription struct {
	wildcard     bool
	names        map[string]bool
	nonce        string
	sentVersions map[string]string // keys are resource names; compared in Delta mode only
	pending      bool
}

func newFakeControlPlane(mode ads.Mode) *fakeControlPlane {
	return &fakeControlPlane{mode: mode, resources: map[string]map[string]ads.Resource{}, everSet: map[string]bool{}, everRemoved: map[string]bool{}, subscriptions: map[string]*subscription{}}
}

// set adds or replaces a resource; a nil body removes it.
func (p *fakeControlPlane) set(r xdstest.Resource) {
	byName := p.resources[r.URL]
	if byName == nil {
		byName = map[string]ads.Resource{}
		p.resources[r.URL] = byName
	}
	if _, exists := byName[r.Name]; r.Body == nil && !exists {
		return
	}
	if r.Body == nil {
		delete(byName, r.Name)
		p.everRemoved[r.URL+r.Name] = true
	} else {
		p.version++
		byName[r.Name] = ads.Resource{Name: r.Name, Version: strconv.Itoa(p.version), Body: r.Body}
		p.everSet[r.URL+r.Name] = true
	}
	if s := p.subscriptions[r.URL]; s != nil {
		s.pending = true
	}
}

// readRequests handles the requests that s has queued.
func (p *fakeControlPlane) readRequests(s *Source) {
	ch := s.channels[0]
	for _, r := range ch.queue {
		sub := p.subscriptions[r.Type]
		isFirst := sub == nil
		if isFirst {
			sub = &subscription{names: map[string]bool{}, sentVersions: maps.Clone(r.InitialVersions), pending: true}
			if sub.sentVersions == nil {
				sub.sentVersions = map[string]string{}
			}
			p.subscriptions[r.Type] = sub
		}
		if p.mode == ads.Delta {
			sub.wildcard = sub.wildcard || isFirst && len(r.Subscribe) == 0
			for _, n := range r.Subscribe {
				sub.names[n] = true
				if !isFirst {
					delete(sub.sentVersions, n)
				}
				sub.pending = true
			}
			for _, n := range r.Unsubscribe {
				delete(sub.names, n)
				delete(sub.sentVersions, n)
			}
			continue
		}
		if r.Nonce != sub.nonce {
			continue // the request is for an older response; the request for the latest response follows
		}
		sub.wildcard = r.Type == resource.ClusterType || r.Type == resource.ListenerType
		next := map[string]bool{}
		for _, name := range r.Names {
			next[name] = true
		}
		if !maps.Equal(next, sub.names) {
			sub.names, sub.pending = next, true
		}
	}
	ch.queue = ch.queue[:0]
}

// pendingTypes returns the types that need a response, sorted.
func (p *fakeControlPlane) pendingTypes() (types []string) {
	for url, s := range p.subscriptions {
		if s.pending {
			types = append(types, url)
		}
	}
	slices.Sort(types)
	return types
}

// nextResponse returns the response for a type and marks it as sent.
func (p *fakeControlPlane) nextResponse(url string) *ads.Response {
	s := p.subscriptions[url]
	s.pending = false
	p.nonce++
	s.nonce = strconv.Itoa(p.nonce)
	r := &ads.Response{Type: url, Version: strconv.Itoa(p.version), Nonce: s.nonce}
	for _, name := range slices.Sorted(maps.Keys(p.resources[url])) {
		res := p.resources[url][name]
		if !s.wildcard && !s.names[name] || p.mode == ads.Delta && s.sentVersions[name] == res.Version {
			continue
		}
		s.sentVersions[name] = res.Version
		if p.mode == ads.StateOfTheWorld {
			res.Version = ""
		}
		r.Resources = append(r.Resources, res)
	}
	for name := range s.sentVersions {
		if _, exists := p.resources[url][name]; !exists && p.mode == ads.Delta {
			delete(s.sentVersions, name)
			r.Removed = append(r.Removed, name)
		}
	}
	return r
}

// withoutRace skips a test with one goroutine under the race detector: the detector has nothing to
// find there, and the test takes six times as long.
func withoutRace(t *testing.T) {
	t.Helper()
	if invariants.Enabled {
		t.Skip("this test has one goroutine and takes long: it runs only without the race detector")
	}
}

// TestRandomHistoriesConverge verifies that random updates lead to the configuration of a new
// source. Responses arrive in any order, twice, or not at all because the stream breaks. Meanwhile,
// no resource is active before the control plane has sent its dependencies.
func TestRandomHistoriesConverge(t *testing.T) {
	withoutRace(t)
	secrets := xdstest.Secrets(t)
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(150) {
				r := rand.New(rand.NewPCG(seed, 2))
				p := newFakeControlPlane(mode)
				s, active := newTestSourceFrom(t, xdstest.LayeredBootstrap(name), slog.New(slog.DiscardHandler))
				s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
				p.readRequests(s)
				for range 150 {
					p.randomStep(t, s, r, secrets)
					p.checkActive(t, s, active, seed)
				}
				// Finally, set every resource that clusters and listeners can refer to.
				p.setAll(r, secrets, []any{"not a number", 5}[r.IntN(2)])
				p.deliverAll(t, s, r)
				if want := p.freshSnapshot(t, name); !reflect.DeepEqual(active, want) {
					t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a new source:\n%+v", seed, active, want)
				}
			}
		})
	}
}

// modes returns the ADS modes by their api_type.
func modes() map[string]ads.Mode {
	return map[string]ads.Mode{"GRPC": ads.StateOfTheWorld, "DELTA_GRPC": ads.Delta}
}

// setAll sets all resources to which clusters and listeners can refer. two is the value of the
// later runtime layer.
func (p *fakeControlPlane) setAll(r *rand.Rand, secrets []xdstest.Resource, two any) {
	for i := range 3 {
		p.set(xdstest.Endpoints(fmt.Sprint("e", i), 1+r.IntN(5)))
		p.set(xdstest.FractionRoutes(fmt.Sprint("r", i)))
		p.set(xdstest.Extension(fmt.Sprint("x", i), fmt.Sprint("last", i)))
		p.set(xdstest.DubboRoutes(fmt.Sprint("d", i), fmt.Sprint("last", i)))
		p.set(secrets[i])
	}
	p.set(xdstest.RuntimeLayer("one", 10+r.IntN(80)))
	p.set(xdstest.RuntimeLayer("two", two))
}

// deliverAll delivers the responses for all pending types, in random order.
func (p *fakeControlPlane) deliverAll(t *testing.T, s *Source, r *rand.Rand) {
	for pending := p.pendingTypes(); len(pending) > 0; pending = p.pendingTypes() {
		p.deliver(t, s, p.nextResponse(pending[r.IntN(len(pending))]))
	}
}

// randomStep breaks the stream, sets a random resource, or delivers a response once or twice.
func (p *fakeControlPlane) randomStep(t *testing.T, s *Source, r *rand.Rand, secrets []xdstest.Resource) {
	pending := p.pendingTypes()
	switch n := r.IntN(20); {
	case n == 0: // the stream breaks, and perhaps a response is lost with it
		if len(pending) > 0 && r.IntN(2) == 0 {
			p.nextResponse(pending[0])
		}
		p.subscriptions = map[string]*subscription{}
		s.handleEvent(t.Context(), event{channel: s.channels[0]})
		s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
		p.readRequests(s)
	case n < 10 || len(pending) == 0:
		switch r.IntN(8) {
		case 0:
			p.set(xdstest.RuntimeLayer([]string{"one", "two"}[r.IntN(2)], r.IntN(3)))
		case 1:
			p.set(xdstest.FractionRoutes(fmt.Sprint("r", r.IntN(3))))
		default:
			p.set(xdstest.Random(r, secrets))
		}
	default:
		response := p.nextResponse(pending[r.IntN(len(pending))])
		p.deliver(t, s, response)
		if n == 19 {
			p.deliver(t, s, response)
		}
	}
}

// deliver makes s handle a response and reads the requests that follow.
func (p *fakeControlPlane) deliver(t *testing.T, s *Source, r *ads.Response) {
	s.handleEvent(t.Context(), event{channel: s.channels[0], response: r})
	p.readRequests(s)
}

// checkActive fails t if an active cluster has no hosts although its endpoints were not removed. It
// also fails t if an active listener refers to a filter or to routes that were never set.
func (p *fakeControlPlane) checkActive(t *testing.T, s *Source, active *config.Snapshot, seed uint64) {
	for _, c := range active.Clusters {
		if c.Name == "control" {
			continue
		}
		resourceName := clusterOf(s, c.Name).Active.EDSServiceName
		if len(c.Hosts) == 0 && !(p.mode == ads.Delta && p.everRemoved[resource.EndpointType+resourceName]) {
			t.Fatalf("seed %d: cluster %s is active without hosts although its endpoints were not removed", seed, c.Name)
		}
	}
	for _, l := range active.Listeners {
		for _, dynamic := range listenerOf(s, l.Name).Active.DynamicFilters {
			if !p.everSet[resource.ExtensionType+dynamic.Name] {
				t.Fatalf("seed %d: listener %s is active with a filter that was never set", seed, l.Name)
			}
		}
		for _, table := range listenerOf(s, l.Name).Active.RouteConfigNames {
			resourceName := resource.RouteType + table
			if name, dubbo := resource.DubboResourceName(table); dubbo {
				resourceName = resource.DubboRouteType + name
			}
			if !p.everSet[resourceName] {
				t.Fatalf("seed %d: listener %s is active with routes that were never set", seed, l.Name)
			}
		}
	}
}

// freshSnapshot returns the configuration that a new source applies. It resets the subscriptions of
// p.
func (p *fakeControlPlane) freshSnapshot(t *testing.T, apiType string) *config.Snapshot {
	p.subscriptions = map[string]*subscription{}
	s, active := newTestSourceFrom(t, xdstest.LayeredBootstrap(apiType), slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	p.readRequests(s)
	for pending := p.pendingTypes(); len(pending) > 0; pending = p.pendingTypes() {
		p.deliver(t, s, p.nextResponse(pending[0]))
	}
	return active
}
