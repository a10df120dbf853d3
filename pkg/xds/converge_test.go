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

// plane is a control plane in memory: it has resources, and one stream.
type plane struct {
	form      ads.Form
	resources map[string]map[string]ads.Resource // by type and name
	version   int
	ever      map[string]bool // names of what there was at some time, with their types
	gone      map[string]bool // and of what was taken away at some time

	asked map[string]*subscription // by type, on this stream
	nonce int
}

type subscription struct {
	all   bool
	names map[string]bool
	nonce string
	has   map[string]string // versions; Delta
	due   bool
}

func newPlane(form ads.Form) *plane {
	return &plane{form: form, resources: map[string]map[string]ads.Resource{}, ever: map[string]bool{}, gone: map[string]bool{}, asked: map[string]*subscription{}}
}

// set takes a resource; without a body it is taken away.
func (p *plane) set(r said) {
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
		p.gone[r.url+r.name] = true
	} else {
		p.version++
		of[r.name] = ads.Resource{Name: r.name, Version: strconv.Itoa(p.version), Body: r.body}
		p.ever[r.url+r.name] = true
	}
	if s := p.asked[r.url]; s != nil {
		s.due = true
	}
}

// listen takes what s asks.
func (p *plane) listen(s *Source) {
	f := s.feeds[0]
	for _, r := range f.queue {
		sub := p.asked[r.Type]
		first := sub == nil
		if first {
			sub = &subscription{names: map[string]bool{}, has: maps.Clone(r.Held), due: true}
			if sub.has == nil {
				sub.has = map[string]string{}
			}
			p.asked[r.Type] = sub
		}
		if p.form == ads.Delta {
			sub.all = sub.all || first && len(r.Subscribe) == 0
			for _, n := range r.Subscribe {
				sub.names[n] = true
				if !first {
					delete(sub.has, n)
				}
				sub.due = true
			}
			for _, n := range r.Unsubscribe {
				delete(sub.names, n)
				delete(sub.has, n)
			}
			continue
		}
		if r.Nonce != sub.nonce {
			continue // it answers an older response, and there will be another answer
		}
		sub.all = r.Type == resource.ClusterType || r.Type == resource.ListenerType
		if next := set(r.Names); !maps.Equal(next, sub.names) {
			sub.names, sub.due = next, true
		}
	}
	f.queue = f.queue[:0]
}

// due are the types of which there is something to say, in order.
func (p *plane) due() (types []string) {
	for url, s := range p.asked {
		if s.due {
			types = append(types, url)
		}
	}
	slices.Sort(types)
	return types
}

// say returns what is to be said of a type.
func (p *plane) say(url string) *ads.Response {
	s := p.asked[url]
	s.due = false
	p.nonce++
	s.nonce = strconv.Itoa(p.nonce)
	r := &ads.Response{Type: url, Version: strconv.Itoa(p.version), Nonce: s.nonce}
	for _, name := range slices.Sorted(maps.Keys(p.resources[url])) {
		n := p.resources[url][name]
		if !s.all && !s.names[name] || p.form == ads.Delta && s.has[name] == n.Version {
			continue
		}
		s.has[name] = n.Version
		if p.form == ads.StateOfTheWorld {
			n.Version = ""
		}
		r.Resources = append(r.Resources, n)
	}
	for name := range s.has {
		if _, there := p.resources[url][name]; !there && p.form == ads.Delta {
			delete(s.has, name)
			r.Removed = append(r.Removed, name)
		}
	}
	return r
}

// TestEveryHistoryEndsTheSame has control planes change their minds at random, while
// responses come in any order, twice, or not at all because the stream breaks. Whatever
// came before, what is in force in the end is what is said in the end; and on the way
// nothing is in force that lacks what it was never given.
func TestEveryHistoryEndsTheSame(t *testing.T) {
	secrets := someSecrets(t)
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(150) {
				r := rand.New(rand.NewPCG(seed, 2))
				p := newPlane(form)
				s, inForce := aSourceOf(t, layered(name), slog.New(slog.DiscardHandler))
				s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
				p.listen(s)
				for range 150 {
					p.step(t, s, r, secrets)
					p.sound(t, s, inForce, seed)
				}
				// In the end there is all that anything can refer to.
				p.setAll(r, secrets, []any{"nothing of use", 5}[r.IntN(2)])
				p.supply(t, s, r)
				if want := p.afresh(t, name); !reflect.DeepEqual(inForce, want) {
					t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a new source:\n%+v", seed, inForce, want)
				}
			}
		})
	}
}

