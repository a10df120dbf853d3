package xds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// rejectingApply rejects the configurations for which check returns an error.
type rejectingApply struct{ check func(*config.Snapshot) error }

// install replaces the Apply functions of s with functions that check the new configuration. They
// fail t if the reported changes alone do not lead to it.
func (h *rejectingApply) install(t *testing.T, s *Source, inForce *config.Snapshot) {
	apply := func(next, whole *config.Snapshot) error {
		t.Helper()
		if !reflect.DeepEqual(next, whole) {
			t.Fatalf("the reported changes lead to\n%+v\nwant\n%+v", next, whole)
		}
		if err := h.check(next); err != nil {
			return err
		}
		*inForce = *next
		return nil
	}
	s.opts.Apply = func(_ context.Context, next *config.Snapshot) error { return apply(next, next) }
	s.opts.ApplyClusters = func(_ context.Context, changed []*config.Cluster, whole func() *config.Snapshot) error {
		return apply(withClusters(s, inForce, changed), whole())
	}
	s.opts.ApplyRoutes = func(_ context.Context, changed []*config.RouteTable, whole func() *config.Snapshot) error {
		was := *inForce
		return apply(withRoutes(&was, changed), whole())
	}
}

// withClusters returns c with the changed clusters replaced or added, in the order that s uses.
func withClusters(s *Source, c *config.Snapshot, changed []*config.Cluster) *config.Snapshot {
	next, all := *c, map[string]*config.Cluster{}
	for _, one := range slices.Concat(c.Clusters, changed) {
		all[one.Name] = one
	}
	next.Clusters = slices.Clone(s.fileSnapshot.Clusters)
	for _, one := range s.fileSnapshot.Clusters {
		delete(all, one.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		next.Clusters = append(next.Clusters, all[name])
	}
	return &next
}

// rejectSome rejects one port, one direct response, one filter setting and clusters with 4 hosts.
func rejectSome(next *config.Snapshot) error {
	for _, c := range next.Clusters {
		if len(c.Hosts) == 4 {
			return fmt.Errorf("cluster %s has 4 hosts", c.Name)
		}
	}
	for _, l := range next.Listeners {
		if strings.HasSuffix(l.Address, ":81") {
			return fmt.Errorf("listener %s: the port is in use", l.Name)
		}
	}
	for _, t := range next.Routes {
		for _, v := range t.VirtualHosts {
			for _, r := range v.Routes {
				if r.DirectResponse != nil && r.DirectResponse.Body == "text3" {
					return fmt.Errorf("table %s cannot be composed", t.Name)
				}
			}
		}
	}
	if slices.Contains(xdstest.ActiveFilters(next), "host3") {
		return errors.New("a filter rejects its settings")
	}
	return nil
}

// TestRandomHistoriesWithFailuresConverge is TestRandomHistoriesConverge with rejected
// configurations and with changes of the file. During the updates, the active configuration is the
// one that the Source assumes. After the rejected resources were sent again and accepted, the
// configuration is that of a new source.
func TestRandomHistoriesWithFailuresConverge(t *testing.T) {
	secrets := xdstest.Secrets(t)
	for name, form := range modes() {
		for _, lazy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lazy=%t", name, lazy), func(t *testing.T) {
				for seed := range uint64(50) {
					runFailures(t, name, form, lazy, seed, secrets)
				}
			})
		}
	}
}

// randomFile returns a file whose names may conflict with those of the control plane.
func randomFile(r *rand.Rand) *config.Snapshot {
	file := &config.Snapshot{}
	if r.IntN(2) == 0 {
		file.Clusters = []*config.Cluster{{Name: fmt.Sprint("c", r.IntN(6))}}
	}
	if r.IntN(2) == 0 {
		file.Routes = []*config.RouteTable{{Name: fmt.Sprint("r", r.IntN(6))}}
	}
	if r.IntN(3) == 0 {
		file.Listeners = []*config.Listener{{Name: fmt.Sprint("l", 3+r.IntN(2)), FilterChains: []*config.FilterChain{{Proxy: &config.Proxy{}}}}}
	}
	return file
}

func runFailures(t *testing.T, name string, form ads.Mode, lazy bool, seed uint64, secrets []xdstest.Resource) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	p := newFakeControlPlane(form)
	s, inForce, h := newHistorySource(t, p, name, lazy)
	world := &rejectingApply{rejectSome}
	world.install(t, s, inForce)
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	p.readRequests(s)
	sound := func(when string) {
		t.Helper()
		names := map[string]bool{}
		for _, c := range inForce.Clusters {
			names["cluster "+c.Name] = true
		}
		for _, l := range inForce.Listeners {
			names["listener "+l.Name] = true
		}
		for _, table := range inForce.Routes {
			names["table "+table.Name] = true
		}
		if len(names) != len(inForce.Clusters)+len(inForce.Listeners)+len(inForce.Routes) {
			t.Fatalf("seed %d, %s: two active resources have the same name", seed, when)
		}
		if want := s.state.Snapshot(s.fileSnapshot); !reflect.DeepEqual(inForce, want) {
			t.Fatalf("seed %d, %s: active:\n%+v\nbut the source assumes:\n%+v", seed, when, inForce, want)
		}
		checkInvariants(t, s, seed)
	}
	based := 0
	for range 150 {
		switch n := r.IntN(8); {
		case n == 0 && lazy:
			h.subscribe(func() bool { return r.IntN(3) == 0 })
		case n == 1 && lazy:
			h.unsubscribe(func() bool { return r.IntN(3) == 0 })
		case n == 2:
			file := randomFile(r)
			file.Bootstrap.StaticResources = s.opts.Bootstrap.StaticResources
			if s.ApplyFile(t.Context(), file) == nil {
				based++
			}
		default:
			p.randomStep(t, s, r, secrets)
		}
		sound("during the updates")
	}
	if based == 0 {
		t.Errorf("seed %d: no file was accepted", seed)
	}
	world.check = func(*config.Snapshot) error { return nil }
	if err := s.ApplyFile(t.Context(), &config.Snapshot{Bootstrap: config.Bootstrap{StaticResources: s.opts.Bootstrap.StaticResources}}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		p.set(xdstest.Cluster(fmt.Sprint("c", i), fmt.Sprint("e", i), "", 0))
	}
	p.setAll(r, secrets, 5)
	for name, l := range p.resources[resource.ListenerType] {
		p.set(xdstest.Resource{URL: resource.ListenerType, Name: name, Body: l.Body})
	}
	p.deliverAll(t, s, r)
	got := inForce
	if lazy {
		h.subscribe(func() bool { return true })
		p.deliverAll(t, s, r)
		got = withoutOnDemand(inForce)
	}
	sound("after the last update")
	if want := p.freshSnapshot(t, name); !reflect.DeepEqual(got, want) {
		t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a new source:\n%+v", seed, got, want)
	}
}
