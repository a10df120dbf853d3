package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v4"
)

// invalidFile is a configuration with four errors, each on its own line.
const invalidFile = `{
  "servers": [{
    "default_log_level": "LOUD",
    "listeners": [{"name": "in", "adress": "127.0.0.1:1", "address": "127.0.0.1:2",
      "filter_chains": [{"filters": [{"type": "proxy", "config": {
        "downstream_protocol": "Http1", "router_config_name": "missing"}}]}],
      "stream_filters": [
        {"type": "transcoder"}]
    }]
  }]
}
`

// invalidFileErrors returns the positions and messages of the errors in invalidFile.
func invalidFileErrors() []string {
	return []string{
		`:3:26: servers[0].default_log_level: `,
		`:4:34: servers[0].listeners[0].adress: unknown key "adress"; did you mean "address"?`,
		`:6:63: servers[0].listeners[0].filter_chains[0].filters[0].config.router_config_name: `,
		`:8:18: servers[0].listeners[0].stream_filters[0].type: stream filter transcoder is not supported yet`,
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckReportsAllErrors(t *testing.T) {
	path := writeFile(t, "invalid.json", invalidFile)
	stdout, stderr, status := command(t, "check", "-c", path)
	if status != 1 || stdout != "" {
		t.Errorf("exit status %d, stdout %q; want 1 and no output", status, stdout)
	}
	for _, location := range invalidFileErrors() {
		if !strings.Contains(stderr, path+location) {
			t.Errorf("no error at %s in\n%s", location, stderr)
		}
	}
}

func TestStartRejectsInvalidFile(t *testing.T) {
	path := writeFile(t, "invalid.json", invalidFile)
	stdout, stderr, status := command(t, "start", "-c", path)
	if status != 1 || stdout != "" {
		t.Errorf("exit status %d, stdout %q; want 1 and no output", status, stdout)
	}
	for _, location := range invalidFileErrors() {
		if !strings.Contains(stderr, path+location) {
			t.Errorf("no error at %s in\n%s", location, stderr)
		}
	}
}

func TestCheckAcceptsValidFile(t *testing.T) {
	t.Setenv("CERTS", exampleCertDir(t).dir)
	files, err := filepath.Glob(filepath.Join(root, "configs", "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".go" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			stdout, stderr, status := command(t, "check", "-c", filepath.Join("configs", filepath.Base(file)))
			if status != 0 || !strings.Contains(stdout, ": ok: ") {
				t.Errorf("exit status %d\n%s%s", status, stdout, stderr)
			}
		})
	}
}

func TestCheckBindsNothing(t *testing.T) {
	s, front := simpleProxy("127.0.0.1:1")
	ln, err := net.Listen("tcp", front)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	path := writeFile(t, "c.json", string(s.config().encode(t)))
	if _, stderr, status := command(t, "check", "-c", path); status != 0 {
		t.Errorf("check while the listener's port is in use: exit status %d\n%s", status, stderr)
	}
	if _, stderr, status := command(t, "start", "-c", path); status != 1 || !strings.Contains(stderr, front) {
		t.Errorf("start while the listener's port is in use: exit status %d, want 1 and the address in\n%s", status, stderr)
	}
}

func TestCheckLenientWarnsOfUnknownKeys(t *testing.T) {
	s, _ := simpleProxy("127.0.0.1:1")
	path := writeFile(t, "c.json", string(s.config().with(object{"no_such_key": 1}).encode(t)))
	if _, stderr, status := command(t, "check", "-c", path); status != 1 || !strings.Contains(stderr, `unknown key "no_such_key"`) {
		t.Errorf("without --lenient: exit status %d\n%s", status, stderr)
	}
	if _, stderr, status := command(t, "check", "--lenient", "-c", path); status != 0 || !strings.Contains(stderr, `unknown key "no_such_key"`) {
		t.Errorf("with --lenient: exit status %d, want 0 and the key in\n%s", status, stderr)
	}
}

func TestInvalidCommandLinesFail(t *testing.T) {
	for name, args := range map[string][]string{
		"check without a file":    {"check"},
		"check of a missing file": {"check", "-c", "no/such/file.json"},
		"start of a missing file": {"start", "-c", "no/such/file.json"},
		"unknown command":         {"stop"},
		"unknown flag":            {"start", "--no-such-flag"},
		"extra argument":          {"check", "-c", "configs/http1.json", "extra"},
	} {
		t.Run(name, func(t *testing.T) {
			if stdout, stderr, status := command(t, args...); status != 1 || stderr == "" || stdout != "" {
				t.Errorf("weft %s: exit status %d, stdout %q, stderr %q; want 1, no output, and an error", strings.Join(args, " "), status, stdout, stderr)
			}
		})
	}
}

func TestSchemaAcceptsExamples(t *testing.T) {
	stdout, _, status := command(t, "schema")
	if status != 0 {
		t.Fatalf("weft schema: exit status %d, want 0", status)
	}
	text, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("weft.schema.json", lowerSchemaKeys(text)); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("weft.schema.json") // also validates the schema against its draft
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(root, "configs", "*.*"))
	seen := 0
	for _, file := range files {
		if filepath.Ext(file) == ".go" {
			continue
		}
		seen++
		if err := schema.Validate(readDocument(t, file)); err != nil {
			t.Errorf("the schema rejects %s: %v", file, err)
		}
	}
	if seen == 0 {
		t.Error("no examples found")
	}
	invalid, err := jsonschema.UnmarshalJSON(strings.NewReader(invalidFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(invalid); err == nil {
		t.Error("the schema accepts an unknown key")
	}
}

// readDocument reads JSON, JSON with comments or YAML with a generic parser. It folds keys to lower
// case, because a schema cannot express that keys match in any case.
func readDocument(t *testing.T, file string) any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(file) == ".yaml" {
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		text, err = json.Marshal(value)
	} else {
		text, err = hujson.Standardize(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return lowerKeys(value)
}

func lowerKeys(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, member := range v {
			out[strings.ToLower(key)] = lowerKeys(member)
		}
		return out
	case []any:
		for i := range v {
			v[i] = lowerKeys(v[i])
		}
	}
	return value
}

// lowerSchemaKeys folds the property names of a schema to lower case, for folded documents.
func lowerSchemaKeys(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			switch key {
			case "properties":
				out := make(map[string]any)
				for name, properties := range member.(map[string]any) {
					out[strings.ToLower(name)] = lowerSchemaKeys(properties)
				}
				v[key] = out
			case "required":
				for i, name := range member.([]any) {
					member.([]any)[i] = strings.ToLower(name.(string))
				}
			default:
				v[key] = lowerSchemaKeys(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = lowerSchemaKeys(v[i])
		}
	}
	return value
}

func TestVersionCommand(t *testing.T) {
	stdout, _, status := command(t, "version")
	if !regexp.MustCompile(`^weft \S+ \S+ go1\.\S+ linux/\w+\n$`).MatchString(stdout) || status != 0 {
		t.Errorf("weft version: %q, exit status %d; want version, revision, Go version and platform, 0", stdout, status)
	}
}

func TestCompletionScript(t *testing.T) {
	stdout, _, status := command(t, "completion", "bash")
	if status != 0 || !strings.Contains(stdout, "weft") {
		t.Fatalf("weft completion bash: exit status %d, %d bytes; want 0, \"weft\"", status, len(stdout))
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	cmd := exec.CommandContext(t.Context(), bash, "-n")
	cmd.Stdin = strings.NewReader(stdout)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("bash -n: %v\n%s", err, out)
	}
	if out, _, _ := command(t, "__complete", "start", "--log-l"); !strings.HasPrefix(out, "--log-level") {
		t.Errorf("start --log-l is completed to %q, want prefix \"--log-level\"", out)
	}
}

func TestHelpHasExamples(t *testing.T) {
	for _, args := range [][]string{{}, {"start"}, {"check"}, {"schema"}, {"version"}} {
		t.Run(strings.Join(append([]string{"weft"}, args...), " "), func(t *testing.T) {
			stdout, _, status := command(t, append(args, "--help")...)
			example := regexp.MustCompile(`(?m)^Examples:\n  weft`)
			if status != 0 || !example.MatchString(stdout) {
				t.Errorf("exit status %d, want 0 and an example in the help:\n%s", status, stdout)
			}
		})
	}
}

// TestStartAcceptsPilotAgentFlags verifies that start accepts the flags that pilot-agent passes.
func TestStartAcceptsPilotAgentFlags(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("hello"))
	s, front := simpleProxy(app.address)
	w := launchWeft(t, launchOptions{config: s.config(), args: []string{
		"--service-cluster", "shop", "-n", "sidecar~127.0.0.1~shop~local", "-p", "sidecar",
		"--service-meta", "a=b", "--cluster-domain", "cluster.local", "--log-level", "warning",
		"--drain-time-s", "1", "--concurrency", "1", "--restart-epoch", "0", "--parent-shutdown-time-s", "60",
	}})
	w.awaitReady()
	if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", ""); got.body != "hello" {
		t.Errorf("GET / = %d %q, want \"hello\"", got.status, got.body)
	}
}

