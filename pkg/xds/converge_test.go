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

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// fakeControlPlane is a control plane in memory: it has resources, and one stream.
type fakeControlPlane struct {
	mode        ads.Mode
	resources   map[string]map[string]ads.Resource // by type and name
	version     int
	everSet     map[string]bool // names of what there was at some time, with their types
	everRemoved map[string]bool // and of what was taken away at some time

	subscriptions map[string]*subscription // by type, on this stream
	nonce         int
}

type subscription struct {
	wildcard     bool
	names        map[string]bool
	nonce        string
	sentVersions map[string]string // versions; Delta
	pending      bool
}

func newFakeControlPlane(form ads.Mode) *fakeControlPlane {
	return &fakeControlPlane{mode: form, resources: map[string]map[string]ads.Resource{}, everSet: map[string]bool{}, everRemoved: map[string]bool{}, subscriptions: map[string]*subscription{}}
}

// set takes a resource; without a body it is taken away.
func (p *fakeControlPlane) set(r testResource) {
	of := p.resources[r.url]
	if of == nil {
		of = map[string]ads.Resource{}
		p.resources[r.url] = of
	}
	if _, there := of[r.name]; r.body == nil && !there {
		return
	}
	if r.body == nil {
		delete(of, r.name)
		p.everRemoved[r.url+r.name] = true
	} else {
		p.version++
		of[r.name] = ads.Resource{Name: r.name, Version: strconv.Itoa(p.version), Body: r.body}
		p.everSet[r.url+r.name] = true
	}
	if s := p.subscriptions[r.url]; s != nil {
		s.pending = true
	}
}

// readRequests takes what s asks.
func (p *fakeControlPlane) readRequests(s *Source) {
	f := s.channels[0]
	for _, r := range f.queue {
		sub := p.subscriptions[r.Type]
		first := sub == nil
		if first {
			sub = &subscription{names: map[string]bool{}, sentVersions: maps.Clone(r.InitialVersions), pending: true}
			if sub.sentVersions == nil {
				sub.sentVersions = map[string]string{}
			}
			p.subscriptions[r.Type] = sub
		}
		if p.mode == ads.Delta {
			sub.wildcard = sub.wildcard || first && len(r.Subscribe) == 0
			for _, n := range r.Subscribe {
				sub.names[n] = true
				if !first {
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
			continue // it answers an older response, and there will be another answer
		}
		sub.wildcard = r.Type == resource.ClusterType || r.Type == resource.ListenerType
		if next := newSet(r.Names); !maps.Equal(next, sub.names) {
			sub.names, sub.pending = next, true
		}
	}
	f.queue = f.queue[:0]
}

// pendingTypes are the types of which there is something to say, in order.
func (p *fakeControlPlane) pendingTypes() (types []string) {
	for url, s := range p.subscriptions {
		if s.pending {
			types = append(types, url)
		}
	}
	slices.Sort(types)
	return types
}

// nextResponse returns what is to be said of a type.
func (p *fakeControlPlane) nextResponse(url string) *ads.Response {
	s := p.subscriptions[url]
	s.pending = false
	p.nonce++
	s.nonce = strconv.Itoa(p.nonce)
	r := &ads.Response{Type: url, Version: strconv.Itoa(p.version), Nonce: s.nonce}
	for _, name := range slices.Sorted(maps.Keys(p.resources[url])) {
		n := p.resources[url][name]
		if !s.wildcard && !s.names[name] || p.mode == ads.Delta && s.sentVersions[name] == n.Version {
			continue
		}
		s.sentVersions[name] = n.Version
		if p.mode == ads.StateOfTheWorld {
			n.Version = ""
		}
		r.Resources = append(r.Resources, n)
	}
	for name := range s.sentVersions {
		if _, there := p.resources[url][name]; !there && p.mode == ads.Delta {
			delete(s.sentVersions, name)
			r.Removed = append(r.Removed, name)
		}
	}
	return r
}

// TestRandomHistoriesConverge has control planes change their minds at random, while
// responses come in any order, twice, or not at all because the stream breaks. Whatever
// came before, what is in force in the end is what is said in the end; and on the way
// nothing is in force that lacks what it was never given.
func TestRandomHistoriesConverge(t *testing.T) {
	secrets := testSecrets(t)
	for name, form := range modes() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(150) {
				r := rand.New(rand.NewPCG(seed, 2))
				p := newFakeControlPlane(form)
				s, inForce := newTestSourceOf(t, layeredBootstrap(name), slog.New(slog.DiscardHandler))
				s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
				p.readRequests(s)
				for range 150 {
					p.randomStep(t, s, r, secrets)
					p.checkActive(t, s, inForce, seed)
				}
				// In the end there is all that anything can refer to.
				p.setAll(r, secrets, []any{"nothing of use", 5}[r.IntN(2)])
				p.deliverAll(t, s, r)
				if want := p.freshSnapshot(t, name); !reflect.DeepEqual(inForce, want) {
					t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a new source:\n%+v", seed, inForce, want)
				}
			}
		})
	}
}

