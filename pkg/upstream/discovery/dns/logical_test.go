package dns

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
)

func logicalCluster(refresh time.Duration, host config.Host) *config.Cluster {
	return &config.Cluster{Name: "web", Type: config.ClusterLogicalDNS, DNS: config.DNS{RefreshRate: refresh}, Hosts: []config.Host{host}}
}

func TestLogicalDNSTargetFollowsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"web.example": {"10.0.0.9", "10.0.0.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		c := logicalCluster(time.Minute, config.Host{Address: "web.example:8443", Weight: 7, Metadata: map[string]string{"zone": "1"}})
		var got []config.Host
		updates := 0
		defer d.Watch(c, func(hosts []config.Host, err error) {
			if err == nil {
				got = hosts
				updates++
			}
		})()
		checkTarget := func(target string, updateCount int) {
			t.Helper()
			host := c.Hosts[0]
			host.Hostname, host.ResolvedAddress = "web.example", target
			if !reflect.DeepEqual(got, []config.Host{host}) || updates != updateCount {
				t.Errorf("after %d updates the host is %+v, want %d updates and %+v", updates, got, updateCount, host)
			}
		}
		synctest.Wait()
		checkTarget("10.0.0.9:8443", 1) // the first address, not the lowest
		advanceClock(time.Minute)
		checkTarget("10.0.0.9:8443", 1) // no new update
		z.set("web.example", "10.0.0.1", "10.0.0.9")
		advanceClock(time.Minute)
		checkTarget("10.0.0.1:8443", 2)
		z.set("web.example") // all further lookups fail
		advanceClock(10 * time.Minute)
		checkTarget("10.0.0.1:8443", 2)
	})
}

func TestLogicalDNSWithoutAddressHasNoHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Resolver: newFakeZone(map[string][]string{}).resolver})
		defer d.Close()
		var updates updateRecorder
		defer d.Watch(logicalCluster(time.Minute, config.Host{Address: "a:80"}), updates.update)()
		synctest.Wait()
		updates.wantUpdates(t, "error: resolving a: no such host")
	})
}

func TestFailureRefreshRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		c := strictCluster(time.Second, "a:80")
		c.DNS.FailureBackoffBase, c.DNS.FailureBackoffMax = 2*time.Second, 7*time.Second
		defer d.Watch(c, (&updateRecorder{}).update)()
		advanceClock(time.Minute)
		starts := z.lookups()
		for i, want := range []time.Duration{2 * time.Second, 4 * time.Second, 7 * time.Second, 7 * time.Second} {
			if interval := starts[i+1] - starts[i]; interval > want || interval < want-want/10 {
				t.Errorf("retry %d after %v, want %v minus up to a tenth", i+1, interval, want)
			}
		}
	})
}

func TestJitterExtendsIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		c := strictCluster(time.Minute, "a:80")
		c.DNS.Jitter = time.Hour
		defer d.Watch(c, (&updateRecorder{}).update)()
		advanceClock(30 * 24 * time.Hour)
		var shortest, longest time.Duration
		starts := z.lookups()
		for i := 1; i < len(starts); i++ {
			interval := starts[i] - starts[i-1]
			if interval < time.Minute || interval > time.Hour+time.Minute {
				t.Errorf("interval of %v, want one minute plus up to an hour", interval)
			}
			if shortest == 0 || interval < shortest {
				shortest = interval
			}
			longest = max(longest, interval)
		}
		if longest-shortest < 30*time.Minute {
			t.Errorf("all intervals are between %v and %v, want a range of at least 30m", shortest, longest)
		}
	})
}

