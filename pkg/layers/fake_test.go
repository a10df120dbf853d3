package layers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
)

// fakeServer applies configurations.
type fakeServer struct {
	t      *testing.T
	active *config.Snapshot
	err    error          // error that apply returns; nil: none
	deltas []config.Delta // deltas that were applied
}

func (s *fakeServer) stack() *layers.Stack { return layers.New(s.apply) }

// apply fails the test if d is not full and omits a difference from the active configuration.
func (s *fakeServer) apply(_ context.Context, d config.Delta) error {
	if s.err != nil {
		return s.err
	}
	next := d.Next()
	if !d.Full {
		if got, want := describe(withDelta(s.active, d)), describe(next); got != want {
			s.t.Errorf("the delta leads to %s, want %s", got, want)
		}
	}
	s.active, s.deltas = next, append(s.deltas, d)
	return nil
}

// withDelta returns c with the clusters and route tables of d. New clusters come last.
func withDelta(c *config.Snapshot, d config.Delta) *config.Snapshot {
	next := *c
	next.Clusters, next.Routes = slices.Clone(c.Clusters), slices.Clone(c.Routes)
	for _, changed := range d.Clusters {
		i := slices.IndexFunc(next.Clusters, func(old *config.Cluster) bool { return old.Name == changed.Name })
		if i >= 0 {
			next.Clusters[i] = changed
		} else {
			next.Clusters = append(next.Clusters, changed)
		}
	}
	for _, changed := range d.Routes {
		i := slices.IndexFunc(next.Routes, func(old *config.RouteTable) bool { return old.Name == changed.Name })
		next.Routes[i] = changed
	}
	return &next
}

// describe returns the names in a configuration: the sorted clusters, then the route tables with
// their virtual hosts, domains and routes.
func describe(s *config.Snapshot) string {
	var words []string
	for _, c := range s.Clusters {
		words = append(words, c.Name)
	}
	slices.Sort(words)
	for _, t := range s.Routes {
		words = append(words, "|", t.Name)
		for _, v := range t.VirtualHosts {
			words = append(words, v.Name+"("+strings.Join(v.Domains, ","))
			for _, r := range v.Routes {
				words = append(words, r.Name)
			}
			words[len(words)-1] += ")"
		}
	}
	return strings.Join(words, " ")
}

func clustersNamed(names ...string) (clusters []*config.Cluster) {
	for _, n := range names {
		clusters = append(clusters, &config.Cluster{Name: n})
	}
	return clusters
}

// tableOf returns the route table "services"; hosts have the form "domain: route route".
func tableOf(hosts ...string) *config.RouteTable {
	t := &config.RouteTable{Name: "services"}
	for i, h := range hosts {
		domain, routes, _ := strings.Cut(h, ": ")
		v := &config.VirtualHost{Name: fmt.Sprint("host", i), Domains: []string{domain}}
		for r := range strings.FieldsSeq(routes) {
			v.Routes = append(v.Routes, &config.Route{Name: r})
		}
		t.VirtualHosts = append(t.VirtualHosts, v)
	}
	return t
}

// fakeLayer is a layer that derives the cluster of its name from the file.
type fakeLayer struct {
	name            string
	defines         bool    // the layer defines a cluster with its name
	err             error   // error that SetFile returns; nil: none
	endReasons      []error // arguments of end
	namesFreedCalls int
}

func (l *fakeLayer) Owner(kind layers.Kind, name string) string {
	if kind == layers.Cluster && l.defines && name == l.name {
		return "layer " + l.name
	}
	return ""
}

func (l *fakeLayer) AppendTo(next *config.Snapshot) {
	if l.defines {
		next.Clusters = append(next.Clusters, clustersNamed(l.name)...)
	}
}

// SetFile defines the cluster if the file has an admin port.
func (l *fakeLayer) SetFile(file *config.Snapshot) (func(context.Context, error), error) {
	previous := l.defines
	l.defines = file.Admin != nil
	return func(_ context.Context, reason error) {
		l.endReasons = append(l.endReasons, reason)
		if reason != nil {
			l.defines = previous
		}
	}, l.err
}

func (l *fakeLayer) NamesFreed() { l.namesFreedCalls++ }
