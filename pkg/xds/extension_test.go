package xds

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

func TestListenerWaitsForExtensions(t *testing.T) {
	now, w := time.Now(), newState()
	step := func(what string, want ...string) {
		t.Helper()
		w.reconcile(now)
		if got := xdstest.ActiveFilters(w.snapshot(&config.Snapshot{})); !slices.Equal(got, want) {
			t.Errorf("%s: active: %q, want %q", what, got, want)
		}
	}
	applyResource(t, w, xdstest.Routes("r", "text"), now)
	applyResource(t, w, xdstest.FilteredListener("l", "r", time.Minute, "x"), now)
	step("nothing is there")
	if waits := w.warming(); len(waits) != 1 || !slices.Equal(waits[0].Missing, []string{"filter x"}) || !waits[0].Until.Equal(now.Add(time.Minute)) {
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
	w.takeSubscriptionChanges()
	if w.extensions["x"] != nil || w.extensions["y"] == nil {
		t.Errorf("unreferenced extensions are kept: %v", w.extensions)
	}
}

// TestRejectedExtensions verifies that an extension of another type is rejected and ends the wait
// of its listener, and that the last valid version stays active.
func TestRejectedExtensions(t *testing.T) {
	s, inForce := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondNoClusters(t, s)
	respondWith(t, s, xdstest.FilteredListener("l", "r", 0, "x"), xdstest.Routes("r", "text"))
	refusal := func(a *anypb.Any) string {
		respondWith(t, s, xdstest.Resource{URL: resource.ExtensionType, Name: "x", Body: xdstest.Marshal(&corev3.TypedExtensionConfig{Name: "x", TypedConfig: a})})
		queue := s.channels[0].queue
		return queue[len(queue)-1].ErrorDetail
	}
	if len(inForce.Listeners) != 0 {
		t.Fatal("the listener is active before its filter")
	}
	if got := refusal(xdstest.PackAny(&corsv3.Cors{})); !strings.Contains(got, "is a type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors, expected one of type.") {
		t.Errorf("another type: rejected with %q", got)
	}
	if got := xdstest.ActiveFilters(inForce); !slices.Equal(got, []string{"MISSING"}) {
		t.Errorf("active: %q, want a missing filter", got)
	}
	respondWith(t, s, xdstest.Extension("x", "good"))
	if got := refusal(xdstest.PackAny(&routerv3.Router{})); !strings.Contains(got, "Router is not supported") {
		t.Errorf("no filter: rejected with %q", got)
	}
	if got := xdstest.ActiveFilters(inForce); !slices.Equal(got, []string{"good"}) {
		t.Errorf("active: %q, want the last valid version", got)
	}
}
