package state

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

func TestListenerWaitsForExtensions(t *testing.T) {
	now, w := time.Now(), newState()
	step := func(what string, want ...string) {
		t.Helper()
		w.Reconcile(now)
		if got := xdstest.ActiveFilters(w.Snapshot(&config.Snapshot{})); !slices.Equal(got, want) {
			t.Errorf("%s: active: %q, want %q", what, got, want)
		}
	}
	applyResource(t, w, xdstest.Routes("r", "text"), now)
	applyResource(t, w, xdstest.FilteredListener("l", "r", time.Minute, "x"), now)
	step("nothing is there")
	if waits := w.Warming(); len(waits) != 1 || !slices.Equal(waits[0].Missing, []string{"filter x"}) || !waits[0].Until.Equal(now.Add(time.Minute)) {
		t.Errorf("what waits is %+v", waits)
	}
	applyResource(t, w, xdstest.Extension("x", "one"), now)
	step("it came", "one")
	applyResource(t, w, xdstest.Extension("x", "two"), now)
	step("it changed", "two")
	applyResource(t, w, xdstest.FilteredListener("l", "r", time.Minute, "y"), now)
	step("another is to come", "two")
	applyResource(t, w, xdstest.Extension("x", "three"), now)
	step("the one in force changes meanwhile", "three")
	applyResource(t, w, xdstest.Resource{URL: resource.ExtensionType, Name: "x", Body: nil}, now)
	step("the one in force is gone", "MISSING")
	now = now.Add(time.Minute)
	step("waited for long enough", "MISSING")
	applyResource(t, w, xdstest.Extension("y", "late"), now)
	step("it comes after all", "late")
	w.TakeSubscriptionChanges()
	if w.extensions["x"] != nil || w.extensions["y"] == nil {
		t.Errorf("unreferenced extensions are kept: %v", w.extensions)
	}
}