// TestNamesAndOutcomes verifies the status and the counted outcomes of names that resolve, fail and
// fail after they have resolved.
func TestNamesAndOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.2", "10.0.0.1"}})
		var counts [4]int
		d := New(Options{Resolver: z.resolver, Count: func(o Outcome) { counts[o]++ }})
		defer d.Close()
		c := strictCluster(time.Minute, "a:80", "10.0.0.7:80", "a:81", "b:80")
		c.DNS.FailureBackoffBase, c.DNS.FailureBackoffMax = time.Hour, time.Hour
		if got := d.Names(c); got != nil {
			t.Errorf("names before they are watched = %v, want none", got)
		}
		defer d.Watch(c, (&updateRecorder{}).update)()
		advanceClock(30 * time.Second)
		want := []upstream.NameStatus{
			{Name: "a", Addresses: []string{"10.0.0.1", "10.0.0.2"}, Age: 30, Lookups: 1},
			{Name: "b", Addresses: []string{}, Lookups: 1, Failures: 1, Error: "no such host"},
		}
		if got := d.Names(c); !reflect.DeepEqual(got, want) {
			t.Errorf("names = %+v, want %+v", got, want)
		}
		z.set("a")
		advanceClock(30 * time.Minute)
		a := d.Names(c)[0]
		if a.Age < 29*60 || a.Age > 31*60 || len(a.Addresses) != 2 || a.Failures != 1 || a.Error == "" {
			t.Errorf("status after half an hour of failed lookups = %+v; want an age of half an hour, 2 addresses, 1 failure and an error", a)
		}
		if counts[Resolved] != 1 || counts[Failed] != 2 {
			t.Errorf("outcomes = %v, want 1 resolved and 2 failed", counts)
		}
	})
}

func TestCandidates(t *testing.T) {
	longName := "a." + string(slices.Repeat([]byte("x"), 60)) + "." + string(slices.Repeat([]byte("y"), 60)) + "." + string(slices.Repeat([]byte("z"), 60))
	tests := []struct {
		name   string
		domain string
		search []string
		ndots  int
		want   []string
	}{
		{"completed by the system", "a", nil, 0, []string{"a"}},
		{"short name is completed first", "a", []string{"x.test", "y.test"}, 0, []string{"a.x.test.", "a.y.test.", "a."}},
		{"name with a dot is tried first", "a.b", []string{"x.test"}, 1, []string{"a.b.", "a.b.x.test."}},
		{"name with fewer dots than ndots", "a.b", []string{"x.test."}, 2, []string{"a.b.x.test.", "a.b."}},
		{"fully qualified name", "a.", []string{"x.test"}, 5, []string{"a."}},
		{"candidate that is too long is omitted", longName, []string{string(slices.Repeat([]byte("w"), 63)) + "." + string(slices.Repeat([]byte("v"), 63)), "y"}, 1, []string{longName + ".", longName + ".y."}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := System(&config.DNS{Search: tt.search, Ndots: tt.ndots}).(*systemResolver)
			if got := s.candidates(tt.domain); !slices.Equal(got, tt.want) {
				t.Errorf("candidates(%q) = %q, want %q", tt.domain, got, tt.want)
			}
		})
	}
}

func TestFamilyFilter(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	tests := []struct {
		family      Family
		found, want []netip.Addr
	}{
		{Auto, []netip.Addr{v6, v4}, []netip.Addr{v4}},
		{V4Preferred, []netip.Addr{v6, v4}, []netip.Addr{v4}},
		{V4Preferred, []netip.Addr{v6}, []netip.Addr{v6}},
		{All, []netip.Addr{v6, v4}, []netip.Addr{v6, v4}},
	}
	for _, tt := range tests {
		if got := tt.family.filter(tt.found); !slices.Equal(got, tt.want) {
			t.Errorf("%s.filter(%v) = %v, want %v", tt.family, tt.found, got, tt.want)
		}
	}
}

func TestSearchDomains(t *testing.T) {
	noLeaks(t)
	s := startServer(t, "app.b.test. 60 IN A 192.0.2.1", "app. 60 IN A 192.0.2.9")
	addresses, _, err := System(&config.DNS{Resolvers: []string{s.address}, Search: []string{"a.test", "b.test"}}).
		Lookup(context.Background(), V4Only, "app")
	if err != nil || !slices.Equal(addresses, []netip.Addr{netip.MustParseAddr("192.0.2.1")}) {
		t.Errorf("Lookup(app) = %v, %v, want the address of app.b.test", addresses, err)
	}
	if _, _, err := System(&config.DNS{Resolvers: []string{s.address}, Search: []string{"a.test"}}).
		Lookup(context.Background(), V4Only, "other"); !isNotFound(err) {
		t.Errorf("Lookup(other) = %v, want an error: the name does not exist", err)
	}
}