// forms are those that a control plane may speak, as its bootstrap calls them.
func forms() map[string]ads.Form {
	return map[string]ads.Form{"GRPC": ads.StateOfTheWorld, "DELTA_GRPC": ads.Delta}
}

// someSecrets are those that aWorldful may refer to.
func someSecrets(t *testing.T) (all []said) {
	pki := testpki.New(t)
	for i := range 3 {
		all = append(all, aSecret(fmt.Sprint("s", i), pki.Issue(testpki.Spec{})))
	}
	return all
}

// setAll sets all that clusters and listeners can refer to. The later layer of the runtime
// says two.
func (p *plane) setAll(r *rand.Rand, secrets []said, two any) {
	for i := range 3 {
		p.set(someHosts(fmt.Sprint("e", i), 1+r.IntN(5)))
		p.set(sharedRoutes(fmt.Sprint("r", i)))
		p.set(someSettings(fmt.Sprint("x", i), fmt.Sprint("last", i)))
		p.set(dubboRoutes(fmt.Sprint("d", i), fmt.Sprint("last", i)))
		p.set(secrets[i])
	}
	p.set(aRuntimeLayer("one", 10+r.IntN(80)))
	p.set(aRuntimeLayer("two", two))
}

// supply says all that there is to say, in any order.
func (p *plane) supply(t *testing.T, s *Source, r *rand.Rand) {
	for due := p.due(); len(due) > 0; due = p.due() {
		p.tell(t, s, p.say(due[r.IntN(len(due))]))
	}
}

// step has something happen.
func (p *plane) step(t *testing.T, s *Source, r *rand.Rand, secrets []said) {
	due := p.due()
	switch n := r.IntN(20); {
	case n == 0: // the stream breaks, and perhaps a response is lost with it
		if len(due) > 0 && r.IntN(2) == 0 {
			p.say(due[0])
		}
		p.asked = map[string]*subscription{}
		s.handle(t.Context(), event{feed: s.feeds[0]})
		s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
		p.listen(s)
	case n < 10 || len(due) == 0:
		switch r.IntN(8) {
		case 0:
			p.set(aRuntimeLayer([]string{"one", "two"}[r.IntN(2)], r.IntN(3)))
		case 1:
			p.set(sharedRoutes(fmt.Sprint("r", r.IntN(3))))
		default:
			p.set(aWorldful(r, secrets))
		}
	default:
		response := p.say(due[r.IntN(len(due))])
		p.tell(t, s, response)
		if n == 19 {
			p.tell(t, s, response)
		}
	}
}

// tell has s deal with a response.
func (p *plane) tell(t *testing.T, s *Source, r *ads.Response) {
	s.handle(t.Context(), event{feed: s.feeds[0], response: r})
	p.listen(s)
}

// sound fails if something is in force that lacks what it was never given.
func (p *plane) sound(t *testing.T, s *Source, inForce *config.Snapshot, seed uint64) {
	for _, c := range inForce.Clusters {
		if c.Name == "control" {
			continue
		}
		from := s.world.clusters[c.Name].live.Endpoints
		if len(c.Hosts) == 0 && !(p.form == ads.Delta && p.gone[resource.EndpointType+from]) {
			t.Fatalf("seed %d: cluster %s is active without hosts, which were not removed", seed, c.Name)
		}
	}
	for _, l := range inForce.Listeners {
		for _, slot := range s.world.listeners[l.Name].live.Slots {
			if !p.ever[resource.ExtensionType+slot.Name] {
				t.Fatalf("seed %d: listener %s is active with a filter without a reference", seed, l.Name)
			}
		}
		for _, table := range s.world.listeners[l.Name].live.Routes {
			from := resource.RouteType + table
			if name, dubbo := resource.DubboRoutes(table); dubbo {
				from = resource.DubboRouteType + name
			}
			if !p.ever[from] {
				t.Fatalf("seed %d: listener %s is active with routes without a reference", seed, l.Name)
			}
		}
	}
}

// afresh is what is in force for one that has just come.
func (p *plane) afresh(t *testing.T, form string) *config.Snapshot {
	p.asked = map[string]*subscription{}
	s, inForce := aSourceOf(t, layered(form), slog.New(slog.DiscardHandler))
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	p.listen(s)
	for due := p.due(); len(due) > 0; due = p.due() {
		p.tell(t, s, p.say(due[0]))
	}
	return inForce
}
