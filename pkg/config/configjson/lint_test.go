package configjson

import (
	"fmt"
	"strings"
	"testing"
)

// lintWarnings returns the warnings of the lint for a file with the given routes and clusters.
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
		"a route behind one for all":           {route("1", `"prefix": "/"`) + "," + route("2", `"prefix": "/a"`), "", `no request reaches route "2": route "1" before it matches the same requests`},
		"behind a shorter prefix":              {route("1", `"prefix": "/a"`) + "," + route("2", `"path": "/ab"`), "", `no request reaches route "2"`},
		"behind the same expression":           {route("1", `"regex": "/a.*"`) + "," + route("2", `"regex": "/a.*"`), "", `no request reaches route "2"`},
		"behind fewer conditions":              {route("1", `"prefix": "/", "headers": [{"name": "x", "value": "1"}]`) + "," + route("2", `"prefix": "/a", "headers": [{"name": "y", "value": "1"}, {"name": "x", "value": "1"}]`), "", `no request reaches route "2"`},
		"before a shorter prefix":              {route("1", `"prefix": "/a"`) + "," + route("2", `"prefix": "/"`), "", ""},
		"behind another condition":             {route("1", `"prefix": "/", "headers": [{"name": "x", "value": "1"}]`) + "," + route("2", `"prefix": "/a", "headers": [{"name": "x", "value": "2"}]`), "", ""},
		"behind a path":                        {route("1", `"path": "/a"`) + "," + route("2", `"prefix": "/a"`), "", ""},
		"an expression behind a prefix":        {route("1", `"prefix": "/a"`) + "," + route("2", `"regex": "/ab?"`), "", ""},
		"a prefix without a slash":             {route("1", `"prefix": "a/"`), "", `found "a/", which no path matches`},
		"a path without a slash":               {route("1", `"path": "a"`), "", `found "a", which no path matches`},
		"a cluster that nothing refers to":     {route("1", `"prefix": "/"`), a, `cluster "a" is not used`},
		"a cluster that a route refers to":     {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a"}}`, a, ""},
		"a cluster without hosts":              {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a"}}`, `{"name": "a", "type": "STATIC"}`, `cluster "a" has no hosts`},
		"a per-try timeout above all":          {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a", "timeout": "1s", "retry_policy": {"retry_on": true, "num_retries": 1, "retry_timeout": "2s"}}}`, a, `the per-try timeout (2s) is not less than the timeout of the route (1s)`},
		"a lower per-try timeout":              {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a", "timeout": "3s", "retry_policy": {"retry_on": true, "num_retries": 1, "retry_timeout": "2s"}}}`, a, ""},
		"a virtual host without routes":        {"", "", `virtual host "v" has no routes`},
		"a cluster that requests may choose":   {`{"match": {"prefix": "/"}, "route": {"cluster_variable": "request_header_x"}}`, a, ""},
		"a try without a limit of the route's": {`{"match": {"prefix": "/"}, "route": {"cluster_name": "a", "timeout": "0s", "retry_policy": {"retry_on": true, "num_retries": 1, "retry_timeout": "2s"}}}`, a, ""},
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
