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
func instances(specs ...string) (list []registry.Instance) {
	for _, spec := range specs {
		host, key, _ := strings.Cut(spec, " ")
		application, revision, _ := strings.Cut(key, "/")
		list = append(list, registry.Instance{
			Application: application, Host: host, Port: 20880, Weight: 1, Healthy: true, Enabled: true,
			Metadata: map[string]string{"dubbo.metadata.revision": revision, "dubbo.metadata.storage-type": "remote"},
		})
	}
	return list
}

// reportInstances notifies all watchers of instances, together with providers at hosts.
func (f *fakeRegistry) reportInstances(hosts []string, specs ...string) {
	f.mu.Lock()
	var watchers []*fakeWatcher
	for w := range f.watchers {
		watchers = append(watchers, w)
	}
	f.mu.Unlock()
	for _, w := range watchers {
		w.notify(registry.Snapshot{Providers: providers(w.service, hosts), Instances: instances(specs...)})
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
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.publish("a/1", 10, "x", "y")
		env.fake.publish("b/1", 10, "y")
		env.fake.report("x")
		env.fake.report("y")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		must(t, env.discovery.Subscribe(env.Context(), request("y")))
		env.fake.reportInstances(nil, "10.0.0.1 a/1", "10.0.0.2 a/1", "10.0.0.3 b/1", "10.0.0.4 a/0")
		env.wantActive("x=10.0.0.1,10.0.0.2; y=10.0.0.1,10.0.0.2,10.0.0.3")
		if got := len(env.fake.metadataRequests); got != 2 {
			t.Errorf("metadata were fetched %d times, want 2: %v", got, env.fake.metadataRequests)
		}
		env.fake.reportInstances(nil, "10.0.0.2 a/1", "10.0.0.3 b/1")
		env.wantActive("x=10.0.0.2; y=10.0.0.2,10.0.0.3")
		if got := len(env.fake.metadataRequests); got != 2 {
			t.Errorf("metadata were fetched %d times, want 2, because they are cached: %v", got, env.fake.metadataRequests)
		}
	})
}

func TestInstanceOverridesURLOfSameAddress(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.publish("a/1", 10, "x")
		env.fake.report("x")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		env.fake.reportInstances([]string{"10.0.0.1?weight=99", "10.0.0.2?weight=99"}, "10.0.0.1 a/1")
		env.wantActive("x=10.0.0.1,10.0.0.2")
		var weights []int
		for _, p := range env.discovery.Status().Subscribed[0].Providers {
			weights = append(weights, p.Weight)
		}
		if !slices.Equal(weights, []int{10, 99}) {
			t.Errorf("weights %v, want [10 99]", weights)
		}
	})
}

func TestInstanceOverridesOnlyItsVersion(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		env.fake.mu.Lock()
		env.fake.metadata = map[string]string{"a/1": `{"app": "a", "services": {"x:2:dubbo": {"name": "x", "version": "2", "protocol": "dubbo", "path": "x"}}}`}
		env.fake.mu.Unlock()
		env.fake.reportInstances([]string{"10.0.0.1"}, "10.0.0.1 a/1")
		env.wantActive("x=10.0.0.1; x?version=2=10.0.0.1")
		if p := env.discovery.Status().Subscribed[0].Providers; len(p) != 1 || p[0].Version != "" || len(p[0].Variants) != 1 || p[0].Variants[0].Version != "2" {
			t.Errorf("providers %+v, want one without a version, with the variant 2", p)
		}
	})
}

func TestUnknownRevisionKeepsProviders(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.publish("a/1", 10, "x")
		env.fake.report("x")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		env.fake.reportInstances(nil, "10.0.0.1 a/1")
		env.wantActive("x=10.0.0.1")

		env.fake.reportInstances(nil, "10.0.0.1 a/2", "10.0.0.2 a/2") // without metadata
		env.wantActive("x=10.0.0.1")
		if text := env.discovery.Status().Subscribed[0].Sources[0].Error; !strings.Contains(text, "metadata of a, revision 2") {
			t.Errorf("error = %q, want \"metadata of a, revision 2\"", text)
		}
		env.fake.publish("a/2", 10, "x")
		<-time.After(2 * time.Second) // fake time, until the next attempt
		synctest.Wait()
		env.wantActive("x=10.0.0.1,10.0.0.2")
		if text := env.discovery.Status().Subscribed[0].Sources[0].Error; text != "" {
			t.Errorf("error = %q, want none", text)
		}
	})
}

func TestUnusedRevisionIsNotRetried(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		env.fake.reportInstances(nil, "10.0.0.1 a/1")
		must(t, env.discovery.Unsubscribe(env.Context(), request("x")))
		<-time.After(time.Hour) // fake time
		if n := len(env.fake.metadataRequests); n != 1 {
			t.Errorf("metadata were fetched %d times, want 1", n)
		}
	})
}

// TestManyRevisionsAreFetchedConcurrently verifies that more than maxRevisions revisions can be in
// use, without a sweep for each of them.
func TestManyRevisionsAreFetchedConcurrently(t *testing.T) {
	const revisions = 2500
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		var specs []string
		for i := range revisions {
			env.fake.publish(fmt.Sprintf("a%d/1", i), 10, "x")
			specs = append(specs, fmt.Sprintf("10.0.%d.%d a%d/1", i/250, i%250, i))
		}
		env.fake.report("x")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		env.fake.reportInstances(nil, specs...)
		if got := env.discovery.Totals().Providers; got != revisions {
			t.Errorf("%d providers are active, want %d", got, revisions)
		}
	})
}

// TestUnavailableRevisionDelaysSnapshotOnce verifies that unavailable metadata, of dead
// instances or bogus entries, delays a snapshot only once.
func TestUnavailableRevisionDelaysSnapshotOnce(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.publish("a/1", 10, "x")
		specs := []string{"10.0.0.1 a/1"}
		const dead = 300
		for i := range dead {
			key := fmt.Sprintf("dead%d/1", i)
			env.fake.metadata[key] = noResponse
			specs = append(specs, fmt.Sprintf("10.0.%d.%d %s", 1+i/250, i%250, key))
		}
		env.fake.report("x", "10.9.9.9")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		slices.Reverse(specs) // the live instance is the last
		env.fake.reportInstances([]string{"10.9.9.8"}, specs...)
		advanceClock(6 * time.Second)
		if got := env.activeHosts(); !strings.Contains(got, "10.9.9.8") {
			t.Errorf("active: %q, want only providers that need no metadata", got)
		}
		// Every fetch gets a slot, however often the others retry.
		advanceClock((dead/32 + 1) * 5 * time.Second)
		env.wantActive("x=10.0.0.1,10.9.9.8")
	})
}

// TestLateMetadataIsRetriedSoon verifies that the first retry is fast, because Dubbo registers an
// instance before it serves, and sometimes before it stores, its metadata.
func TestLateMetadataIsRetriedSoon(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		env.fake.reportInstances(nil, "10.0.0.1 a/1")
		<-time.After(100 * time.Millisecond) // fake time
		env.fake.publish("a/1", 10, "x")
		<-time.After(200 * time.Millisecond)
		synctest.Wait()
		env.wantActive("x=10.0.0.1")
	})
}
