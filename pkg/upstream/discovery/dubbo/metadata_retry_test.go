package dubbo_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestMetadataThatComeJustAfterTheirInstanceAreReadAtOnce: Dubbo registers an instance
// before it answers questions about it, and at times before it has written its metadata.
func TestMetadataThatComeJustAfterTheirInstanceAreReadAtOnce(t *testing.T) {
	inBubble(t, usual(), func(r *rig) {
		r.fake.say("x")
		must(t, r.hub.Subscribe(r.Context(), request("x")))
		r.fake.sayInstances(nil, "10.0.0.1 a/1")
		<-time.After(100 * time.Millisecond) // of the bubble
		r.fake.publish("a/1", 10, "x")
		<-time.After(200 * time.Millisecond)
		synctest.Wait()
		r.desired("x=10.0.0.1")
	})
}