// TestStartFlagsOverrideFile verifies that flags take precedence over the file.
func TestStartFlagsOverrideFile(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	app := startUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s, front := simpleProxy(app.address)
	s.server = object{"graceful_timeout": "1h", "default_log_level": "ERROR"}
	w := launchWeft(t, launchOptions{config: s.config(), args: []string{"-l", "debug", "--drain-time-s", "0"}})
	w.awaitReady()
	dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\n\n")
	eventually(t, "the request has reached the upstream", func() bool { return app.requests.Load() == 1 })
	if level := w.adminGet("/logging"); !strings.Contains(strings.ToUpper(level), "DEBUG") {
		t.Errorf("the log's level is %s, want \"DEBUG\"", level)
	}
	w.signal(sigterm)
	start := time.Now()
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	if elapsed := time.Since(start); elapsed > 5*time.Second {
		t.Errorf("--drain-time-s 0 took %v, want at most 5s", elapsed)
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	t.Parallel()
	front := freeAddress()
	path := writeFile(t, "c.json", string(setup{
		listeners: list{httpListener("front", "${FRONT}")},
		tables:    list{routeTable("front", directRoute("/", 200, "${WORD:-hello}"))},
	}.config().encode(t)))
	w := launchWeft(t, launchOptions{args: []string{"start"}, env: []string{"MOSN_CONFIG=" + path, "FRONT=" + front}})
	w.awaitReady()
	if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", ""); got.body != "hello" {
		t.Errorf("GET / = %d %q, want \"hello\"", got.status, got.body)
	}
	if !slices.Contains(strings.Fields(w.stdout.String()), front) {
		t.Errorf("the first lines lack the listener's address:\n%s", w.stdout.String())
	}
}
