package resource

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestHedgePolicy(t *testing.T) {
	for _, tt := range []struct {
		name, in, wantErr string
		want              config.HedgePolicy
	}{
		{name: "one request", in: `{"initial_requests": 1}`},
		{name: "three requests", in: `{"initial_requests": 3}`, want: config.HedgePolicy{InitialRequests: 3}},
		{
			name: "25 percent chance", in: `{"additional_request_chance": {"numerator": 25}}`,
			want: config.HedgePolicy{InitialRequests: 1, AdditionalRequestChance: 250_000},
		},
		{
			name: "chance limited to 100 percent", in: `{"additional_request_chance": {"numerator": 4000000000, "denominator": "TEN_THOUSAND"}}`,
			want: config.HedgePolicy{InitialRequests: 1, AdditionalRequestChance: config.Millionths},
		},
		{name: "on per-try timeout", in: `{"hedge_on_per_try_timeout": true}`, want: config.HedgePolicy{InitialRequests: 1, OnPerTryTimeout: true}},
		{name: "no request", in: `{"initial_requests": 0}`, wantErr: "initial_requests: is 0"},
		{name: "too many requests", in: `{"initial_requests": 11}`, wantErr: "initial_requests: is 11"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &routev3.HedgePolicy{}
			if err := protojson.Unmarshal([]byte(tt.in), m); err != nil {
				t.Fatal(err)
			}
			r, out := &report{}, &config.Forward{}
			fieldReader{report: r}.readHedge(m, out)
			switch err := r.rejection(); {
			case tt.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("the error is %v, want one with %q", err, tt.wantErr)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			got := config.HedgePolicy{}
			if out.Hedge != nil {
				got = *out.Hedge
			}
			if got != tt.want {
				t.Errorf("readHedge(%s) = %+v, want %+v", tt.in, got, tt.want)
			}
		})
	}
}

func TestRoutePriority(t *testing.T) {
	for in, want := range map[corev3.RoutingPriority]config.Priority{
		corev3.RoutingPriority_DEFAULT: config.DefaultPriority,
		corev3.RoutingPriority_HIGH:    config.HighPriority,
	} {
		r := &report{}
		out := fieldReader{report: r}.readForward(&routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c"}, Priority: in,
		}, inheritedSettings{})
		if err := r.rejection(); err != nil || out.Priority != want {
			t.Errorf("a route of priority %v has priority %v, %v, want %v", in, out.Priority, err, want)
		}
	}
}
