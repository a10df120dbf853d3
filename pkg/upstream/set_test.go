package upstream

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

func TestGetReturnsOnePlaceholderPerName(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	c := s.Get("web")
	if s.Get("web") != c {
		t.Error("Get returned two clusters for one name")
	}
	if s.Find("web") != nil {
		t.Error("Find returned a cluster that is not configured")
	}
	wantFault(t, c, protocol.NoCluster)
	apply(t, s, cluster("web", "a"))
	if s.Get("web") != c || s.Find("web") != c {
		t.Error("configuration replaced the placeholder")
	}
	serveOne(t, c)
	apply(t, s)
	if s.Get("web") != c || s.Find("web") != nil || c.Config() != nil {
		t.Error("after the removal: want the same cluster, without configuration")
	}
	wantFault(t, c, protocol.NoCluster)
	apply(t, s, cluster("web", "b"))
	if host := serveOne(t, c); host != "b" {
		t.Errorf("served by %s, want b", host)
	}
}

func TestUnreferencedPlaceholdersAreCollected(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	referenced := s.Get("kept")
	for i := range 100 {
		s.Get(fmt.Sprint("dropped", i))
	}
	runtime.GC()
	apply(t, s, cluster("web", "a"))
	if n := len(s.placeholders); n != 1 {
		t.Errorf("%d placeholders, want only the referenced one", n)
	}
	if s.Get("kept") != referenced {
		t.Error("a referenced placeholder was replaced")
	}
}

func TestRemovedClusterDrains(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, cluster("web", "a"))
	x, y := begin(t, c), begin(t, c)
	finish(x)
	apply(t, s, cluster("other", "b"))
	if f.numOpen() != 1 {
		t.Errorf("%d connections are open, want only the one in use", f.numOpen())
	}
	finish(y)
	if f.numOpen() != 0 {
		t.Error("a connection is open after its last exchange")
	}
}

// commit prepares and commits clusters, and returns the change. It does not call DrainRemoved.
func commit(t *testing.T, s *Set, clusters ...*config.Cluster) *Change {
	t.Helper()
	c, err := s.Prepare(clusters)
	if err != nil {
		t.Fatal(err)
	}
	c.Commit()
	return c
}

// TestDrainRemovedKeepsReconfiguredCluster verifies that a late DrainRemoved does not drain
// clusters that later changes have added again or removed again.
func TestDrainRemovedKeepsReconfiguredCluster(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	apply(t, s, cluster("web", "a"))
	web := s.Get("web")
	first := commit(t, s)
	commit(t, s, cluster("web", "a"))
	first.DrainRemoved()
	serveOne(t, web) // it is configured again
	second := commit(t, s)
	first.DrainRemoved()
	serveOne(t, web) // DrainRemoved of the second change has not run yet
	second.DrainRemoved()
	wantFault(t, web, protocol.NoCluster)
	second.DrainRemoved()
	apply(t, s, cluster("web", "a"))
	serveOne(t, web)
}

// TestDrainRemovedDuringCommit verifies that a cluster stays if a Commit adds it while DrainRemoved
// of the change that removed it runs.
func TestDrainRemovedDuringCommit(t *testing.T) {
	installing, drained := make(chan struct{}, 1), make(chan struct{})
	var blockInstall atomic.Bool
	s := newTestSet(t, newFakeConnector(), func(o *Options) {
		roundRobin := o.Policies[config.RoundRobin]
		o.Policies[config.RoundRobin] = func(hosts []balance.Host, options balance.Options) balance.Balancer {
			if blockInstall.Load() {
				installing <- struct{}{}
				select {
				case <-drained:
				case <-time.After(50 * time.Millisecond): // DrainRemoved waits, as it should
				}
			}
			return roundRobin(hosts, options)
		}
	})
	apply(t, s, cluster("web", "a"))
	web := s.Get("web")
	removal := commit(t, s)
	blockInstall.Store(true)
	go func() {
		defer close(drained)
		<-installing
		removal.DrainRemoved()
	}()
	commit(t, s, cluster("web", "a"))
	<-drained
	serveOne(t, web)
}

func TestHostStateSurvivesConfigChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.refuses["b"] = true
		s, c := newTestCluster(t, f, cluster("web", "a", "b", "c"))
		var exchanges []*protocol.Exchange
		for range 6 { // three connections each to a and c
			exchanges = append(exchanges, begin(t, c))
		}
		for _, x := range exchanges {
			finish(x)
		}
		x := begin(t, c)
		before := s.Describe()[0]
		f.dialed()

		changed := cluster("web", "c", "b", "a", "d")
		changed.LBPolicy = config.LeastRequest
		changed.Hosts[2] = config.Host{Address: "a", Weight: 7, Hostname: "a.example", Metadata: map[string]string{"zone": "1"}}
		apply(t, s, changed)

		after := s.Describe()[0]
		if a := after.Hosts[2]; a.Weight != 7 || a.Hostname != "a.example" || a.Metadata["zone"] != "1" {
			t.Errorf("host a = %+v, want its new weight, hostname and metadata", a)
		}
		if after.InFlight != 1 || after.Open != before.Open {
			t.Errorf("in flight %d, connections %d, want 1 and %d", after.InFlight, after.Open, before.Open)
		}
		for i, j := range []int{2, 1, 0} {
			previous, current := before.Hosts[i], after.Hosts[j]
			previous.Weight, previous.Hostname, previous.Metadata = current.Weight, current.Hostname, current.Metadata
			if !reflect.DeepEqual(previous, current) {
				t.Errorf("host %s was %+v, is %+v, want no change", previous.Address, previous, current)
			}
		}
		for range 500 {
			serveOne(t, c)
		}
		finish(x)
		wantList(t, "dials after the change", f.dialed(), "d")
	})
}

func TestRemovedHostDrainsAndReturnsNew(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, cluster("web", "a", "b"))
	serveOne(t, c)
	x, y := begin(t, c), begin(t, c)
	busy := x
	if y.Record.Host().Name() == "a" {
		busy = y
	}
	apply(t, s, cluster("web", "b"))
	for _, conn := range f.conns {
		if conn.host == "a" && conn.closed.Load() == conn.busy.Load() {
			t.Errorf("connection to a: closed %v, busy %v, want only the idle ones closed", conn.closed.Load(), conn.busy.Load())
		}
	}
	if host := serveOne(t, c); host != "b" {
		t.Errorf("served by %s, want b", host)
	}
	apply(t, s, cluster("web", "a", "b"))
	if n := s.Describe()[0].Hosts[0].InFlight; n != 0 {
		t.Errorf("the new host a has %d exchanges of the removed one, want 0", n)
	}
	finish(busy)
	finish(map[bool]*protocol.Exchange{true: x, false: y}[busy == y])
	for _, conn := range f.conns {
		if conn.host == "a" && !conn.closed.Load() {
			t.Error("a connection of the removed host is still open")
		}
	}
	wantCounts(t, s, 0, int64(f.numOpen()), f.numOpen())
}

// TestExchangeOnRemovedHost verifies that an exchange that picked a host before its removal is
// served.
func TestExchangeOnRemovedHost(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, cluster("web", "a"))
	h := c.state.Load().hosts[0]
	apply(t, s, cluster("web", "b"))
	x := newExchange()
	h.load.Begin()
	if err := x.Serve(context.Background(), h.pool(config.HTTP1, "", 0)); err != nil {
		t.Fatal(err)
	}
	finish(x)
	if f.numOpen() != 0 {
		t.Error("the connection of a removed host was kept")
	}
	wantCounts(t, s, 0, 0, 0)
}

func TestDuplicateAddressesAreMerged(t *testing.T) {
	cfg := cluster("web", "a", "b", "a", "c", "a")
	for i, weight := range []uint32{1, 2, 3, 4, 5} {
		cfg.Hosts[i].Weight = weight
	}
	cfg.Hosts[0].Hostname, cfg.Hosts[2].Hostname = "first", "second"
	original := slices.Clone(cfg.Hosts)
	s, _ := newTestCluster(t, newFakeConnector(), cfg)
	var got []string
	for _, h := range s.Describe()[0].Hosts {
		got = append(got, fmt.Sprint(h.Address, h.Weight, h.Hostname))
	}
	wantList(t, "hosts", got, "a9first", "b2", "c4")
	if !reflect.DeepEqual(original, cfg.Hosts) {
		t.Error("the configuration was modified")
	}
}

