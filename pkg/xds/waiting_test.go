package xds

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestWaitingIsToldAsItIs: for what, and until when, as world.settle has it.
func TestWaitingIsToldAsItIs(t *testing.T) {
	now := time.Now()
	lazily := config.ControlPlaneLazy{Idle: time.Hour, Wait: time.Second, Routes: true}
	never := time.Time{}
	for _, c := range []struct {
		name  string
		lazy  config.ControlPlaneLazy
		layer time.Duration // how long a layer of the runtime is waited for; below 0: there is none
		said  said
		wants []string
		until time.Time
	}{
		{"for routes until their time is over", config.ControlPlaneLazy{}, -1,
			aListener("l", 80, "r", "", time.Minute), []string{"routes r"}, now.Add(time.Minute)},
		{"for several things until the last of their times", config.ControlPlaneLazy{}, time.Second,
			aFilteredListener("l", "r", time.Minute, "x"), []string{"routes r", "filter x", "runtime one"}, now.Add(time.Minute)},
		{"without an end if one of several has none", config.ControlPlaneLazy{}, time.Second,
			aFilteredListener("l", "r", 0, "x"), []string{"routes r", "filter x", "runtime one"}, never},
		{"not for routes that are left with the control plane", lazily, -1,
			aFilteredListener("l", "r", time.Minute, "x"), []string{"filter x"}, now.Add(time.Minute)},
		{"not for hosts that are", lazily, -1,
			aCluster("c", "e", "s", time.Minute), []string{"secret s"}, never},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.lazy = newLazy(c.lazy)
			if c.layer >= 0 {
				w.runtime = runtime{layers: []layer{{resource: "one", limit: c.layer}}, begun: now}
			}
			hear(t, w, c.said, now)
			_, next := w.settle(now)
			all := w.waiting()
			if len(all) != 1 || !slices.Equal(all[0].For, c.wants) || !all[0].Until.Equal(c.until) {
				t.Fatalf("waiting is %+v, want for %q until %v", all, c.wants, c.until)
			}
			if !next.Equal(c.until) {
				t.Errorf("the next reconcile is at %v, want %v", next, c.until)
			}
		})
	}
}
