package dubbo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// instances returns instances of applications, from texts such as "10.0.0.1 application/revision".
func instances(texts ...string) (all []registry.Instance) {
	for _, text := range texts {
		host, key, _ := strings.Cut(text, " ")
		application, revision, _ := strings.Cut(key, "/")
		all = append(all, registry.Instance{
			Application: application, Host: host, Port: 20880, Weight: 1, Healthy: true, Enabled: true,
			Metadata: map[string]string{"dubbo.metadata.revision": revision, "dubbo.metadata.storage-type": "remote"},
		})
	}
	return all
}

// reportInstances notifies all watchers of instances, together with providers at hosts.
func (f *fakeRegistry) reportInstances(hosts []string, all ...string) {
	f.mu.Lock()
	var watchers []*fakeWatcher
	for w := range f.watchers {
		watchers = append(watchers, w)
	}
	f.mu.Unlock()
	for _, w := range watchers {
		w.notify(registry.Snapshot{Providers: providers(w.service, hosts), Instances: instances(all...)})
	}
	synctest.Wait()
}

// publish stores the metadata of a revision, which provides interfaces with a weight.
func (f *fakeRegistry) publish(key string, weight int, interfaces ...string) {
	var services []string
	for _, name := range interfaces {
		services = append(services, fmt.Sprintf(`"%[1]s:dubbo": {"name": %[1]q, "protocol": "dubbo", "path": %[1]q, "params": {"weight": "%[2]d"}}`, name, weight))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.metadata == nil {
		f.metadata = map[string]string{}
	}
	f.metadata[key] = fmt.Sprintf(`{"app": "a", "services": {%s}}`, strings.Join(services, ","))
}

func TestInstancesBecomeProviders(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.publish("a/1", 10, "x", "y")
		r.fake.publish("b/1", 10, "y")
		r.fake.report("x")
		r.fake.report("y")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		must(t, r.discovery.Subscribe(r.Context(), request("y")))
		r.fake.reportInstances(nil, "10.0.0.1 a/1", "10.0.0.2 a/1", "10.0.0.3 b/1", "10.0.0.4 a/0")
		r.desired("x=10.0.0.1,10.0.0.2; y=10.0.0.1,10.0.0.2,10.0.0.3")
		if got := len(r.fake.metadataRequests); got != 2 {
			t.Errorf("metadata were fetched %d times: %v", got, r.fake.metadataRequests)
		}
		r.fake.reportInstances(nil, "10.0.0.2 a/1", "10.0.0.3 b/1")
		r.desired("x=10.0.0.2; y=10.0.0.2,10.0.0.3")
		if got := len(r.fake.metadataRequests); got != 2 {
			t.Errorf("known metadata were fetched again: %v", r.fake.metadataRequests)
		}
	})
}

func TestInstanceOverridesURLOfSameAddress(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.publish("a/1", 10, "x")
		r.fake.report("x")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		r.fake.reportInstances([]string{"10.0.0.1?weight=99", "10.0.0.2?weight=99"}, "10.0.0.1 a/1")
		r.desired("x=10.0.0.1,10.0.0.2")
		var weights []int
		for _, p := range r.discovery.Status().Subscribed[0].Providers {
			weights = append(weights, p.Weight)
		}
		if !slices.Equal(weights, []int{10, 99}) {
			t.Errorf("the weights are %v", weights)
		}
	})
}

func TestInstanceOverridesOnlyItsVersion(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		r.fake.mu.Lock()
		r.fake.metadata = map[string]string{"a/1": `{"app": "a", "services": {"x:2:dubbo": {"name": "x", "version": "2", "protocol": "dubbo", "path": "x"}}}`}
		r.fake.mu.Unlock()
		r.fake.reportInstances([]string{"10.0.0.1"}, "10.0.0.1 a/1")
		r.desired("x=10.0.0.1; x?version=2=10.0.0.1")
		if p := r.discovery.Status().Subscribed[0].Providers; len(p) != 1 || p[0].Version != "" || len(p[0].Variants) != 1 || p[0].Variants[0].Version != "2" {
			t.Errorf("the providers are %+v", p)
		}
	})
}

