package dubbo_test

import (
	"testing"
	"testing/synctest"
	"time"
)

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
