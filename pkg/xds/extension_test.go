package xds

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestRejectedExtensions verifies that an extension of another type is rejected. The listener then
// no longer waits for the extension. The last valid version of an extension stays active.
func TestRejectedExtensions(t *testing.T) {
	s, active := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWithoutClusters(t, s)
	respondWith(t, s, xdstest.FilteredListener("l", "r", 0, "x"), xdstest.Routes("r", "text"))
	nackDetail := func(settings *anypb.Any) string {
		respondWith(t, s, xdstest.Resource{URL: resource.ExtensionType, Name: "x", Body: xdstest.Marshal(&corev3.TypedExtensionConfig{Name: "x", TypedConfig: settings})})
		queue := s.channels[0].queue
		return queue[len(queue)-1].ErrorDetail
	}
	if len(active.Listeners) != 0 {
		t.Fatal("the listener is active before its filter")
	}
	if got := nackDetail(xdstest.PackAny(&corsv3.Cors{})); !strings.Contains(got, "is a type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors, expected one of type.") {
		t.Errorf("extension of another type: NACK %q, want one with the expected types", got)
	}
	if got := xdstest.ActiveFilters(active); !slices.Equal(got, []string{"MISSING"}) {
		t.Errorf("active: %q, want a missing filter", got)
	}
	respondWith(t, s, xdstest.Extension("x", "good"))
	if got := nackDetail(xdstest.PackAny(&routerv3.Router{})); !strings.Contains(got, "Router is not supported") {
		t.Errorf("extension that is no filter: NACK %q, want one that says not supported", got)
	}
	if got := xdstest.ActiveFilters(active); !slices.Equal(got, []string{"good"}) {
		t.Errorf("active: %q, want the last valid version", got)
	}
}
