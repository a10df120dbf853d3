package xds

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// aRuntimeLayer says a share of the key "share", or, of a text, something that is none.
func aRuntimeLayer(name string, share any) said {
	v, err := structpb.NewValue(share)
	if err != nil {
		panic(err)
	}
	return said{resource.RuntimeType, name, serialized(&runtimev3.Runtime{Name: name, Layer: &structpb.Struct{Fields: map[string]*structpb.Value{"share": v}}})}
}

// sharedRoutes are for a share of the requests: that of the runtime, else half of them.
func sharedRoutes(name string) said {
	return said{resource.RouteType, name, serialized(&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{
				PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
				RuntimeFraction: &corev3.RuntimeFractionalPercent{
					RuntimeKey: "share", DefaultValue: &typev3.FractionalPercent{Numerator: 50},
				},
			},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{
				RuntimeKeyPrefix: "weights", Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "c0", Weight: wrapperspb.UInt32(1)}},
			}}}},
		}},
	}}})}
}

// layered is bootstrapText with a static layer and two of the control plane.
func layered(form string) config.Bootstrap {
	b := bootstrapText(form)
	b.Runtime = []byte(`{"layers": [{"name": "file", "static_layer": {"share": 10}}, {"name": "one", "rtds_layer": {"name": "one", "rtds_config": {"ads": {}, "initial_fetch_timeout": "1s"}}},
		{"name": "two", "rtds_layer": {"name": "two", "rtds_config": {"ads": {}}}}, {"name": "admin", "admin_layer": {}}]}`)
	return b
}

// share is what is in force of sharedRoutes; below 0: nothing is.
func share(s *config.Snapshot) float64 {
	for _, t := range s.Routes {
		return *t.VirtualHosts[0].Routes[0].Match.Chance
	}
	return -1
}

func TestRoutesFollowTheRuntime(t *testing.T) {
	for _, form := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(form, func(t *testing.T) {
			s, inForce := aSourceOf(t, layered(form), slog.New(slog.DiscardHandler))
			s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
			if first := s.feeds[0].queue[0]; first.Type != resource.RuntimeType || !slices.Equal(slices.Concat(first.Names, first.Subscribe), []string{"one", "two"}) {
				t.Errorf("first subscription: %+v, want the runtime layers", first)
			}
			step := func(want float64, refused string, all ...said) {
				t.Helper()
				say(t, s, all...)
				if got := share(inForce); got != want {
					t.Errorf("the share is %v, want %v", got, want)
				}
				queue := s.feeds[0].queue
				if got := queue[len(queue)-1].Refusal; !strings.Contains(got, refused) || refused == "" && got != "" {
					t.Errorf("rejected with %q, want %q", got, refused)
				}
			}
			sayNoClusters(t, s)
			step(-1, "", aListener("l", 80, "r", "", 0), sharedRoutes("r"))
			if waits := s.world.waiting(); len(waits) != 1 || !slices.Equal(waits[0].For, []string{"runtime one", "runtime two"}) {
				t.Errorf("what waits is %+v", waits)
			}
			step(-1, "", aRuntimeLayer("one", 20))
			step(30, "", aRuntimeLayer("two", 30))
			step(30, "", aRuntimeLayer("one", 40))
			step(30, "two: layer.share: expected a number", said{resource.RuntimeType, "two", serialized(&runtimev3.Runtime{Name: "two", Layer: &structpb.Struct{
				Fields: map[string]*structpb.Value{"share": structpb.NewNullValue()},
			}})})
			step(30, "two: route table r is not valid with this layer: ", said{resource.RuntimeType, "two", serialized(&runtimev3.Runtime{Name: "two", Layer: &structpb.Struct{
				Fields: map[string]*structpb.Value{"share": structpb.NewNumberValue(5), "weights.c0": structpb.NewNumberValue(0)},
			}})})
			step(50, "", aRuntimeLayer("two", "nothing of use"))
		})
	}
}

// TestTheRuntimeIsWaitedFor: as long as its layers say, from the start.
func TestTheRuntimeIsWaitedFor(t *testing.T) {
	now, w := time.Now(), newWorld()
	w.runtime = runtime{layers: []layer{{resource: "one", limit: time.Minute}, {resource: "two", limit: time.Hour}}, begun: now}.settled()
	hear(t, w, someRoutes("r", "text"), now)
	hear(t, w, aListener("l", 80, "r", "", 0), now)
	if _, next := w.settle(now); !next.Equal(now.Add(time.Hour)) {
		t.Errorf("the next reconcile is after %v, want an hour", next.Sub(now))
	}
	w.mark()
	w.setRuntime(w.runtime.with("two", &resource.Layer{}))
	if _, next := w.settle(now); !next.Equal(now.Add(time.Minute)) {
		t.Errorf("without the first layer, the next reconcile is after %v, want a minute", next.Sub(now))
	}
	w.takeBack()
	if _, next := w.settle(now); !next.Equal(now.Add(time.Hour)) {
		t.Errorf("after the rollback, the next reconcile is after %v, want an hour", next.Sub(now))
	}
	if c, _ := w.settle(now.Add(time.Hour)); len(c.started) != 1 {
		t.Errorf("after an hour there is %+v, want the listener", c)
	}
}

