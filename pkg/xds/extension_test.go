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

// csrfSettings are what the tests read of the settings of csrf.
type csrfSettings struct {
	Origins []struct {
		Exact string `key:"exact"`
	} `key:"additional_origins"`
}

// kinds are what listeners and routes of the tests may ask for.
func kinds() resource.Kinds {
	return resource.Kinds{Filters: []filter.StreamFilterFactory{
		{Name: "cors", Config: func() any { return &struct{}{} }},
		{Name: "csrf", Config: func() any { return &csrfSettings{} }},
	}}
}

// someSettings are those of a filter of the kind csrf, which is told a word.
func someSettings(name, word string) said {
	return said{resource.ExtensionType, name, serialized(&corev3.TypedExtensionConfig{Name: name, TypedConfig: packed(&csrfv3.CsrfPolicy{
		AdditionalOrigins: []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: word}}},
	})})}
}

// aFilteredListener has its routes from table, and filters from the settings of given
// names.
func aFilteredListener(name, table string, wait time.Duration, settings ...string) said {
	hcm := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: table, ConfigSource: byADS(wait)}}}
	for _, s := range settings {
		hcm.HttpFilters = append(hcm.HttpFilters, aDiscoveredFilter(s, wait))
	}
	hcm.HttpFilters = append(hcm.HttpFilters, &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(&routerv3.Router{})}})
	return said{resource.ListenerType, name, serialized(&listenerv3.Listener{Name: name, Address: anAddress(80), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(hcm)}}},
	}}})}
}

func aDiscoveredFilter(name string, wait time.Duration) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{
		ConfigSource: byADS(wait), TypeUrls: []string{packed(&csrfv3.CsrfPolicy{}).GetTypeUrl()},
	}}}
}

// filtersOf are the filters in force of the only listener: MISSING, or what they were told.
func filtersOf(s *config.Snapshot) (all []string) {
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

func TestAListenerWaitsForItsFilters(t *testing.T) {
	now, w := time.Now(), newWorld()
	step := func(what string, want ...string) {
		t.Helper()
		w.settle(now)
		if got := filtersOf(w.snapshot(&config.Snapshot{})); !slices.Equal(got, want) {
			t.Errorf("%s: active: %q, want %q", what, got, want)
		}
	}
	hear(t, w, someRoutes("r", "text"), now)
	hear(t, w, aFilteredListener("l", "r", time.Minute, "x"), now)
	step("nothing is there")
	if waits := w.waiting(); len(waits) != 1 || !slices.Equal(waits[0].For, []string{"filter x"}) || !waits[0].Until.Equal(now.Add(time.Minute)) {
		t.Errorf("what waits is %+v", waits)
	}
	hear(t, w, someSettings("x", "one"), now)
	step("it came", "one")
	hear(t, w, someSettings("x", "two"), now)
	step("it changed", "two")
	hear(t, w, aFilteredListener("l", "r", time.Minute, "y"), now)
	step("another is to come", "two")
	hear(t, w, someSettings("x", "three"), now)
	step("the one in force changes meanwhile", "three")
	hear(t, w, said{resource.ExtensionType, "x", nil}, now)
	step("the one in force is gone", "MISSING")
	now = now.Add(time.Minute)
	step("waited for long enough", "MISSING")
	hear(t, w, someSettings("y", "late"), now)
	step("it comes after all", "late")
	w.turn()
	if w.extensions["x"] != nil || w.extensions["y"] == nil {
		t.Errorf("unreferenced extensions are kept: %v", w.extensions)
	}
}

// TestSettingsThatAreRefused: those that a listener cannot use are, and end its wait; what
// was there before stays.
func TestSettingsThatAreRefused(t *testing.T) {
	s, inForce := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	sayNoClusters(t, s)
	say(t, s, aFilteredListener("l", "r", 0, "x"), someRoutes("r", "text"))
	refusal := func(a *anypb.Any) string {
		say(t, s, said{resource.ExtensionType, "x", serialized(&corev3.TypedExtensionConfig{Name: "x", TypedConfig: a})})
		queue := s.feeds[0].queue
		return queue[len(queue)-1].Refusal
	}
	if len(inForce.Listeners) != 0 {
		t.Fatal("the listener is active before its filter")
	}
	if got := refusal(packed(&corsv3.Cors{})); !strings.Contains(got, "is a type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors, expected one of type.") {
		t.Errorf("another type: rejected with %q", got)
	}
	if got := filtersOf(inForce); !slices.Equal(got, []string{"MISSING"}) {
		t.Errorf("active: %q, want a missing filter", got)
	}
	say(t, s, someSettings("x", "good"))
	if got := refusal(packed(&routerv3.Router{})); !strings.Contains(got, "Router is not supported") {
		t.Errorf("no filter: rejected with %q", got)
	}
	if got := filtersOf(inForce); !slices.Equal(got, []string{"good"}) {
		t.Errorf("active: %q, want the last valid version", got)
	}
}
