package configjson

import (
	"encoding/json"
	"strings"
	"testing"
)

// mirrorSettings replaces the settings of the mirror filter.
type mirrorSettings struct {
	Cluster string `key:"cluster" doc:"Where the copies go." refers:"cluster" example:"\"shadow\""`
	Percent int    `key:"percent" doc:"Share of the requests that are copied." example:"10"`
}

const mirrorFile = `{"servers": [{
  "listeners": [{"name": "in", "address": "127.0.0.1:1", "filter_chains": [{"filters": [{"type": "proxy", "config": {
    "downstream_protocol": "Http1", "router_config_name": "t"}}]}], "stream_filters": [FILTERS]}],
  "routers": [{"router_config_name": "t", "virtual_hosts": [{"name": "v", "domains": ["*"], "routers": [
    {"match": {"prefix": "/"}, "route": {"cluster_name": "a"}, ROUTE}]}]}]}],
  "cluster_manager": {"clusters": [{"name": "a", "hosts": [{"address": "127.0.0.1:2"}]}, {"name": "shadow", "hosts": []}, {"name": "b", "hosts": []}]}}`

func TestMirrorPoliciesConfigureMirrorFilter(t *testing.T) {
	for _, test := range []struct{ name, filters, route, cluster, says string }{
		{"the listener has the filter", `{"type": "mirror"}`, `"request_mirror_policies": {"cluster": "shadow"}`, "shadow", ""},
		{"the listener lacks the filter", ``, `"request_mirror_policies": {"cluster": "shadow"}`, "shadow", "the settings have no effect"},
		{"together with settings of the filter", `{"type": "mirror"}`, `"request_mirror_policies": {"cluster": "b"}, "per_filter_config": {"mirror": {}}`, "", "mutually exclusive"},
		{"with an unknown key", `{"type": "mirror"}`, `"request_mirror_policies": {"clutser": "b"}`, "", "cluster"},
		{"empty", `{"type": "mirror"}`, `"request_mirror_policies": {}`, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.NewReplacer("FILTERS", test.filters, "ROUTE", test.route).Replace(mirrorFile)
			var document map[string]any
			if err := json.Unmarshal([]byte(text), &document); err != nil {
				t.Fatal(err)
			}
			model, list := load(t, document)
			var lines strings.Builder
			for _, d := range list {
				lines.WriteString(d.Error() + "\n")
			}
			diagnostics := lines.String()
			if !strings.Contains(diagnostics, test.says) || test.says == "" && diagnostics != "" {
				t.Errorf("diagnostics %q, want %q", diagnostics, test.says)
			}
			if model == nil {
				return
			}
			got, _ := model.Routes[0].VirtualHosts[0].Routes[0].Filters["mirror"].(*mirrorSettings)
			if (got != nil) != (test.cluster != "") || got != nil && got.Cluster != test.cluster {
				t.Errorf("the route's settings are %+v, want %q", got, test.cluster)
			}
		})
	}
}
