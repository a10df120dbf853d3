package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/filter/stream/cors"
	"github.com/weft-proxy/weft/pkg/filter/stream/fault"
	"github.com/weft-proxy/weft/pkg/filter/stream/mirror"
)

// runtimeLayer returns a serialized runtime layer with the fields in text.
func runtimeLayer(t testing.TB, text string) []byte {
	t.Helper()
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(&runtimev3.Runtime{Name: "layer", Layer: s})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// newTestRuntime returns a runtime of layers in JSON.
func newTestRuntime(t *testing.T, layers ...string) *Runtime {
	t.Helper()
	var parsed []*Layer
	for _, text := range layers {
		l, err := ReadRuntime(runtimeLayer(t, text), Capabilities{})
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, l)
	}
	return NewRuntime(parsed...)
}

// TestRuntimeKeys verifies that the value of a key applies, and that the default applies if the key
// has no valid value.
func TestRuntimeKeys(t *testing.T) {
	for _, test := range []struct {
		name   string
		layers []string
		want   float64
	}{
		{"no layer", nil, 50},
		{"other key", []string{`{"a.c": 20}`}, 50},
		{"percentage", []string{`{"a.b": 20}`}, 20},
		{"nested", []string{`{"a": {"b": 20}}`}, 20},
		{"zero", []string{`{"a.b": 0}`}, 0},
		{"above 100 percent", []string{`{"a.b": 200}`}, 100},
		{"fraction", []string{`{"a": {"b": {"numerator": 5, "denominator": "TEN_THOUSAND"}}}`}, 0.05},
		{"fraction with numeric denominator", []string{`{"a.b": {"numerator": 5, "denominator": 2}}`}, 0.0005},
		{"fraction without denominator", []string{`{"a.b": {"numerator": 5}}`}, 5},
		{"text", []string{`{"a.b": "7"}`}, 7},
		{"not an integer", []string{`{"a.b": 0.5}`}, 50},
		{"negative", []string{`{"a.b": -1}`}, 50},
		{"boolean", []string{`{"a.b": true}`}, 50},
		{"other text", []string{`{"a.b": "some"}`}, 50},
		{"later layer applies", []string{`{"a.b": 20}`, `{"a": {"b": 30}}`}, 30},
		{"key absent in a later layer", []string{`{"a.b": 20}`, `{"a.c": 30}`}, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			caps := testCapabilities()
			caps.Runtime = newTestRuntime(t, test.layers...)
			table, err := ReadRoutes(routeConfig(t, `match: {prefix: "/" runtime_fraction: {runtime_key: "a.b" default_value: {numerator: 50}}} route: {cluster: "c"}`), caps)
			if err != nil {
				t.Fatal(err)
			}
			if got := *table.Config.VirtualHosts[0].Routes[0].Match.Percentage; got != test.want || !slices.Equal(table.RuntimeKeys, []string{"a.b"}) {
				t.Errorf("the percentage is %v, want %v; the keys are %q", got, test.want, table.RuntimeKeys)
			}
		})
	}
}

