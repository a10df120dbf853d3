package state

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

func TestListenerWaitsForExtensions(t *testing.T) {
	now, s := time.Now(), newState()
	step := func(label string, want ...string) {
		t.Helper()
		s.Reconcile(now)
		if got := xdstest.ActiveFilters(xdstest.Snapshot(s)); !slices.Equal(got, want) {
			t.Errorf("%s: active: %q, want %q", label, got, want)
		}
	}
	applyResource(t, s, xdstest.Routes("r", "text"), now)
	applyResource(t, s, xdstest.FilteredListener("l", "r", time.Minute, "x"), now)
	step("before the extension")
	if warming := s.Warming(); len(warming) != 1 || !slices.Equal(warming[0].Missing, []string{"filter x"}) || !warming[0].Until.Equal(now.Add(time.Minute)) {
		t.Errorf("Warming() = %+v, want one listener, which waits for filter x for a minute", warming)
	}
	applyResource(t, s, xdstest.Extension("x", "one"), now)
	step("extension received", "one")
	applyResource(t, s, xdstest.Extension("x", "two"), now)
	step("extension updated", "two")
	applyResource(t, s, xdstest.FilteredListener("l", "r", time.Minute, "y"), now)
	step("new listener waits for another extension", "two")
	applyResource(t, s, xdstest.Extension("x", "three"), now)
	step("active extension updated while the listener warms", "three")
	applyResource(t, s, xdstest.Resource{URL: resource.ExtensionType, Name: "x", Body: nil}, now)
	step("active extension removed", "MISSING")
	now = now.Add(time.Minute)
	step("after the initial fetch timeout", "MISSING")
	applyResource(t, s, xdstest.Extension("y", "late"), now)
	step("extension received after the timeout", "late")
	s.TakeSubscriptionChanges()
	if s.extensions["x"] != nil || s.extensions["y"] == nil {
		t.Errorf("extensions = %v, want none without a reference", s.extensions)
	}
}
