package xds

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

func TestRoutesUseRuntime(t *testing.T) {
	for _, form := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(form, func(t *testing.T) {
			s, inForce := newTestSourceOf(t, xdstest.LayeredBootstrap(form), slog.New(slog.DiscardHandler))
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			if first := s.channels[0].queue[0]; first.Type != resource.RuntimeType || !slices.Equal(slices.Concat(first.Names, first.Subscribe), []string{"one", "two"}) {
				t.Errorf("first subscription: %+v, want the runtime layers", first)
			}
			step := func(want float64, refused string, all ...xdstest.Resource) {
				t.Helper()
				respondWith(t, s, all...)
				if got := xdstest.ActiveFraction(inForce); got != want {
					t.Errorf("the share is %v, want %v", got, want)
				}
				queue := s.channels[0].queue
				if got := queue[len(queue)-1].ErrorDetail; !strings.Contains(got, refused) || refused == "" && got != "" {
					t.Errorf("rejected with %q, want %q", got, refused)
				}
			}
			respondNoClusters(t, s)
			step(-1, "", xdstest.Listener("l", 80, "r", "", 0), xdstest.FractionRoutes("r"))
			if waits := s.state.warming(); len(waits) != 1 || !slices.Equal(waits[0].Missing, []string{"runtime one", "runtime two"}) {
				t.Errorf("what waits is %+v", waits)
			}
			step(-1, "", xdstest.RuntimeLayer("one", 20))
			step(30, "", xdstest.RuntimeLayer("two", 30))
			step(30, "", xdstest.RuntimeLayer("one", 40))
			step(30, "two: layer.share: expected a number", xdstest.Resource{URL: resource.RuntimeType, Name: "two", Body: xdstest.Marshal(&runtimev3.Runtime{Name: "two", Layer: &structpb.Struct{
				Fields: map[string]*structpb.Value{"share": structpb.NewNullValue()},
			}})})
			step(30, "two: route table r is not valid with this layer: ", xdstest.Resource{URL: resource.RuntimeType, Name: "two", Body: xdstest.Marshal(&runtimev3.Runtime{Name: "two", Layer: &structpb.Struct{
				Fields: map[string]*structpb.Value{"share": structpb.NewNumberValue(5), "weights.c0": structpb.NewNumberValue(0)},
			}})})
			step(50, "", xdstest.RuntimeLayer("two", "nothing of use"))
		})
	}
}

// TestListenersWaitForRuntime verifies that listeners wait for missing runtime layers until the
// timeouts of the layers, which count from the start.
func TestListenersWaitForRuntime(t *testing.T) {
	now, w := time.Now(), newState()
	w.runtime = layeredRuntime{layers: []runtimeLayer{{resource: "one", timeout: time.Minute}, {resource: "two", timeout: time.Hour}}, startedAt: now}.merge()
	applyResource(t, w, xdstest.Routes("r", "text"), now)
	applyResource(t, w, xdstest.Listener("l", 80, "r", "", 0), now)
	if _, next := w.reconcile(now); !next.Equal(now.Add(time.Hour)) {
		t.Errorf("the next reconcile is after %v, want an hour", next.Sub(now))
	}
	w.checkpoint()
	w.setRuntime(w.runtime.withLayer("two", &resource.Layer{}))
	if _, next := w.reconcile(now); !next.Equal(now.Add(time.Minute)) {
		t.Errorf("without the first layer, the next reconcile is after %v, want a minute", next.Sub(now))
	}
	w.rollback()
	if _, next := w.reconcile(now); !next.Equal(now.Add(time.Hour)) {
		t.Errorf("after the rollback, the next reconcile is after %v, want an hour", next.Sub(now))
	}
	if c, _ := w.reconcile(now.Add(time.Hour)); len(c.activatedListeners) != 1 {
		t.Errorf("after an hour there is %+v, want the listener", c)
	}
}

// TestRejectedLayerIsNotWaitedFor verifies that listeners do not wait for a rejected runtime layer.
func TestRejectedLayerIsNotWaitedFor(t *testing.T) {
	s, inForce := newTestSourceOf(t, xdstest.LayeredBootstrap("GRPC"), slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondNoClusters(t, s)
	respondWith(t, s, xdstest.Listener("l", 80, "r", "", 0), xdstest.FractionRoutes("r"), xdstest.RuntimeLayer("one", 20))
	bad := xdstest.Resource{URL: resource.RuntimeType, Name: "two", Body: xdstest.Marshal(&runtimev3.Runtime{Name: "two", Layer: &structpb.Struct{
		Fields: map[string]*structpb.Value{"share": structpb.NewNullValue()},
	}})}
	for _, step := range []struct {
		layer xdstest.Resource
		want  float64
	}{{bad, 20}, {xdstest.RuntimeLayer("two", 30), 30}, {bad, 30}} {
		respondWith(t, s, step.layer)
		if got := xdstest.ActiveFraction(inForce); got != step.want {
			t.Errorf("the share is %v, want %v", got, step.want)
		}
	}
}

// TestListenersUseRuntime verifies that replaceListener, which a runtime change uses, also replaces
// a listener that was held back, which is then applied again, and one whose routes were removed.
func TestListenersUseRuntime(t *testing.T) {
	now, w := time.Now(), newState()
	read := func(port int) *resource.Listener {
		l, err := resource.ReadListener(xdstest.Listener("l", port, "r", "", 0).Body, xdstest.Capabilities())
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
	w.holdBack("l")
	if w.reconcile(now); address() != "" {
		t.Errorf("a held listener is active at %s", address())
	}
	w.replaceListener("l", read(81))
	if w.reconcile(now); address() != "127.0.0.1:81" {
		t.Errorf("it is at %q, want port 81", address())
	}
	w.setTable("r", nil)
	w.reconcile(now)
	w.checkpoint()
	w.replaceListener("l", read(82))
	if c, _ := w.reconcile(now); address() != "127.0.0.1:82" || len(c.activatedListeners) != 0 {
		t.Errorf("it is at %q, want port 82; started are %q", address(), c.activatedListeners)
	}
	w.rollback()
	if w.reconcile(now); address() != "127.0.0.1:81" {
		t.Errorf("it is at %q, want port 81 again", address())
	}
}

func TestRejectedRuntimeLayers(t *testing.T) {
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
		b := xdstest.Bootstrap("GRPC")
		b.LayeredRuntime = []byte(text)
		if _, err := readBootstrap(b); err == nil || !strings.HasPrefix(err.Error(), "layered_runtime") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
