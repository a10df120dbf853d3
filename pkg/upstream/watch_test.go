package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// fakeDiscovery is a Discovery that the test controls.
type fakeDiscovery struct {
	updates map[string]func([]config.Host, error)
	stopped []string
}

func (d *fakeDiscovery) Watch(c *config.Cluster, update func([]config.Host, error)) func() {
	key := fmt.Sprint(c.Name, c.MaxRequestsPerConn-1000)
	d.updates[key] = update
	return func() { d.stopped = append(d.stopped, key) }
}

func (d *fakeDiscovery) deliver(key string, hosts ...string) {
	d.updates[key](cluster("", hosts...).Hosts, nil)
}

func discoveryCluster(name string, generation int) *config.Cluster {
	c := cluster(name, name+".example:80")
	c.Type = config.ClusterStrictDNS
	c.MaxRequestsPerConn = 1000 + generation // makes the configuration differ
	return c
}

func newDiscoverySet(t *testing.T, f *fakeConnector) (*Set, *fakeDiscovery) {
	d := &fakeDiscovery{updates: map[string]func([]config.Host, error){}}
	return newTestSet(t, f, func(o *Options) {
		o.Discoveries = map[config.ClusterType]Discovery{config.ClusterStrictDNS: d}
	}), d
}

func TestDiscoveredHosts(t *testing.T) {
	f := newFakeConnector()
	s, d := newDiscoverySet(t, f)
	apply(t, s, discoveryCluster("web", 1))
	c := s.Get("web")
	wantFault(t, c, protocol.NoHealthyHost)
	d.deliver("web1", "10.0.0.1:80")
	serveOne(t, c)
	d.deliver("web1", "10.0.0.1:80", "10.0.0.2:80")
	serveOne(t, c)
	serveOne(t, c)
	d.updates["web1"](nil, errors.New("server failure")) // the current hosts stay
	serveOne(t, c)
	dials := f.dialed()
	slices.Sort(dials)
	wantList(t, "dials", dials, "10.0.0.1:80", "10.0.0.2:80")
	d.deliver("web1", "10.0.0.2:80")
	if f.numOpen() != 1 {
		t.Errorf("%d connections are open, want only that of the remaining host", f.numOpen())
	}
	d.deliver("web1")
	wantFault(t, c, protocol.NoHealthyHost)
	apply(t, s)
	wantList(t, "stopped", d.stopped, "web1")
	d.deliver("web1", "10.0.0.1:80") // late update
	wantFault(t, c, protocol.NoCluster)
}

func TestHostsFoundBeforeCommitAreUsed(t *testing.T) {
	s, d := newDiscoverySet(t, newFakeConnector())
	change, err := s.Prepare([]*config.Cluster{discoveryCluster("web", 1)})
	if err != nil {
		t.Fatal(err)
	}
	d.deliver("web1", "10.0.0.1:80")
	wantFault(t, s.Get("web"), protocol.NoCluster)
	change.Commit()
	change.DrainRemoved()
	serveOne(t, s.Get("web"))
}

func TestDiscoveredHostsSurviveOtherChanges(t *testing.T) {
	f := newFakeConnector()
	s, d := newDiscoverySet(t, f)
	apply(t, s, discoveryCluster("web", 1))
	d.deliver("web1", "10.0.0.1:80")
	serveOne(t, s.Get("web"))
	apply(t, s, discoveryCluster("web", 2)) // the new discovery has found nothing yet
	wantList(t, "stopped", d.stopped, "web1")
	serveOne(t, s.Get("web"))
	d.deliver("web1", "10.0.0.9:80") // late update of the old discovery
	serveOne(t, s.Get("web"))
	d.deliver("web2", "10.0.0.1:80")
	serveOne(t, s.Get("web"))
	wantList(t, "dials", f.dialed(), "10.0.0.1:80")
}

// TestHostsStayWhileNameIsAdded verifies that a cluster keeps the hosts of its static configuration
// while a discovery resolves its new names.
func TestHostsStayWhileNameIsAdded(t *testing.T) {
	f := newFakeConnector()
	s, d := newDiscoverySet(t, f)
	apply(t, s, cluster("web", "10.0.0.1:80"))
	serveOne(t, s.Get("web"))
	apply(t, s, discoveryCluster("web", 1))
	serveOne(t, s.Get("web"))
	d.deliver("web1", "10.0.0.2:80")
	serveOne(t, s.Get("web"))
	wantList(t, "dials", f.dialed(), "10.0.0.1:80", "10.0.0.2:80")
}

func TestRollbackStopsDiscovery(t *testing.T) {
	s, d := newDiscoverySet(t, newFakeConnector())
	apply(t, s, discoveryCluster("web", 1))
	d.deliver("web1", "10.0.0.1:80")
	change, err := s.Prepare([]*config.Cluster{discoveryCluster("web", 2), discoveryCluster("new", 1)})
	if err != nil {
		t.Fatal(err)
	}
	change.Rollback()
	slices.Sort(d.stopped)
	wantList(t, "stopped", d.stopped, "new1", "web2")
	d.deliver("web2", "10.0.0.2:80")
	x := begin(t, s.Get("web"))
	wantList(t, "attempts", attempts(x), "10.0.0.1:80:200")
	finish(x)
}

func TestWarmWaitsForFirstDiscoveryResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newDiscoverySet(t, newFakeConnector())
		defer s.Close()
		change, err := s.Prepare([]*config.Cluster{discoveryCluster("a", 1), discoveryCluster("b", 1), cluster("c", "x")})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		time.AfterFunc(time.Second, func() { d.deliver("a1", "10.0.0.1:80") })
		time.AfterFunc(2*time.Second, func() { d.updates["b1"](nil, errors.New("no such name")) })
		if err := change.Warm(context.Background()); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("Warm = %v after %v, want nil after 2s", err, time.Since(start))
		}
		change.Rollback()

		change, err = s.Prepare([]*config.Cluster{discoveryCluster("late", 1)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := change.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "late") {
			t.Errorf("Warm = %v, want a deadline error that names the cluster", err)
		}
		change.Commit()
		change.DrainRemoved()
	})
}