// modes are those that a control plane may speak, as its bootstrap calls them.
func modes() map[string]ads.Mode {
	return map[string]ads.Mode{"GRPC": ads.StateOfTheWorld, "DELTA_GRPC": ads.Delta}
}

// testSecrets are those that randomResource may refer to.
func testSecrets(t *testing.T) (all []testResource) {
	pki := testpki.New(t)
	for i := range 3 {
		all = append(all, secretResource(fmt.Sprint("s", i), pki.Issue(testpki.Spec{})))
	}
	return all
}

// setAll sets all that clusters and listeners can refer to. The later layer of the runtime
// says two.
func (p *fakeControlPlane) setAll(r *rand.Rand, secrets []testResource, two any) {
	for i := range 3 {
		p.set(endpointsResource(fmt.Sprint("e", i), 1+r.IntN(5)))
		p.set(runtimeFractionRoutes(fmt.Sprint("r", i)))
		p.set(extensionResource(fmt.Sprint("x", i), fmt.Sprint("last", i)))
		p.set(dubboRoutesResource(fmt.Sprint("d", i), fmt.Sprint("last", i)))
		p.set(secrets[i])
	}
	p.set(runtimeLayerResource("one", 10+r.IntN(80)))
	p.set(runtimeLayerResource("two", two))
}

// deliverAll says all that there is to say, in any order.
func (p *fakeControlPlane) deliverAll(t *testing.T, s *Source, r *rand.Rand) {
	for due := p.pendingTypes(); len(due) > 0; due = p.pendingTypes() {
		p.deliver(t, s, p.nextResponse(due[r.IntN(len(due))]))
	}
}

// randomStep has something happen.
func (p *fakeControlPlane) randomStep(t *testing.T, s *Source, r *rand.Rand, secrets []testResource) {
	due := p.pendingTypes()
	switch n := r.IntN(20); {
	case n == 0: // the stream breaks, and perhaps a response is lost with it
		if len(due) > 0 && r.IntN(2) == 0 {
			p.nextResponse(due[0])
		}
		p.subscriptions = map[string]*subscription{}
		s.handleEvent(t.Context(), event{channel: s.channels[0]})
		s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
		p.readRequests(s)
	case n < 10 || len(due) == 0:
		switch r.IntN(8) {
		case 0:
			p.set(runtimeLayerResource([]string{"one", "two"}[r.IntN(2)], r.IntN(3)))
		case 1:
			p.set(runtimeFractionRoutes(fmt.Sprint("r", r.IntN(3))))
		default:
			p.set(randomResource(r, secrets))
		}
	default:
		response := p.nextResponse(due[r.IntN(len(due))])
		p.deliver(t, s, response)
		if n == 19 {
			p.deliver(t, s, response)
		}
	}
}

// deliver has s deal with a response.
func (p *fakeControlPlane) deliver(t *testing.T, s *Source, r *ads.Response) {
	s.handleEvent(t.Context(), event{channel: s.channels[0], response: r})
	p.readRequests(s)
}

// checkActive fails if something is in force that lacks what it was never given.
func (p *fakeControlPlane) checkActive(t *testing.T, s *Source, inForce *config.Snapshot, seed uint64) {
	for _, c := range inForce.Clusters {
		if c.Name == "control" {
			continue
		}
		from := s.state.clusters[c.Name].active.EDSServiceName
		if len(c.Hosts) == 0 && !(p.mode == ads.Delta && p.everRemoved[resource.EndpointType+from]) {
			t.Fatalf("seed %d: cluster %s is active without hosts, which were not removed", seed, c.Name)
		}
	}
	for _, l := range inForce.Listeners {
		for _, slot := range s.state.listeners[l.Name].active.DynamicFilters {
			if !p.everSet[resource.ExtensionType+slot.Name] {
				t.Fatalf("seed %d: listener %s is active with a filter without a reference", seed, l.Name)
			}
		}
		for _, table := range s.state.listeners[l.Name].active.RouteConfigNames {
			from := resource.RouteType + table
			if name, dubbo := resource.DubboResourceName(table); dubbo {
				from = resource.DubboRouteType + name
			}
			if !p.everSet[from] {
				t.Fatalf("seed %d: listener %s is active with routes without a reference", seed, l.Name)
			}
		}
	}
}

// freshSnapshot is what is in force for one that has just come.
func (p *fakeControlPlane) freshSnapshot(t *testing.T, form string) *config.Snapshot {
	p.subscriptions = map[string]*subscription{}
	s, inForce := newTestSourceOf(t, layeredBootstrap(form), slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	p.readRequests(s)
	for due := p.pendingTypes(); len(due) > 0; due = p.pendingTypes() {
		p.deliver(t, s, p.nextResponse(due[0]))
	}
	return inForce
}
