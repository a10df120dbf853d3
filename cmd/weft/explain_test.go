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
// port. The address replaces that of text.
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
	flags := startFlags{source: source{path: path}, drain: -1}
	file, problems := flags.open()
	if file == nil {
		t.Fatal(problems)
	}
	file.Snapshot.Admin.Address = address
	p, err := newProcess(flags, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.begin(t.Context(), file); err != nil {
		p.end()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.run(t.Context(), nil) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("run = %v", err)
		}
		p.end()
	})
	return address
}

// explainable is a file with a listener, two routes and a cluster.
const explainable = `{
  "servers": [{"default_log_path": "stderr", "default_log_level": "OFF",
    "listeners": [{"name": "front", "address": "127.0.0.1:0",
      "filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
    "routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [
      {"name": "of jason", "match": {"headers": [{"name": "end-user", "value": "jason"}]}, "direct_response": {"status": 200}},
      {"name": "rest", "match": {"prefix": "/"}, "route": {"cluster_name": "app"}}]}]}]}],
  "cluster_manager": {"clusters": [{"name": "app", "hosts": [{"address": "127.0.0.1:1"}]}]},
  "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}
}`

func TestExplainOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(explainable), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := execute(t, "explain", "-c", path, "-H", "end-user: bob", "http://shop.test/cart")
	for _, want := range []string{`not "of jason": header end-user is "bob", expected "jason"`, `route "rest": all its conditions match`, "host 127.0.0.1:1\n"} {
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("status %d, printed %s%s; want %s", status, stdout, stderr, want)
		}
	}
}

func TestExplainRunningProcess(t *testing.T) {
	address := startWeft(t, explainable)
	stdout, stderr, status := execute(t, "explain", "--admin", address, "-o", "json", "http://shop.test/cart", "-H", "end-user:jason")
	var answer explain.Result
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || status != 0 {
		t.Fatalf("status %d, printed %s%s: %v", status, stdout, stderr, err)
	}
	if len(answer.Routes) != 2 || answer.Routes[0].Outcome != explain.Chosen || answer.Routes[0].Action.Status != 200 || answer.Routes[1].Outcome != explain.Shadowed {
		t.Errorf("routes are %+v", answer.Routes)
	}
	text, _, _ := execute(t, "explain", "--admin", address, "http://shop.test/cart")
	if !strings.Contains(text, `cluster "app"`) || !strings.Contains(text, "host 127.0.0.1:1") {
		t.Errorf("printed %s", text)
	}
}

func TestExplainRejectsInvalidRequest(t *testing.T) {
	for want, args := range map[string][]string{
		"url or call is required":                             {"explain"},
		"--output xml: expected text or json":                 {"explain", "-o", "xml", "http://a/"},
		"the admin port does not respond":                     {"explain", "http://a/", "--admin", "/nowhere/admin.sock"},
		"url and call are mutually exclusive":                 {"explain", "http://a/", "--dubbo", "a/b"},
		`attachment: "tag" is not valid, expected name=value`: {"explain", "--dubbo", "a/b", "--attachment", "tag"},
		`config.json: cannot be read`:                         {"explain", "http://a/", "-c", "config.json"},
	} {
		if stdout, stderr, status := execute(t, args...); status != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: status %d, printed %s and %s, want %s", args, status, stdout, stderr, want)
		}
	}
}
