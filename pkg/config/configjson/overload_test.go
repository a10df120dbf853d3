package configjson

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

const overloadManager = `"overload_manager": {
	"resource_monitors": [
		{"name": "envoy.resource_monitors.fixed_heap", "typed_config": {"max_heap_size_bytes": "64MB"}},
		{"name": "memory", "config": {"max_memory_bytes": "134217728"}},
		{"name": "cgroup_memory"},
		{"name": "file_descriptors", "typed_config": {"max_file_descriptors": 100}},
		{"name": "cpu_utilization"},
		{"name": "envoy.resource_monitors.global_downstream_max_connections", "typed_config": {"max_active_downstream_connections": 1000}}
	],
	"actions": [
		{"name": "envoy.overload_actions.stop_accepting_requests", "triggers": [
			{"name": "envoy.resource_monitors.fixed_heap", "threshold": {"value": 0.95}},
			{"name": "cpu_utilization", "scaled": {"scaling_threshold": 0.8, "saturation_threshold": 1}}
		]},
		{"name": "reduce_timeouts", "triggers": [{"name": "memory", "threshold": {"value": 1}}]},
		{"name": "shrink_idle", "triggers": [{"name": "envoy.resource_monitors.global_downstream_max_connections", "threshold": {"value": 0.9}}]}
	]
}`

func TestOverloadManagerOfFileOrServer(t *testing.T) {
	want := &config.Overload{
		Interval: 250 * time.Millisecond,
		Monitors: []config.Monitor{
			{Name: config.MonitorHeap, Max: 64 << 20},
			{Name: config.MonitorMemory, Max: 128 << 20},
			{Name: config.MonitorCgroup},
			{Name: config.MonitorDescriptors, Max: 100},
			{Name: config.MonitorCPU, CPU: config.CPUHost},
			{Name: config.MonitorConnections, Max: 1000},
		},
		Actions: []config.OverloadAction{
			{Name: config.ActionStopRequests, Triggers: []config.Trigger{
				{Monitor: config.MonitorHeap, From: 0.95, To: 0.95}, {Monitor: config.MonitorCPU, From: 0.8, To: 1},
			}},
			{Name: config.ActionReduceTimeouts, Triggers: []config.Trigger{{Monitor: config.MonitorMemory, From: 1, To: 1}}, MinScale: 0.1},
			{Name: config.ActionShrinkIdle, Triggers: []config.Trigger{{Monitor: config.MonitorConnections, From: 0.9, To: 0.9}}},
		},
	}
	for name, text := range map[string]string{
		"top level": `{"servers": [{}], ` + overloadManager + `}`,
		"server":    `{"servers": [{` + overloadManager + `}]}`,
	} {
		s, diags := Parse("file.json", []byte(text), testCapabilities(), Options{})
		if s == nil {
			t.Fatalf("%s: %v", name, diags)
		}
		if diff := cmp.Diff(want, s.Overload); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if s, diags := Parse("file.json", []byte(`{"servers": [{}]}`), testCapabilities(), Options{}); s == nil || s.Overload != nil {
		t.Errorf("without an overload manager: snapshot %v, diagnostics %v; want a snapshot without Overload", s, diags)
	}
}

func TestReduceTimeoutsMinimum(t *testing.T) {
	for timer, want := range map[string]config.OverloadAction{
		`"min_timeout": "2s"`:        {MinTimeout: 2 * time.Second, MinScale: 0.1},
		`"min_scale": {"value": 25}`: {MinScale: 0.25},
	} {
		s, diags := Parse("file.json", []byte(`{"servers": [{}], "overload_manager": {"resource_monitors": [{"name": "memory"}],
			"actions": [{"name": "reduce_timeouts", "triggers": [{"name": "memory", "threshold": {"value": 0.5}}],
				"typed_config": {"timer_scale_factors": [{"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", `+timer+`}]}}]}}`), testCapabilities(), Options{})
		if s == nil {
			t.Fatal(diags)
		}
		if a := s.Overload.Actions[0]; a.MinTimeout != want.MinTimeout || a.MinScale != want.MinScale {
			t.Errorf("%s: MinTimeout %v, MinScale %v; want %v, %v", timer, a.MinTimeout, a.MinScale, want.MinTimeout, want.MinScale)
		}
	}
}

func TestAcceptRates(t *testing.T) {
	for text, want := range map[string]config.AcceptRate{
		`{"per_second": 100}`:             {PerSecond: 100, Burst: 100},
		`{"per_second": 0.1}`:             {PerSecond: 0.1, Burst: 1},
		`{"per_second": 100, "burst": 5}`: {PerSecond: 100, Burst: 5},
		`{"per_second": 0, "burst": 5}`:   {},
		`null`:                            {},
	} {
		s, diags := Parse("file.json", []byte(`{"servers": [{"listeners": [{"address": "127.0.0.1:1", "accept_rate": `+text+`,
			"filter_chains": [{"filters": [{"type": "tcp_proxy", "config": {"cluster": "one"}}]}]}]}],
			"cluster_manager": {"clusters": [{"name": "one", "hosts": []}]}}`), testCapabilities(), Options{})
		if s == nil {
			t.Fatal(diags)
		}
		if got := s.Listeners[0].AcceptRate; got != want {
			t.Errorf("%s = %v, want %v", text, got, want)
		}
	}
}

// overloadPreparations returns the preparations for the keys of overload_manager, of the file and
// of the server, and for the keys of accept_rate: see preparations.
func overloadPreparations() (list []struct{ path, patch string }) {
	for _, p := range []struct{ path, patch string }{
		{"overload_manager", `{"resource_monitors": [{"name": "memory"}], "actions": [
			{"name": "reduce_timeouts", "triggers": [{"name": "memory", "threshold": {"value": 0.5}}]}]}`},
		{"overload_manager.actions[].triggers[].scaled.", `{"actions": [{"triggers": [
			{"threshold": null, "scaled": {"scaling_threshold": 0.7, "saturation_threshold": 0.95}}]}]}`},
		{"overload_manager.actions[].typed_config.timer_scale_factors[].", `{"actions": [{"typed_config": {"timer_scale_factors": [
			{"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_scale": {"value": 30}}]}}]}`},
		{"overload_manager.actions[].typed_config.timer_scale_factors[].min_timeout", `{"actions": [{"typed_config": {"timer_scale_factors": [
			{"min_scale": null}]}}]}`},
	} {
		list = append(list,
			struct{ path, patch string }{p.path, `{"overload_manager": ` + p.patch + `}`},
			struct{ path, patch string }{"servers[]." + p.path, `{"overload_manager": null, "servers": [{"overload_manager": ` + p.patch + `}]}`})
	}
	return append(list, struct{ path, patch string }{".accept_rate.", `{"servers": [{"listeners": [{"accept_rate": {"per_second": 10}}]}]}`})
}