func TestUnknownRevisionKeepsProviders(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.publish("a/1", 10, "x")
		r.fake.report("x")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		r.fake.reportInstances(nil, "10.0.0.1 a/1")
		r.desired("x=10.0.0.1")

		r.fake.reportInstances(nil, "10.0.0.1 a/2", "10.0.0.2 a/2") // without metadata
		r.desired("x=10.0.0.1")
		if text := r.discovery.Status().Subscribed[0].Sources[0].Error; !strings.Contains(text, "metadata of a, revision 2") {
			t.Errorf("error = %q", text)
		}
		r.fake.publish("a/2", 10, "x")
		<-time.After(2 * time.Second) // fake time, until the next attempt
		synctest.Wait()
		r.desired("x=10.0.0.1,10.0.0.2")
		if text := r.discovery.Status().Subscribed[0].Sources[0].Error; text != "" {
			t.Errorf("error is still %q", text)
		}
	})
}

func TestUnusedRevisionsAreNotFetched(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		r.fake.reportInstances(nil, "10.0.0.1 a/1")
		must(t, r.discovery.Unsubscribe(r.Context(), request("x")))
		<-time.After(time.Hour) // fake time
		if n := len(r.fake.metadataRequests); n != 1 {
			t.Errorf("metadata were fetched %d times", n)
		}
	})
}

// TestManyRevisionsAreFetchedConcurrently verifies that more needed revisions than maxRevisions work,
// without a sweep for each one.
func TestManyRevisionsAreFetchedConcurrently(t *testing.T) {
	const many = 2500
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		var all []string
		for i := range many {
			r.fake.publish(fmt.Sprintf("a%d/1", i), 10, "x")
			all = append(all, fmt.Sprintf("10.0.%d.%d a%d/1", i/250, i%250, i))
		}
		r.fake.report("x")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		r.fake.reportInstances(nil, all...)
		if got := r.discovery.Totals().Providers; got != many {
			t.Errorf("%d providers are active, want %d", got, many)
		}
	})
}

// TestUnavailableRevisionDelaysSnapshotOnce verifies that unavailable metadata, of dead
// instances or bogus entries, delays a snapshot only once.
func TestUnavailableRevisionDelaysSnapshotOnce(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.publish("a/1", 10, "x")
		all := []string{"10.0.0.1 a/1"}
		const dead = 300
		for i := range dead {
			key := fmt.Sprintf("dead%d/1", i)
			r.fake.metadata[key] = noResponse
			all = append(all, fmt.Sprintf("10.0.%d.%d %s", 1+i/250, i%250, key))
		}
		r.fake.report("x", "10.9.9.9")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		slices.Reverse(all) // the one that lives comes last
		r.fake.reportInstances([]string{"10.9.9.8"}, all...)
		advanceClock(6 * time.Second)
		if got := r.inForce(); !strings.Contains(got, "10.9.9.8") {
			t.Errorf("active: %q, want only providers that need no metadata", got)
		}
		// Every fetch gets its turn, however often the others retry.
		advanceClock((dead/32 + 1) * 5 * time.Second)
		r.desired("x=10.0.0.1,10.9.9.8")
	})
}

// TestLateMetadataIsRetriedSoon verifies that the first retry is fast,
// because Dubbo registers an instance before it serves its metadata, and sometimes before it has
// written them.
func TestLateMetadataIsRetriedSoon(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		r.fake.reportInstances(nil, "10.0.0.1 a/1")
		<-time.After(100 * time.Millisecond) // fake time
		r.fake.publish("a/1", 10, "x")
		<-time.After(200 * time.Millisecond)
		synctest.Wait()
		r.desired("x=10.0.0.1")
	})
}
