package xds

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

func TestRoutesUseRuntime(t *testing.T) {
	for _, apiType := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(apiType, func(t *testing.T) {
			s, active := newTestSourceFrom(t, xdstest.LayeredBootstrap(apiType), slog.New(slog.DiscardHandler))
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			if first := s.channels[0].queue[0]; first.Type != resource.RuntimeType || !slices.Equal(slices.Concat(first.Names, first.Subscribe), []string{"one", "two"}) {
				t.Errorf("first subscription: %+v, want the runtime layers", first)
			}
			step := func(want float64, reason string, resources ...xdstest.Resource) {
				t.Helper()
				respondWith(t, s, resources...)
				if got := xdstest.ActiveFraction(active); got != want {
					t.Errorf("runtime fraction = %v, want %v", got, want)
				}
				queue := s.channels[0].queue
				if got := queue[len(queue)-1].ErrorDetail; !strings.Contains(got, reason) || reason == "" && got != "" {
					t.Errorf("rejected with %q, want %q", got, reason)
				}
			}
			respondWithoutClusters(t, s)
			step(-1, "", xdstest.Listener("l", 80, "r", "", 0), xdstest.FractionRoutes("r"))
			if warming := s.state.Warming(); len(warming) != 1 || !slices.Equal(warming[0].Missing, []string{"runtime one", "runtime two"}) {
				t.Errorf("Warming() = %+v, want the listener without its runtime layers", warming)
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
			step(50, "", xdstest.RuntimeLayer("two", "not a number"))
		})
	}
}

// TestListenersDoNotWaitForRejectedLayer verifies that listeners do not wait for a rejected runtime
// layer.
func TestListenersDoNotWaitForRejectedLayer(t *testing.T) {
	s, active := newTestSourceFrom(t, xdstest.LayeredBootstrap("GRPC"), slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWithoutClusters(t, s)
	respondWith(t, s, xdstest.Listener("l", 80, "r", "", 0), xdstest.FractionRoutes("r"), xdstest.RuntimeLayer("one", 20))
	invalid := xdstest.Resource{URL: resource.RuntimeType, Name: "two", Body: xdstest.Marshal(&runtimev3.Runtime{Name: "two", Layer: &structpb.Struct{
		Fields: map[string]*structpb.Value{"share": structpb.NewNullValue()},
	}})}
	for _, step := range []struct {
		layer xdstest.Resource
		want  float64
	}{{invalid, 20}, {xdstest.RuntimeLayer("two", 30), 30}, {invalid, 30}} {
		respondWith(t, s, step.layer)
		if got := xdstest.ActiveFraction(active); got != step.want {
			t.Errorf("runtime fraction = %v, want %v", got, step.want)
		}
	}
}
