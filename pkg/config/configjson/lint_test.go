package configjson

import (
	"fmt"
	"strings"
	"testing"
)

// lintWarnings returns the lint warnings for a file with the given routes and clusters.
func lintWarnings(t *testing.T, routes, clusters string) []string {
	t.Helper()
	text := fmt.Sprintf(`{"servers": [{"listeners": [], "routers": [{"router_config_name": "t", "virtual_hosts": [{"name": "v", "domains": ["*"], "routers": [%s]}]}]}],
		"cluster_manager": {"clusters": [%s]}}`, routes, clusters)
	_, withoutLint := Parse("c.json", []byte(text), testCapabilities(), Options{})
	seen := map[string]bool{}
	for _, d := range withoutLint {
		seen[d.Error()] = true
	}
	_, withLint := Parse("c.json", []byte(text), testCapabilities(), Options{Lint: true})
	if withLint.Failed() {
		t.Fatal(withLint)
	}
	var out []string
	for _, d := range withLint {
		if !seen[d.Error()] {
			out = append(out, d.Text())
		}
	}
	return out
}

func TestLint(t *testing.T) {
	route := func(name, match string) string {
		return fmt.Sprintf(`{"name": %q, "match": {%s}, "direct_response": {"status": 200}}`, name, match)
	}
	const a = `{"name": "a", "type": "STATIC", "hosts": [{"address": "127.0.0.1:1"}]}`
	for name, c := range map[string]struct{ routes, clusters, want string }{
		"route after a catch-all route":            {route("1", `"prefix": "/"`) + "," + route("2", `"prefix": "/a"`), "", `no request reaches route "2": route "1" before it matches the same requests`},
		"route for the asterisk after a catch-all": {route("1", `"prefix": "/"`) + "," + route("2", `"path": "*"`), "", ""},
		"route after a shorter prefix":             {route("1", `"prefix": "/a"`) + "," + route("2", `"path": "/ab"`), "", `no request reaches route "2"`},
		"route after the same expression":          {route("1", `"regex": "/a.*"`) + "," + route("2", `"regex": "/a.*"`), "", `no request reaches route "2"`},
		"route after fewer conditions":             {route("1", `"prefix": "/", "headers": [{"name": "x", "value": "1"}]`) + "," + route("2", `"prefix": "/a", "headers": [{"name": "y", "value": "1"}, {"name": "x", "value": "1"}]`), "", `no request reaches route "2"`},
		"route before a shorter prefix":            {route("1", `"prefix": "/a"`) + "," + route("2", `"prefix": "/"`), "", ""},
		"route after another condition":            {route("1", `"prefix": "/", "headers": [{"name": "x", "value": "1"}]`) + "," + route("2", `"prefix": "/a", "headers": [{"name": "x", "value": "2"}]`), "", ""},
		"route after an exact path":                {route("1", `"path": "/a"`) + "," + route("2", `"prefix": "/a"`), "", ""},
		"expression after a prefix":                {route("1", `"prefix": "/a"`) + "," + route("2", `"regex": "/ab?"`), "", ""},
		"prefix without a slash":                   {route("1", `"prefix": "a/"`), "", `found "a/", which no path matches`},
		"path without a slash":                     {route("1", `"path": "a"`), "", `found "a", which no path matches`},
		"unused cluster":                           {route("1", `"prefix": "/"`), a, `cluster "a" is not used`},
		"used cluster":                             {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a"}}`, a, ""},
		"cluster without hosts":                    {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a"}}`, `{"name": "a", "type": "STATIC"}`, `cluster "a" has no hosts`},
		"per-try timeout above the route timeout":  {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a", "timeout": "1s", "retry_policy": {"retry_on": true, "num_retries": 1, "retry_timeout": "2s"}}}`, a, `the per-try timeout (2s) is not less than the timeout of the route (1s)`},
		"per-try timeout below the route timeout":  {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a", "timeout": "3s", "retry_policy": {"retry_on": true, "num_retries": 1, "retry_timeout": "2s"}}}`, a, ""},
		"virtual host without routes":              {"", "", `virtual host "v" has no routes`},
		"cluster variable":                         {`{"match": {"prefix": "/"}, "route": {"cluster_variable": "request_header_x"}}`, a, ""},
		"per-try timeout without a route timeout":  {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a", "timeout": "0s", "retry_policy": {"retry_on": true, "num_retries": 1, "retry_timeout": "2s"}}}`, a, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := lintWarnings(t, c.routes, c.clusters)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("lint warns of %q, want no warning", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("lint warns of %q, want one warning with %q", got, c.want)
			}
		})
	}
}