// routeConfig returns a serialized table with one virtual host. routes are in the text format of
// protobuf.
func routeConfig(t *testing.T, routes ...string) []byte {
	t.Helper()
	v := &routev3.VirtualHost{Name: "all", Domains: []string{"*"}}
	for _, text := range routes {
		r := &routev3.Route{}
		if err := prototext.Unmarshal([]byte(text), r); err != nil {
			t.Fatal(err)
		}
		v.Routes = append(v.Routes, r)
	}
	body, err := proto.Marshal(&routev3.RouteConfiguration{Name: "table", VirtualHosts: []*routev3.VirtualHost{v}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestRuntimeValues(t *testing.T) {
	caps := testCapabilities()
	caps.Runtime = newTestRuntime(t, `{"mirrored": 25, "weights": {"a": 9}, "cors": {"on": 30, "shadow": {"numerator": 1, "denominator": "MILLION"}},
		"fault.http": {"delay": {"fixed_delay_percent": 12, "fixed_duration_ms": 1500}}, "mine": {"share": 13, "status": 429}}`)
	table, err := ReadRoutes(routeConfig(t,
		`match: {prefix: "/"} route: {cluster: "c" request_mirror_policies: {cluster: "m" runtime_fraction: {runtime_key: "mirrored" default_value: {numerator: 50}}}
			request_mirror_policies: {cluster: "n" runtime_fraction: {runtime_key: "unset" default_value: {numerator: 25 denominator: MILLION}}} request_mirror_policies: {cluster: "o"}}`,
		`match: {prefix: "/"} route: {weighted_clusters: {runtime_key_prefix: "weights" clusters: {name: "a" weight: {value: 1}} clusters: {name: "b" weight: {value: 1}}}}`,
		`match: {prefix: "/"} route: {cluster: "c"} typed_per_filter_config: {key: "envoy.filters.http.cors" value: {[type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy] {
			filter_enabled: {runtime_key: "cors.on" default_value: {numerator: 100}} shadow_enabled: {runtime_key: "cors.shadow" default_value: {}}}}}`,
		`match: {prefix: "/"} route: {cluster: "c"} typed_per_filter_config: {key: "envoy.filters.http.fault" value: {[type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault] {
			delay: {fixed_delay: {seconds: 1} percentage: {numerator: 1}} abort: {http_status: 503 percentage: {numerator: 1}}
			abort_percent_runtime: "mine.share" abort_http_status_runtime: "mine.status"}}}`,
	), caps)
	if err != nil {
		t.Fatal(err)
	}
	routes := table.Config.VirtualHosts[0].Routes
	if m := routes[0].Filters["mirror"].(*mirror.Config); m.Percent != 25 {
		t.Errorf("the first mirror gets %v %%, want 25", m.Percent)
	} else if got := fmt.Sprint(m.Additional); got != "[{n  0.0025  true} {o  100  true}]" {
		t.Errorf("additional mirrors = %s, want n with 0.0025 %% and o with 100 %%", got)
	}
	if w := routes[1].Forward.WeightedClusters; w[0].Weight != 9 || w[1].Weight != 1 {
		t.Errorf("the weights are %d and %d, want 9 and 1", w[0].Weight, w[1].Weight)
	}
	c := routes[2].Filters["envoy.filters.http.cors"].(*cors.Config)
	if got := fmt.Sprint(c.Enabled.Default, c.Shadow.Default); got != "{300000 MILLION} {1 MILLION}" {
		t.Errorf("fractions of cors = %s, want 300000 and 1 per MILLION", got)
	}
	f := routes[3].Filters["envoy.filters.http.fault"].(*fault.Config)
	if got := fmt.Sprint(f.Delay.Fixed, f.Delay.Percent, f.Abort.Status, f.Abort.Percent); got != "1.5s 12 429 13" {
		t.Errorf("faults = %s, want a delay of 1.5s for 12 %%, and 429 for 13 %%", got)
	}
	if want := []string{
		"cors.on", "cors.shadow", "fault.http.delay.fixed_delay_percent", "fault.http.delay.fixed_duration_ms", "mine.share", "mine.status", "mirrored", "unset", "weights.a", "weights.b",
	}; !slices.Equal(table.RuntimeKeys, want) || len(table.Ignored) != 0 {
		t.Errorf("the keys are %q, want %q; ignored is %q", table.RuntimeKeys, want, table.Ignored)
	}
}

func TestRuntimeFeatureFlags(t *testing.T) {
	for text, want := range map[string]bool{`{}`: false, `{"k": true}`: true, `{"k": "TRUE"}`: true, `{"k": 1}`: false} {
		m := &corev3.RuntimeFeatureFlag{RuntimeKey: "k"}
		fieldReader{report: &report{capabilities: Capabilities{Runtime: newTestRuntime(t, text)}}}.resolveRuntimeKeys(m.ProtoReflect())
		if m.GetDefaultValue().GetValue() != want || m.GetRuntimeKey() != "" {
			t.Errorf("%s: %v, want %t", text, m, want)
		}
	}
	double := &corev3.RuntimeDouble{RuntimeKey: "k", DefaultValue: 1}
	fieldReader{report: &report{capabilities: Capabilities{Runtime: newTestRuntime(t, `{"k": 2.5}`)}}}.resolveRuntimeKeys(double.ProtoReflect())
	integer := &corev3.RuntimeUInt32{RuntimeKey: "k", DefaultValue: 1}
	fieldReader{report: &report{capabilities: Capabilities{Runtime: newTestRuntime(t, `{"k": 2}`)}}}.resolveRuntimeKeys(integer.ProtoReflect())
	if double.GetDefaultValue() != 2.5 || integer.GetDefaultValue() != 2 {
		t.Errorf("the numbers are %v and %v, want 2.5 and 2", double, integer)
	}
}

func TestRuntimeDiffers(t *testing.T) {
	r, other := newTestRuntime(t, `{"a": 1, "b": 2}`), newTestRuntime(t, `{"a": 1, "b": 3, "c": 0}`)
	for keys, want := range map[string]bool{"a": false, "b": true, "a b": true, "c": true, "d": false, "": false} {
		if got := r.Differs(other, strings.Fields(keys)); got != want {
			t.Errorf("Differs(%q) = %t, want %t", keys, got, want)
		}
	}
}

func TestRejectedRuntimeLayers(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": null}`:                                   "layer.a: expected a number",
		`{"a": {"b": [1]}}`:                             "layer.a.b: expected a number",
		`{"a": {"numerator": -1}}`:                      "layer.a.numerator: is -1",
		`{"a": {"numerator": "50"}}`:                    "layer.a.numerator: is 50, expected a whole number",
		`{"a": {"numerator": 0.5}}`:                     "layer.a.numerator: is 0.5, expected a whole number",
		`{"a": {"numerator": 1, "denominator": "TEN"}}`: `layer.a.denominator: "TEN" is not a valid denominator`,
		`{"a": {"numerator": 1, "denominator": 7}}`:     "layer.a.denominator: 7 is not supported",
	} {
		if _, err := ReadRuntime(runtimeLayer(t, text), Capabilities{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadRuntime of %s: error %v, want one with %q", text, err, want)
		}
	}
	caps := testCapabilities()
	caps.Runtime = newTestRuntime(t, `{"w.a": 0}`)
	if _, err := ReadRoutes(routeConfig(t, `match: {prefix: "/"} route: {weighted_clusters: {runtime_key_prefix: "w" clusters: {name: "a" weight: {value: 1}}}}`), caps); err == nil {
		t.Error("ReadRoutes accepted weights whose sum is 0")
	}
}

// TestIgnoredConnectionLimits verifies that the keys of connection limits are reported as ignored.
func TestIgnoredConnectionLimits(t *testing.T) {
	for text, want := range map[string]string{
		`{"overload": {"global_downstream_max_connections": 50000}}`:                           "l.overload.global_downstream_max_connections",
		`{"overload.global_downstream_max_connections": "50000"}`:                              "l.overload.global_downstream_max_connections",
		`{"envoy": {"resource_limits": {"listener": {"front": {"connection_limit": 10000}}}}}`: "l.envoy.resource_limits.listener.front.connection_limit",
		`{"overload.global_downstream_max_connections": 2147483647}`:                           "",
		`{"envoy.resource_limits.cluster.c.connection_limit": 1, "shop.connection_limit": 1}`:  "",
	} {
		s := &structpb.Struct{}
		if err := protojson.Unmarshal([]byte(text), s); err != nil {
			t.Fatal(err)
		}
		l, err := ReadLayer("l", s)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(l.Ignored(), " "); got != want {
			t.Errorf("%s: ignored %q, want %q", text, got, want)
		}
	}
}

// FuzzReadRuntime verifies that any input is either rejected or parsed, with percentages in range.
func FuzzReadRuntime(f *testing.F) {
	f.Add(runtimeLayer(f, `{"a": {"b": {"numerator": 5, "denominator": "TEN_THOUSAND"}}, "c": "true", "d": 1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := ReadRuntime(body, Capabilities{})
		if err != nil {
			return
		}
		for key, s := range NewRuntime(l).values {
			if s.isPercent && !(s.percentValue >= 0 && s.percentValue <= 100) {
				t.Errorf("percentage of %q = %v, want 0 to 100", key, s.percentValue)
			}
		}
	})
}