func TestPrepareRejectsInvalidClusters(t *testing.T) {
	withoutAddress := cluster("nameless", "")
	unknownPolicy := cluster("odd", "a")
	unknownPolicy.LBPolicy = "LB_ODD"
	tests := []struct {
		name     string
		clusters []*config.Cluster
		want     []string
	}{
		{"unknown policy", []*config.Cluster{unknownPolicy}, []string{"odd", "LB_ODD"}},
		{"host without an address", []*config.Cluster{withoutAddress}, []string{"nameless", "host 0"}},
		{"duplicate name", []*config.Cluster{cluster("web", "a"), cluster("web", "b")}, []string{"web", "twice"}},
		{"several errors", []*config.Cluster{unknownPolicy, withoutAddress}, []string{"odd", "nameless"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, c := newTestCluster(t, newFakeConnector(), cluster("running", "a"))
			change, err := s.Prepare(tt.clusters)
			if err == nil {
				change.Rollback()
				t.Fatal("Prepare accepted the change")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Prepare = %v, want an error that names %s", err, part)
				}
			}
			serveOne(t, c)
			apply(t, s, cluster("next", "a")) // a rejected change does not block the next one
		})
	}
}

func TestRollbackLeavesSetUnchanged(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), cluster("web", "a"))
	before := s.Describe()
	change, err := s.Prepare([]*config.Cluster{cluster("web", "b"), cluster("new", "c")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prepare(nil); !errors.Is(err, errChangeOpen) {
		t.Errorf("a second Prepare = %v, want %v", err, errChangeOpen)
	}
	change.Rollback()
	change.Commit() // has no effect after Rollback
	if after := s.Describe(); !reflect.DeepEqual(before, after) {
		t.Errorf("after Rollback: %+v, want %+v", after, before)
	}
	if host := serveOne(t, c); host != "a" {
		t.Errorf("served by %s, want a", host)
	}
	apply(t, s, cluster("web", "b"))
	change.Rollback()
	if host := serveOne(t, c); host != "b" {
		t.Errorf("served by %s, want b", host)
	}
}

func TestUnchangedClustersAreNotReplaced(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), cluster("web", "a", "b"))
	before := c.state.Load()
	apply(t, s, cluster("web", "a", "b"), cluster("new", "c"))
	if c.state.Load() != before {
		t.Error("an unchanged cluster was replaced")
	}
}

// TestSameClusterComparesEveryField verifies that sameCluster compares every field of the
// configuration.
func TestSameClusterComparesEveryField(t *testing.T) {
	full := func() *config.Cluster {
		c := cluster("web", "a")
		c.Hosts[0].Metadata = map[string]string{"zone": "1"}
		c.DNS.Resolvers, c.DNS.Search = []string{"127.0.0.1:53"}, []string{"a.example"}
		c.Subsets.Selectors = [][]string{{"zone"}}
		c.Subsets.Default = map[string]string{"zone": "1"}
		c.HostRules = digitRules{1}
		c.LocalityWeights = []config.LocalityWeight{{Weight: 1}}
		c.AlternateTLS = []*config.TLS{{
			MatchSANs: []config.SANMatcher{{Name: config.ValueMatch{Text: "a"}}}, CipherSuites: []string{"a"}, Curves: []string{"a"}, ALPN: []string{"h2"},
			CertificateHashes: [][32]byte{{1}}, PublicKeyHashes: [][32]byte{{1}},
		}}
		c.Aggregate = []string{"a"}
		c.DropOverloads = []config.DropOverload{{PerMillion: 1}}
		c.HealthCheck = &config.HealthCheck{HTTP: config.HTTPCheck{
			ExpectedStatuses: []config.StatusRange{{Start: 200, End: 204}},
			HeaderMutation:   config.HeaderMutation{Add: []config.HeaderValue{{Name: "a"}}, Remove: []string{"b"}},
		}, TCP: config.TCPCheck{Receive: []string{"a"}}}
		c.OutlierDetection = &config.OutlierDetection{FailureStatuses: []int{503}}
		c.TLS = &config.TLS{
			MatchSANs: []config.SANMatcher{{Name: config.ValueMatch{Text: "a"}}}, CipherSuites: []string{"a"}, Curves: []string{"a"}, ALPN: []string{"h2"},
			CertificateHashes: [][32]byte{{1}}, PublicKeyHashes: [][32]byte{{1}},
		}
		return c
	}
	if !sameCluster(full(), full()) {
		t.Fatal("sameCluster = false for equal clusters")
	}
	var change func(t *testing.T, path string, field reflect.Value, check func(path string))
	change = func(t *testing.T, path string, field reflect.Value, check func(string)) {
		switch field.Kind() {
		case reflect.Pointer:
			change(t, path, field.Elem(), check)
			old := reflect.ValueOf(field.Interface())
			field.SetZero()
			check(path + " absent")
			field.Set(old)
			return
		case reflect.Struct:
			for i := range field.NumField() {
				change(t, path+"."+field.Type().Field(i).Name, field.Field(i), check)
			}
			return
		case reflect.Array:
			change(t, path+"[0]", field.Index(0), check)
			return
		case reflect.Slice:
			change(t, path+"[0]", field.Index(0), check)
			old := reflect.ValueOf(field.Interface())
			field.Set(reflect.Append(field, field.Index(0)))
			check(path + " longer")
			field.Set(old)
			return
		}
		old := reflect.ValueOf(field.Interface())
		switch field.Kind() {
		case reflect.String:
			field.SetString(field.String() + "x")
		case reflect.Int, reflect.Int64:
			field.SetInt(field.Int() + 1)
		case reflect.Uint8, reflect.Uint16, reflect.Uint32:
			field.SetUint(field.Uint() + 1)
		case reflect.Float64:
			field.SetFloat(field.Float() + 1)
		case reflect.Bool:
			field.SetBool(!field.Bool())
		case reflect.Map:
			other := reflect.MakeMap(field.Type())
			other.SetMapIndex(reflect.ValueOf("zone"), reflect.Zero(field.Type().Elem()))
			field.Set(other)
		case reflect.Interface:
			field.Set(reflect.ValueOf(digitRules{2}))
		default:
			t.Fatalf("%s: this test cannot change a %s", path, field.Kind())
		}
		check(path)
		field.Set(old)
	}
	c := full()
	change(t, "Cluster", reflect.ValueOf(c).Elem(), func(path string) {
		if sameCluster(full(), c) {
			t.Errorf("sameCluster ignores a change of %s", path)
		}
	})
}

