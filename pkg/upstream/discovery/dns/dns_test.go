package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
)

var _ upstream.DNSDiscovery = (*Discovery)(nil)

// fakeZone holds the records of a fake DNS.
type fakeZone struct {
	mu         sync.Mutex
	records    map[string][]string // guarded by mu; lookups of other names fail
	ttl        time.Duration       // guarded by mu
	latency    time.Duration       // guarded by mu; duration of a lookup
	queries    []string            // guarded by mu; "name family servers"
	starts     []time.Duration     // guarded by mu; start of each lookup, relative to start
	running    int                 // guarded by mu; lookups in flight
	maxRunning int                 // guarded by mu; maximum of running
	start      time.Time
}

func newFakeZone(records map[string][]string) *fakeZone {
	return &fakeZone{records: records, start: time.Now()}
}

// zoneResolver is a Resolver that looks up names in the zone as if it queried these servers.
type zoneResolver struct {
	*fakeZone
	servers string
}

func (z *fakeZone) resolver(d *config.DNS) Resolver {
	return zoneResolver{z, strings.Join(d.Resolvers, ",")}
}

func (s zoneResolver) Lookup(ctx context.Context, family Family, name string) ([]netip.Addr, time.Duration, error) {
	z := s.fakeZone
	z.mu.Lock()
	z.queries = append(z.queries, strings.TrimSpace(fmt.Sprint(name, " ", string(family), " ", s.servers)))
	z.starts = append(z.starts, time.Since(z.start))
	z.running++
	z.maxRunning = max(z.maxRunning, z.running)
	latency := z.latency
	z.mu.Unlock()
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.running--
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	var addresses []netip.Addr
	for _, a := range z.records[name] {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	if addresses == nil {
		return nil, 0, errors.New("no such host")
	}
	return addresses, z.ttl, nil
}

func (z *fakeZone) set(name string, addresses ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records[name] = addresses
}

// lookups returns the start times of the lookups since the last call.
func (z *fakeZone) lookups() []time.Duration {
	z.mu.Lock()
	defer z.mu.Unlock()
	starts := z.starts
	z.starts, z.queries = nil, nil
	return starts
}

// updateRecorder records the updates of a watch.
type updateRecorder struct {
	mu      sync.Mutex
	updates []string // guarded by mu; the hosts, or "error: …"
}

func (r *updateRecorder) update(hosts []config.Host, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.updates = append(r.updates, "error: "+err.Error())
		return
	}
	var addresses []string
	for _, h := range hosts {
		addresses = append(addresses, h.Address)
	}
	r.updates = append(r.updates, strings.Join(addresses, " "))
}

func (r *updateRecorder) wantUpdates(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.updates, want) {
		t.Errorf("updates = %q, want %q", r.updates, want)
	}
	r.updates = nil
}

func strictCluster(refresh time.Duration, hosts ...string) *config.Cluster {
	c := &config.Cluster{Name: "web", Type: config.ClusterStrictDNS, DNS: config.DNS{RefreshRate: refresh}}
	for _, h := range hosts {
		c.Hosts = append(c.Hosts, config.Host{Address: h, Weight: 1})
	}
	return c
}

// advanceClock advances fake time by d and waits until all other goroutines are blocked.
//
//arch:clock called in bubbles of testing/synctest only
func advanceClock(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestEachAddressBecomesHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"web.example": {"10.0.0.2", "10.0.0.1", "10.0.0.2", "::ffff:10.0.0.3"}, "six.example": {"2001:db8::1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		c := strictCluster(time.Minute, "web.example:8080", "six.example:81", "192.0.2.1:90", "/run/app.sock", "web.example")
		c.Hosts[0].Weight = 7
		c.Hosts[0].Metadata = map[string]string{"zone": "1"}
		c.Hosts[1].Hostname = "given"
		var got []config.Host
		stop := d.Watch(c, func(hosts []config.Host, err error) { got = hosts })
		defer stop()
		synctest.Wait()
		metadata := map[string]string{"zone": "1"}
		want := []config.Host{
			{Address: "10.0.0.1:8080", Hostname: "web.example", Weight: 7, Metadata: metadata},
			{Address: "10.0.0.2:8080", Hostname: "web.example", Weight: 7, Metadata: metadata},
			{Address: "10.0.0.3:8080", Hostname: "web.example", Weight: 7, Metadata: metadata},
			{Address: "[2001:db8::1]:81", Hostname: "given", Weight: 1},
			{Address: "192.0.2.1:90", Weight: 1},
			{Address: "/run/app.sock", Weight: 1},
			{Address: "10.0.0.1:80", Hostname: "web.example", Weight: 1},
			{Address: "10.0.0.2:80", Hostname: "web.example", Weight: 1},
			{Address: "10.0.0.3:80", Hostname: "web.example", Weight: 1},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("hosts\n%+v, want\n%+v", got, want)
		}
		if n := len(z.queries); n != 2 {
			t.Errorf("%d lookups, want one for each name: %q", n, z.queries)
		}
	})
}

func TestLiteralAddressesNeedNoLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Resolver: newFakeZone(nil).resolver})
		defer d.Close()
		var updates updateRecorder
		defer d.Watch(strictCluster(0, "192.0.2.1:80", "[::1]:80", "/run/web.sock", "./web.sock", "@web"), updates.update)()
		synctest.Wait()
		updates.wantUpdates(t, "192.0.2.1:80 [::1]:80 /run/web.sock ./web.sock @web")
	})
}

func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		var updates updateRecorder
		defer d.Watch(strictCluster(time.Minute, "a:80"), updates.update)()
		synctest.Wait()
		updates.wantUpdates(t, "10.0.0.1:80")
		advanceClock(10 * time.Minute)
		updates.wantUpdates(t) // no new update
		starts := z.lookups()
		if len(starts) < 11 || len(starts) > 12 {
			t.Errorf("%d lookups in ten minutes, want 11 or 12", len(starts))
		}
		for i := 1; i < len(starts); i++ {
			if interval := starts[i] - starts[i-1]; interval > time.Minute || interval < 54*time.Second {
				t.Errorf("interval of %v, want one minute minus up to a tenth", interval)
			}
		}
		z.set("a", "10.0.0.2", "10.0.0.1")
		advanceClock(time.Minute)
		updates.wantUpdates(t, "10.0.0.1:80 10.0.0.2:80")
	})
}

func TestDefaultRefreshIsFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		defer d.Watch(strictCluster(0, "a:80"), (&updateRecorder{}).update)()
		advanceClock(5 * time.Second)
		if n := len(z.lookups()); n != 2 {
			t.Errorf("%d lookups in five seconds, want 2", n)
		}
	})
}

func TestFailureKeepsAddressesAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		var updates updateRecorder
		defer d.Watch(strictCluster(4*time.Second, "a:80"), updates.update)()
		synctest.Wait()
		updates.wantUpdates(t, "10.0.0.1:80")
		z.set("a")
		z.lookups()
		advanceClock(time.Minute)
		updates.wantUpdates(t, "error: resolving a: no such host") // reported once
		starts := z.lookups()
		for i, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second} {
			if interval := starts[i+1] - starts[i]; interval > want || interval < want-want/10 {
				t.Errorf("retry %d after %v, want %v minus up to a tenth", i+1, interval, want)
			}
		}
		z.set("a", "10.0.0.1")
		advanceClock(4 * time.Second)
		updates.wantUpdates(t) // the addresses never changed
		z.set("a")
		advanceClock(4 * time.Second)
		updates.wantUpdates(t, "error: resolving a: no such host")
	})
}

func TestUpdateWaitsForEveryName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		var updates, slowUpdates updateRecorder
		defer d.Watch(strictCluster(time.Minute, "a:80"), updates.update)()
		synctest.Wait()
		z.latency = time.Second
		defer d.Watch(strictCluster(time.Minute, "a:80", "b:80"), slowUpdates.update)()
		advanceClock(999 * time.Millisecond)
		slowUpdates.wantUpdates(t)
		advanceClock(time.Millisecond)
		slowUpdates.wantUpdates(t, "10.0.0.1:80", "error: resolving b: no such host")
		z.set("b", "10.0.0.5")
		advanceClock(2 * time.Second)
		slowUpdates.wantUpdates(t, "10.0.0.1:80 10.0.0.5:80")
		updates.wantUpdates(t, "10.0.0.1:80")
	})
}

func TestNamesAreSharedBetweenClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		var updates [3]updateRecorder
		var stops []func()
		for i := range updates {
			stops = append(stops, d.Watch(strictCluster(time.Minute, "a:80", fmt.Sprint("a:", 81+i)), updates[i].update))
		}
		synctest.Wait()
		for i := range updates {
			updates[i].wantUpdates(t, fmt.Sprintf("10.0.0.1:80 10.0.0.1:%d", 81+i))
		}
		if n := len(z.lookups()); n != 1 {
			t.Errorf("%d lookups for three clusters, want 1", n)
		}
		stops[0]()
		stops[1]()
		z.set("a", "10.0.0.2")
		advanceClock(time.Minute)
		updates[0].wantUpdates(t)
		updates[2].wantUpdates(t, "10.0.0.2:80 10.0.0.2:83")
		stops[2]()
		z.lookups()
		advanceClock(time.Hour)
		if n := len(z.lookups()); n != 0 {
			t.Errorf("%d lookups of a name without watches, want 0", n)
		}
	})
}

func TestResolverSettingsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		for _, dns := range []config.DNS{
			{}, {Family: "AUTO"}, {Family: "V4_ONLY"}, {Family: "V6_ONLY"},
			{Resolvers: []string{"192.0.2.1:53", "192.0.2.2:53"}},
		} {
			c := strictCluster(0, "a:80")
			c.DNS = dns
			defer d.Watch(c, (&updateRecorder{}).update)()
		}
		synctest.Wait()
		slices.Sort(z.queries)
		want := []string{"a AUTO", "a AUTO 192.0.2.1:53,192.0.2.2:53", "a V4_ONLY", "a V6_ONLY"}
		if !slices.Equal(z.queries, want) {
			t.Errorf("queries = %q, want %q", z.queries, want)
		}
	})
}

func TestTTL(t *testing.T) {
	tests := []struct {
		name    string
		respect bool
		minTTL  time.Duration
		ttl     time.Duration
		want    time.Duration // time until the next lookup
	}{
		{"respected", true, 0, 30 * time.Second, 30 * time.Second},
		{"respected, longer than the refresh rate", true, 0, time.Hour, time.Hour},
		{"respected, minimum of a second", true, 0, time.Nanosecond, time.Second},
		{"respected, maximum of an hour", true, 0, 68 * 365 * 24 * time.Hour, time.Hour},
		{"unknown", true, 0, 0, time.Minute},
		{"respected, configured minimum", true, 20 * time.Second, 10 * time.Second, 20 * time.Second},
		{"respected, above the configured minimum", true, 20 * time.Second, 30 * time.Second, 30 * time.Second},
		{"respected, configured minimum above the maximum", true, 2 * time.Hour, 30 * time.Second, 2 * time.Hour},
		{"unknown, with a configured minimum", true, 2 * time.Hour, 0, time.Minute},
		{"not respected, with a configured minimum", false, 2 * time.Hour, 30 * time.Second, time.Minute},
		{"not respected", false, 0, 30 * time.Second, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
				z.ttl = tt.ttl
				d := New(Options{Resolver: z.resolver})
				defer d.Close()
				c := strictCluster(time.Minute, "a:80")
				c.DNS.RespectTTL, c.DNS.MinTTL = tt.respect, tt.minTTL
				defer d.Watch(c, (&updateRecorder{}).update)()
				advanceClock(tt.want - tt.want/10 - 1)
				if n := len(z.lookups()); n != 1 {
					t.Errorf("%d lookups before the next one was due, want 1", n)
				}
				advanceClock(tt.want/10 + 1)
				if n := len(z.lookups()); n != 1 {
					t.Errorf("%d further lookups when the next one was due, want 1", n)
				}
			})
		})
	}
}

func TestConcurrentLookupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{})
		z.latency = time.Second
		var hosts []string
		for i := range 3 * maxLookups {
			hosts = append(hosts, fmt.Sprintf("n%d:80", i))
			z.set(fmt.Sprint("n", i), "10.0.0.1")
		}
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		var updates updateRecorder
		defer d.Watch(strictCluster(time.Hour, hosts...), updates.update)()
		advanceClock(3 * time.Second)
		if z.maxRunning != maxLookups || len(updates.updates) != 1 {
			t.Errorf("%d concurrent lookups and %d updates, want %d and 1", z.maxRunning, len(updates.updates), maxLookups)
		}
	})
}

func TestLookupTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		z.latency = time.Hour
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		var updates updateRecorder
		defer d.Watch(strictCluster(time.Hour, "a:80"), updates.update)()
		advanceClock(lookupTimeout)
		updates.wantUpdates(t, "error: resolving a: context deadline exceeded")
	})
}

// TestStopAndClose verifies that there are no updates after stop, and no goroutines after Close.
// synctest fails a test that leaks a goroutine.
func TestStopAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"a": {"10.0.0.1"}})
		z.latency = time.Second
		d := New(Options{Resolver: z.resolver})
		var afterStop, afterClose updateRecorder
		stop := d.Watch(strictCluster(time.Minute, "a:80"), afterStop.update)
		d.Watch(strictCluster(time.Minute, "b:80"), afterClose.update)
		advanceClock(500 * time.Millisecond)
		stop()
		d.Close()
		advanceClock(time.Hour)
		afterStop.wantUpdates(t)
		afterClose.wantUpdates(t)
		if z.running != 0 {
			t.Errorf("%d lookups are in flight after Close, want 0", z.running)
		}
	})
}
