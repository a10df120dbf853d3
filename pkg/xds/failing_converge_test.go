package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// hostile is an outside world that is against some of what is put in force.
type hostile struct{ against func(*config.Snapshot) error }

// stand has what s puts in force fail as the outside world says. What is said to have
// changed is all that does.
func (h *hostile) stand(t *testing.T, s *Source, inForce *config.Snapshot) {
	apply := func(next, whole *config.Snapshot) error {
		t.Helper()
		if !reflect.DeepEqual(next, whole) {
			t.Fatalf("by what has changed alone it becomes\n%+v\nwant\n%+v", next, whole)
		}
		if err := h.against(next); err != nil {
			return err
		}
		*inForce = *next
		return nil
	}
	s.o.Apply = func(_ context.Context, next *config.Snapshot) error { return apply(next, next) }
	s.o.ApplyClusters = func(_ context.Context, changed []*config.Cluster, whole func() *config.Snapshot) error {
		return apply(withClusters(s, inForce, changed), whole())
	}
	s.o.ApplyRoutes = func(_ context.Context, changed []*config.RouteTable, whole func() *config.Snapshot) error {
		was := *inForce
		return apply(withRoutes(&was, changed), whole())
	}
}

// withClusters is c with some clusters in the places of those of their names, or new, in
// the order in which s has them.
func withClusters(s *Source, c *config.Snapshot, changed []*config.Cluster) *config.Snapshot {
	next, all := *c, map[string]*config.Cluster{}
	for _, one := range slices.Concat(c.Clusters, changed) {
		all[one.Name] = one
	}
	next.Clusters = slices.Clone(s.base.Clusters)
	for _, one := range s.base.Clusters {
		delete(all, one.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		next.Clusters = append(next.Clusters, all[name])
	}
	return &next
}

// againstSome is against a port, some routes, settings of a filter and numbers of hosts.
func againstSome(next *config.Snapshot) error {
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
				if r.Direct != nil && r.Direct.Body == "text3" {
					return fmt.Errorf("table %s cannot be composed", t.Name)
				}
			}
		}
	}
	if slices.Contains(filtersOf(next), "host3") {
		return errors.New("a filter is against it")
	}
	return nil
}

// TestEveryHistoryOfFailuresEndsTheSame is TestEveryHistoryEndsTheSame in an outside world
// that is against some of what is said, and with a file that is read again. On the way what is in force is what the Source
// takes for it, and once the outside world is against nothing any more, and all that was
// refused has been said again, what one has that has just come.
func TestEveryHistoryOfFailuresEndsTheSame(t *testing.T) {
	secrets := someSecrets(t)
	for name, form := range forms() {
		for _, lazy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lazy=%t", name, lazy), func(t *testing.T) {
				for seed := range uint64(50) {
					failures(t, name, form, lazy, seed, secrets)
				}
			})
		}
	}
}

// someFile is a file with names that the control plane may have, too.
func someFile(r *rand.Rand) *config.Snapshot {
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

func failures(t *testing.T, name string, form ads.Form, lazy bool, seed uint64, secrets []said) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	p := newPlane(form)
	s, inForce := aSourceOf(t, layered(name), slog.New(slog.DiscardHandler))
	world := &hostile{againstSome}
	world.stand(t, s, inForce)
	h := &history{}
	if lazy {
		h = lazily(t, p, s)
	}
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	p.listen(s)
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
			t.Fatalf("seed %d, %s: two active resources have one name", seed, when)
		}
		if want := s.world.snapshot(s.base); !reflect.DeepEqual(inForce, want) {
			t.Fatalf("seed %d, %s: active:\n%+v\nbut the source assumes:\n%+v", seed, when, inForce, want)
		}
		s.world.tidy(t, seed)
	}
	based := 0
	for range 150 {
		switch n := r.IntN(8); {
		case n == 0 && lazy:
			h.wake(func() bool { return r.IntN(3) == 0 })
		case n == 1 && lazy:
			h.sleep(func() bool { return r.IntN(3) == 0 })
		case n == 2:
			file := someFile(r)
			file.Bootstrap.Static = s.o.Bootstrap.Static
			if s.Rebase(t.Context(), file) == nil {
				based++
			}
		default:
			p.step(t, s, r, secrets)
		}
		sound("on the way")
	}
	if based == 0 {
		t.Errorf("seed %d: no file was accepted", seed)
	}
	world.against = func(*config.Snapshot) error { return nil }
	if err := s.Rebase(t.Context(), &config.Snapshot{Bootstrap: config.Bootstrap{Static: s.o.Bootstrap.Static}}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		p.set(aCluster(fmt.Sprint("c", i), fmt.Sprint("e", i), "", 0))
	}
	p.setAll(r, secrets, 5)
	for name, l := range p.resources[resource.ListenerType] {
		p.set(said{resource.ListenerType, name, l.Body})
	}
	p.supply(t, s, r)
	got := inForce
	if lazy {
		h.wake(func() bool { return true })
		p.supply(t, s, r)
		got = awakeOf(inForce)
	}
	sound("in the end")
	if want := p.afresh(t, name); !reflect.DeepEqual(got, want) {
		t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a new source:\n%+v", seed, got, want)
	}
}
