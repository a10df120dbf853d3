package configjson

import (
	"encoding/json"
	"strings"
	"testing"
)

// mirrorSettings replaces the settings of the mirror filter.
type mirrorSettings struct {
	Cluster string `key:"cluster" doc:"Cluster of the copies." refers:"cluster" example:"\"shadow\""`
	Percent int    `key:"percent" doc:"Percentage of requests to copy." example:"10"`
	Copies  int    `key:"amplification" doc:"Number of copies." example:"2"`

	inherits bool
}

func (s *mirrorSettings) InheritCopies() { s.inherits = true }

const mirrorFile = `{"servers": [{
  "listeners": [{"name": "in", "address": "127.0.0.1:1", "filter_chains": [{"filters": [{"type": "proxy", "config": {
    "downstream_protocol": "Http1", "router_config_name": "t"}}]}], "stream_filters": [FILTERS]}],
  "routers": [{"router_config_name": "t", "virtual_hosts": [{"name": "v", "domains": ["*"], "routers": [
    {"match": {"prefix": "/"}, "route": {"cluster_name": "a"}, ROUTE}]}]}]}],
  "cluster_manager": {"clusters": [{"name": "a", "hosts": [{"address": "127.0.0.1:2"}]}, {"name": "shadow", "hosts": []}, {"name": "b", "hosts": []}]}}`

func TestMirrorPoliciesConfigureMirrorFilter(t *testing.T) {
	for _, test := range []struct{ name, filters, route, cluster, want string }{
		{"listener with the filter", `{"type": "mirror"}`, `"request_mirror_policies": {"cluster": "shadow"}`, "shadow", ""},
		{"number of copies", `{"type": "mirror"}`, `"request_mirror_policies": {"cluster": "shadow", "amplification": 2}`, "shadow", ""},
		{"listener without the filter", ``, `"request_mirror_policies": {"cluster": "shadow"}`, "shadow", "the settings have no effect"},
		{"with per_filter_config", `{"type": "mirror"}`, `"request_mirror_policies": {"cluster": "b"}, "per_filter_config": {"mirror": {}}`, "", "mutually exclusive"},
		{"unknown key", `{"type": "mirror"}`, `"request_mirror_policies": {"clutser": "b"}`, "", "cluster"},
		{"empty object", `{"type": "mirror"}`, `"request_mirror_policies": {}`, "", ""},
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
			if !strings.Contains(diagnostics, test.want) || test.want == "" && diagnostics != "" {
				t.Errorf("diagnostics %q, want %q", diagnostics, test.want)
			}
			if model == nil {
				return
			}
			got, _ := model.Routes[0].VirtualHosts[0].Routes[0].Filters["mirror"].(*mirrorSettings)
			if got != nil && got.inherits != (got.Copies == 0) {
				t.Errorf("settings of the route %+v, want the listener's number of copies only if the route has none", got)
			}
			if (got != nil) != (test.cluster != "") || got != nil && got.Cluster != test.cluster {
				t.Errorf("settings of the route %+v, want the cluster %q", got, test.cluster)
			}
		})
	}
}