// TestALayerThatIsRefusedIsNotWaitedFor: there is nothing more to come until it is mended.
func TestALayerThatIsRefusedIsNotWaitedFor(t *testing.T) {
	s, inForce := aSourceOf(t, layered("GRPC"), slog.New(slog.DiscardHandler))
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	sayNoClusters(t, s)
	say(t, s, aListener("l", 80, "r", "", 0), sharedRoutes("r"), aRuntimeLayer("one", 20))
	bad := said{resource.RuntimeType, "two", serialized(&runtimev3.Runtime{Name: "two", Layer: &structpb.Struct{
		Fields: map[string]*structpb.Value{"share": structpb.NewNullValue()},
	}})}
	for _, step := range []struct {
		layer said
		want  float64
	}{{bad, 20}, {aRuntimeLayer("two", 30), 30}, {bad, 30}} {
		say(t, s, step.layer)
		if got := share(inForce); got != step.want {
			t.Errorf("the share is %v, want %v", got, step.want)
		}
	}
}

// TestListenersFollowTheRuntime: also one that was kept from being put in force, which is
// tried again, and one whose routes are gone.
func TestListenersFollowTheRuntime(t *testing.T) {
	now, w := time.Now(), newWorld()
	read := func(port int) *resource.Listener {
		l, err := resource.ReadListener(aListener("l", port, "r", "", 0).body, kinds())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	address := func() string {
		s := w.snapshot(&config.Snapshot{})
		if len(s.Listeners) == 0 {
			return ""
		}
		return s.Listeners[0].Address
	}
	w.setListener("l", read(80), now)
	w.setTable("r", &resource.RouteTable{Config: &config.RouteTable{Name: "r"}})
	w.hold("l")
	if w.settle(now); address() != "" {
		t.Errorf("a held listener is active at %s", address())
	}
	w.reread("l", read(81))
	if w.settle(now); address() != "127.0.0.1:81" {
		t.Errorf("it is at %q, want port 81", address())
	}
	w.setTable("r", nil)
	w.settle(now)
	w.mark()
	w.reread("l", read(82))
	if c, _ := w.settle(now); address() != "127.0.0.1:82" || len(c.started) != 0 {
		t.Errorf("it is at %q, want port 82; started are %q", address(), c.started)
	}
	w.takeBack()
	if w.settle(now); address() != "127.0.0.1:81" {
		t.Errorf("it is at %q, want port 81 again", address())
	}
}

func TestWhatIsRefusedOfLayers(t *testing.T) {
	for text, want := range map[string]string{
		`{"layers": [{"name": "a"}]}`:                                                                                          "layers[0]: expected exactly one of static_layer, rtds_layer and admin_layer",
		`{"layers": [{"name": "a", "admin_layer": {}, "static_layer": {}}]}`:                                                   "layers[0]: expected exactly one of",
		`{"layers": [{"static_layer": {}}]}`:                                                                                   "layers[0].name: found \"\"",
		`{"layers": [{"name": "a", "admin_layer": {}}, {"name": "a", "admin_layer": {}}]}`:                                     "layers[1].name: found \"a\"",
		`{"layers": [{"name": "a", "disk_layer": {}}]}`:                                                                        "layered_runtime.layers[0].disk_layer: is not supported, expected one of name, static_layer, rtds_layer, admin_layer",
		`{"layers": [{"name": "a", "static_layer": {"b": null}}]}`:                                                             "layers[0].static_layer.b: expected a number",
		`{"layers": [{"name": "a", "static_layer": []}]}`:                                                                      "layers[0].static_layer: ",
		`{"layers": [{"name": "a", "rtds_layer": {"rtds_config": {"ads": {}}}}]}`:                                              "rtds_layer.name: is missing",
		`{"layers": [{"name": "a", "rtds_layer": {"name": "b", "rtds_config": {"path": "/x"}}}]}`:                              "rtds_config: expected ads",
		`{"layers": [{"name": "a", "rtds_layer": {"name": "b", "rtds_config": {"ads": {}, "initial_fetch_timeout": "-1s"}}}]}`: "initial_fetch_timeout: found",
	} {
		b := bootstrapText("GRPC")
		b.Runtime = []byte(text)
		if _, err := readBootstrap(b); err == nil || !strings.HasPrefix(err.Error(), "layered_runtime") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
