package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/proxy/explain"
)

// startWeft runs the configuration text until the test ends, and returns the address of its admin
// port. This address replaces the admin address in text.
func startWeft(t *testing.T, text string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, address := filepath.Join(dir, "config.json"), filepath.Join(dir, "admin.sock")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := startFlags{source: source{path: path}, drainSeconds: -1}
	file, problems := flags.open()
	if file == nil {
		t.Fatal(problems)
	}
	file.Snapshot.Admin.Address = address
	p, err := newProcess(flags, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.start(t.Context(), file); err != nil {
		p.stop()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.run(t.Context(), nil) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("run = %v, want nil", err)
		}
		p.stop()
	})
	return address
}

// exampleConfig is a file with a listener, two routes and a cluster.
const exampleConfig = `{
  "servers": [{"default_log_path": "stderr", "default_log_level": "OFF",
    "listeners": [{"name": "front", "address": "127.0.0.1:0",
      "filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
    "routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [
      {"name": "of jason", "match": {"headers": [{"name": "end-user", "value": "jason"}]}, "direct_response": {"status": 200}},
      {"name": "rest", "match": {"prefix": "/"}, "route": {"cluster_name": "app"}}]}]}]}],
  "cluster_manager": {"clusters": [{"name": "app", "hosts": [{"address": "127.0.0.1:1"}]}]},
  "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}
}`

func TestExplainFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(exampleConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := runWeft(t, "explain", "-c", path, "-H", "end-user: bob", "http://shop.test/cart")
	for _, want := range []string{`not "of jason": header end-user is "bob", expected "jason"`, `route "rest": all its conditions match`, "host 127.0.0.1:1\n"} {
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("status %d, printed %s%s; want %s", status, stdout, stderr, want)
		}
	}
}

func TestExplainRunningProcess(t *testing.T) {
	address := startWeft(t, exampleConfig)
	status, stdout, stderr := runWeft(t, "explain", "--admin", address, "-o", "json", "http://shop.test/cart", "-H", "end-user:jason")
	var result explain.Result
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || status != 0 {
		t.Fatalf("status %d, printed %s%s: %v; want 0 and a result", status, stdout, stderr, err)
	}
	if len(result.Routes) != 2 || result.Routes[0].Outcome != explain.Chosen || result.Routes[0].Action.Status != 200 || result.Routes[1].Outcome != explain.Shadowed {
		t.Errorf("routes are %+v, want the first one chosen and the second one shadowed", result.Routes)
	}
	_, text, _ := runWeft(t, "explain", "--admin", address, "http://shop.test/cart")
	if !strings.Contains(text, `cluster "app"`) || !strings.Contains(text, "host 127.0.0.1:1") {
		t.Errorf("printed %s, want cluster \"app\" and host 127.0.0.1:1", text)
	}
}

func TestExplainRejectsInvalidRequest(t *testing.T) {
	for want, args := range map[string][]string{
		"url or call is required":                               {"explain"},
		"--output xml: expected text or json":                   {"explain", "-o", "xml", "http://a/"},
		"the admin port does not respond":                       {"explain", "http://a/", "--admin", "/nowhere/admin.sock"},
		`--admin: found "unix://admin.sock", expected unix:///`: {"explain", "http://a/", "--admin", "unix://admin.sock"},
		"url and call are mutually exclusive":                   {"explain", "http://a/", "--dubbo", "a/b"},
		`attachment: "tag" is not valid, expected name=value`:   {"explain", "--dubbo", "a/b", "--attachment", "tag"},
		`config.json: cannot be read`:                           {"explain", "http://a/", "-c", "config.json"},
	} {
		if status, stdout, stderr := runWeft(t, args...); status != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: status %d, printed %s and %s, want %s", args, status, stdout, stderr, want)
		}
	}
}
