package xds

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	csrfv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/csrf/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// csrfSettings has the settings of the csrf filter that the tests read.
type csrfSettings struct {
	Origins []struct {
		Exact string `key:"exact"`
	} `key:"additional_origins"`
}

// testCapabilities returns the capabilities that the resources of the tests need.
func testCapabilities() resource.Capabilities {
	return resource.Capabilities{Filters: []filter.StreamFilterFactory{
		{Name: "cors", Config: func() any { return &struct{}{} }},
		{Name: "csrf", Config: func() any { return &csrfSettings{} }},
	}}
}

// extensionResource returns settings of the csrf filter with word as the only additional origin.
func extensionResource(name, word string) testResource {
	return testResource{resource.ExtensionType, name, serialized(&corev3.TypedExtensionConfig{Name: name, TypedConfig: packAny(&csrfv3.CsrfPolicy{
		AdditionalOrigins: []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: word}}},
	})})}
}

// filteredListenerResource returns a listener that gets its routes from table, and one filter from
// each of the ECDS resources settings.
func filteredListenerResource(name, table string, wait time.Duration, settings ...string) testResource {
	hcm := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: table, ConfigSource: adsSource(wait)}}}
	for _, s := range settings {
		hcm.HttpFilters = append(hcm.HttpFilters, ecdsFilter(s, wait))
	}
	hcm.HttpFilters = append(hcm.HttpFilters, &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packAny(&routerv3.Router{})}})
	return testResource{resource.ListenerType, name, serialized(&listenerv3.Listener{Name: name, Address: testAddress(80), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packAny(hcm)}}},
	}}})}
}

func ecdsFilter(name string, wait time.Duration) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{
		ConfigSource: adsSource(wait), TypeUrls: []string{packAny(&csrfv3.CsrfPolicy{}).GetTypeUrl()},
	}}}
}

// activeFilters returns the first additional origin of each filter of the active listeners, or
// MISSING for a filter without csrf settings.
func activeFilters(s *config.Snapshot) (all []string) {
	for _, l := range s.Listeners {
		for _, f := range l.FilterChains[0].Proxy.StreamFilters {
			if c, ok := f.Config.(*csrfSettings); ok {
				all = append(all, c.Origins[0].Exact)
			} else {
				all = append(all, "MISSING")
			}
		}
	}
	return all
}

func TestListenerWaitsForExtensions(t *testing.T) {
	now, w := time.Now(), newState()
	step := func(what string, want ...string) {
		t.Helper()
		w.reconcile(now)
		if got := activeFilters(w.snapshot(&config.Snapshot{})); !slices.Equal(got, want) {
			t.Errorf("%s: active: %q, want %q", what, got, want)
		}
	}
	applyResource(t, w, routesResource("r", "text"), now)
	applyResource(t, w, filteredListenerResource("l", "r", time.Minute, "x"), now)
	step("nothing is there")
	if waits := w.warming(); len(waits) != 1 || !slices.Equal(waits[0].Missing, []string{"filter x"}) || !waits[0].Until.Equal(now.Add(time.Minute)) {
		t.Errorf("what waits is %+v", waits)
	}
	applyResource(t, w, extensionResource("x", "one"), now)
	step("it came", "one")
	applyResource(t, w, extensionResource("x", "two"), now)
	step("it changed", "two")
	applyResource(t, w, filteredListenerResource("l", "r", time.Minute, "y"), now)
	step("another is to come", "two")
	applyResource(t, w, extensionResource("x", "three"), now)
	step("the one in force changes meanwhile", "three")
	applyResource(t, w, testResource{resource.ExtensionType, "x", nil}, now)
	step("the one in force is gone", "MISSING")
	now = now.Add(time.Minute)
	step("waited for long enough", "MISSING")
	applyResource(t, w, extensionResource("y", "late"), now)
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
	respondWith(t, s, filteredListenerResource("l", "r", 0, "x"), routesResource("r", "text"))
	refusal := func(a *anypb.Any) string {
		respondWith(t, s, testResource{resource.ExtensionType, "x", serialized(&corev3.TypedExtensionConfig{Name: "x", TypedConfig: a})})
		queue := s.channels[0].queue
		return queue[len(queue)-1].ErrorDetail
	}
	if len(inForce.Listeners) != 0 {
		t.Fatal("the listener is active before its filter")
	}
	if got := refusal(packAny(&corsv3.Cors{})); !strings.Contains(got, "is a type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors, expected one of type.") {
		t.Errorf("another type: rejected with %q", got)
	}
	if got := activeFilters(inForce); !slices.Equal(got, []string{"MISSING"}) {
		t.Errorf("active: %q, want a missing filter", got)
	}
	respondWith(t, s, extensionResource("x", "good"))
	if got := refusal(packAny(&routerv3.Router{})); !strings.Contains(got, "Router is not supported") {
		t.Errorf("no filter: rejected with %q", got)
	}
	if got := activeFilters(inForce); !slices.Equal(got, []string{"good"}) {
		t.Errorf("active: %q, want the last valid version", got)
	}
}
