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
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// rejectingApply rejects the configurations for which check returns an error.
type rejectingApply struct{ check func(*config.Snapshot) error }

// install gives s a stack that checks each new configuration and stores it in active. It fails t if
// the reported changes alone do not lead to the new configuration.
func (a *rejectingApply) install(t *testing.T, s *Source, active *config.Snapshot) {
	t.Helper()
	file := *active
	file.Clusters, file.Listeners, file.Routes = nil, nil, nil
	s.stack = layers.New(func(_ context.Context, d config.Delta) error {
		t.Helper()
		next := d.Next()
		if !d.Full {
			if changed := withChanges(active, d, next); !reflect.DeepEqual(changed, next) {
				t.Fatalf("the reported changes lead to\n%+v\nwant\n%+v", changed, next)
			}
		}
		if err := a.check(next); err != nil {
			return err
		}
		*active = *next
		return nil
	})
	s.stack.Add(s)
	if err := s.stack.SetFile(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
}

// withChanges returns c with the changed clusters and route tables of d, and with the clusters in
// the order of next.
func withChanges(c *config.Snapshot, d config.Delta, next *config.Snapshot) *config.Snapshot {
	changed, clusters := *c, map[string]*config.Cluster{}
	for _, cluster := range slices.Concat(c.Clusters, d.Clusters) {
		clusters[cluster.Name] = cluster
	}
	changed.Clusters = nil
	for _, cluster := range next.Clusters {
		if merged := clusters[cluster.Name]; merged != nil {
			changed.Clusters = append(changed.Clusters, merged)
			delete(clusters, cluster.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		changed.Clusters = append(changed.Clusters, clusters[name])
	}
	changed.Routes = slices.Clone(c.Routes)
	for _, t := range d.Routes {
		i := slices.IndexFunc(changed.Routes, func(table *config.RouteTable) bool { return table.Name == t.Name })
		if i >= 0 {
			changed.Routes[i] = t
		}
	}
	return &changed
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
					return fmt.Errorf("table %s cannot be compiled", t.Name)
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
// configurations and with changes of the file. During the updates, the active configuration equals
// that of the Source's stack. After the control plane has sent the rejected resources again and
// Weft has accepted them, it equals that of a new source.
func TestRandomHistoriesWithFailuresConverge(t *testing.T) {
	withoutRace(t)
	secrets := xdstest.Secrets(t)
	for name, mode := range modes() {
		for _, onDemand := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/on-demand=%t", name, onDemand), func(t *testing.T) {
				for seed := range uint64(50) {
					runFailures(t, name, mode, onDemand, seed, secrets)
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

func runFailures(t *testing.T, apiType string, mode ads.Mode, onDemand bool, seed uint64, secrets []xdstest.Resource) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	p := newFakeControlPlane(mode)
	s, active, h := newHistorySource(t, p, apiType, onDemand)
	apply := &rejectingApply{rejectSome}
	apply.install(t, s, active)
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	p.readRequests(s)
	checkConsistent := func(label string) {
		t.Helper()
		names := map[string]bool{}
		for _, c := range active.Clusters {
			names["cluster "+c.Name] = true
		}
		for _, l := range active.Listeners {
			names["listener "+l.Name] = true
		}
		for _, table := range active.Routes {
			names["table "+table.Name] = true
		}
		if len(names) != len(active.Clusters)+len(active.Listeners)+len(active.Routes) {
			t.Fatalf("seed %d, %s: two active resources have the same name", seed, label)
		}
		if want := s.stack.Snapshot(); !reflect.DeepEqual(active, want) {
			t.Fatalf("seed %d, %s: active:\n%+v\nwant the snapshot of the stack:\n%+v", seed, label, active, want)
		}
		checkInvariants(t, s, seed)
	}
	acceptedFiles := 0
	for range 150 {
		switch n := r.IntN(8); {
		case n == 0 && onDemand:
			h.subscribe(func() bool { return r.IntN(3) == 0 })
		case n == 1 && onDemand:
			h.unsubscribe(func() bool { return r.IntN(3) == 0 })
		case n == 2:
			file := randomFile(r)
			file.Bootstrap.StaticResources = s.opts.Bootstrap.StaticResources
			if s.stack.SetFile(t.Context(), file) == nil {
				acceptedFiles++
			}
		default:
			p.randomStep(t, s, r, secrets)
		}
		checkConsistent("during the updates")
	}
	if acceptedFiles == 0 {
		t.Errorf("seed %d: no file was accepted, want at least one", seed)
	}
	apply.check = func(*config.Snapshot) error { return nil }
	if err := s.stack.SetFile(t.Context(), &config.Snapshot{Bootstrap: config.Bootstrap{StaticResources: s.opts.Bootstrap.StaticResources}}); err != nil {
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
	got := active
	if onDemand {
		h.subscribe(func() bool { return true })
		p.deliverAll(t, s, r)
		got = withoutOnDemand(active)
	}
	checkConsistent("after the last update")
	if want := p.freshSnapshot(t, apiType); !reflect.DeepEqual(got, want) {
		t.Fatalf("seed %d: active:\n%+v\nwant the configuration of a new source:\n%+v", seed, got, want)
	}
}