func TestDescribeIsSortedByName(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	apply(t, s, cluster("c"), cluster("a"), cluster("b"))
	var names []string
	for _, c := range s.Describe() {
		names = append(names, c.Name)
	}
	wantList(t, "names", names, "a", "b", "c")
}

// tenThousandClusters returns ten thousand clusters of two hosts each.
func tenThousandClusters() []*config.Cluster {
	clusters := make([]*config.Cluster, 10_000)
	for i := range clusters {
		clusters[i] = cluster(fmt.Sprint("cluster-", i), fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), fmt.Sprintf("10.1.%d.%d:80", i/250, i%250))
	}
	return clusters
}

func BenchmarkApply(b *testing.B) {
	b.Run("10000 new clusters", func(b *testing.B) {
		clusters := tenThousandClusters()
		b.ReportAllocs()
		for b.Loop() {
			apply(b, NewSet(Options{Policies: policies()}), clusters...)
		}
	})
	b.Run("one of 10000 changed", func(b *testing.B) {
		s := newTestSet(b, newFakeConnector())
		apply(b, s, tenThousandClusters()...)
		clusters := tenThousandClusters() // another copy, as after a reload
		b.ReportAllocs()
		for b.Loop() {
			changed := *clusters[500]
			changed.MaxRequestsPerConn++
			clusters[500] = &changed
			apply(b, s, clusters...)
		}
	})
	b.Run("one of 10000 hosts changed", func(b *testing.B) {
		s := newTestSet(b, newFakeConnector())
		hosts := make([]string, 10_000)
		for i := range hosts {
			hosts[i] = fmt.Sprintf("10.0.%d.%d:80", i/250, i%250)
		}
		cfg := cluster("web", hosts...)
		b.ReportAllocs()
		for b.Loop() {
			changed := *cfg
			changed.Hosts = slices.Clone(cfg.Hosts)
			changed.Hosts[77].Weight = changed.Hosts[77].Weight%100 + 1
			cfg = &changed
			apply(b, s, cfg)
		}
	})
}

func TestMemoryOfManyClusters(t *testing.T) {
	clusters := tenThousandClusters()
	s := newTestSet(t, newFakeConnector())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	apply(t, s, clusters...)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(clusters)
	if kb := (after.HeapAlloc - before.HeapAlloc) / uint64(len(clusters)) / 1024; kb >= 2 {
		t.Errorf("a cluster of two hosts takes %d KB, want less than 2", kb)
	} else {
		t.Logf("%d bytes per cluster of two hosts", (after.HeapAlloc-before.HeapAlloc)/uint64(len(clusters)))
	}
}
