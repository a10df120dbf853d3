package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/inspect"
)

// startProcess returns a process that has started with a file; edits change the file's settings
// before the start, and rewrite changes the file on disk.
func startProcess(t *testing.T, text string, edits ...func(*configjson.File)) (p *process, rewrite func(text string)) {
	t.Helper()
	path := writeConfig(t, text)
	f := startFlags{source: source{path: path}, drainSeconds: -1}
	file, problems := f.open()
	if file == nil {
		t.Fatal(problems)
	}
	for _, edit := range edits {
		edit(file)
	}
	p, err := newProcess(f, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	if err := p.start(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	return p, func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReloadReportsRestart(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.log"), filepath.Join(dir, "second.log")
	log := func(path, members string) string {
		return fmt.Sprintf(`"default_log_path": %q, "default_log_level": "INFO", %s"listeners": [],`, path, members)
	}
	file := func(root, server string) string {
		return fmt.Sprintf(`{%s"servers": [{%s "routers": []}]}`, root, server)
	}
	pid := func(name string) string { return fmt.Sprintf(`"pid": %q, `, filepath.Join(dir, name)) }
	p, rewrite := startProcess(t, file(pid("a.pid")+adminText(0), log(first, "")))

	rewrite(file(pid("b.pid")+`"admin": {"address": {"socket_address": {"address": "127.0.0.2", "port_value": 0}}, "allowed_hosts": ["weft.test"]}, "pprof": {"debug": true, "port_value": 1803}, `+
		`"metrics": {"sinks": [{"type": "prometheus", "config": {"port": 1802, "address": "127.0.0.1", "endpoint": "/metrics"}}]}, `, log(second, `"default_log_format": "json", `)))
	got := p.reload(t.Context())
	want := []string{"admin.address", "admin.allowed_hosts", "pprof.port_value", "metrics.sinks", "servers[0].default_log_format"}
	if !got.Applied || !slices.Equal(got.Restart, want) {
		t.Errorf("reload result %+v, want it applied and restart keys %q", got, want)
	}
	text, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range want {
		if !strings.Contains(string(text), `"a change takes effect after a restart" key=`+key) {
			t.Errorf("the log does not say that %s takes effect after a restart:\n%s", key, text)
		}
	}
	if !strings.Contains(string(text), "configuration applied") {
		t.Errorf("the log did not move to the path in the file:\n%s", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "a.pid")); !os.IsNotExist(err) {
		t.Errorf("the previous PID file still exists: %v", err)
	}
	if number, err := os.ReadFile(filepath.Join(dir, "b.pid")); err != nil || strings.TrimSpace(string(number)) != strconv.Itoa(os.Getpid()) {
		t.Errorf("the PID file contains %q (%v), want %d", number, err, os.Getpid())
	}
	if secondReload := p.reload(t.Context()); !slices.Equal(secondReload.Restart, want) {
		t.Errorf("the second reload returns %q, want the same keys", secondReload.Restart)
	}
	rewrite(file(pid("b.pid")+adminText(0), log(second, "")))
	if restored := p.reload(t.Context()); !restored.Applied || len(restored.Restart) > 0 {
		t.Errorf("reload with the initial values: %+v, want it applied, and no keys that require a restart", restored)
	}
}

// TestReloadReportsDubboRestart verifies that a reload reports and logs a change of dubbo_registry.
func TestReloadReportsDubboRestart(t *testing.T) {
	dir := t.TempDir()
	file := func(application string) string {
		return fmt.Sprintf(`{"servers": [{"default_log_path": %q, "listeners": [], "routers": []}], "extends": [{"type": "dubbo_registry",
			"config": {"enable": true, "application": %q, "api_port": 0, "api_socket": %q}}]}`, filepath.Join(dir, "log"), application, filepath.Join(dir, "api.sock"))
	}
	p, rewrite := startProcess(t, file("first"))
	rewrite(file("second"))
	if got := p.reload(t.Context()); !got.Applied || !slices.Equal(got.Restart, []string{"dubbo_registry"}) {
		t.Errorf("reload result %+v, want it applied and restart key dubbo_registry", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || strings.Count(string(text), "key=dubbo_registry") != 1 {
		t.Errorf("log %s (%v), want one line with dubbo_registry", text, err)
	}
	rewrite(file("first"))
	if got := p.reload(t.Context()); !got.Applied || len(got.Restart) > 0 {
		t.Errorf("reload with the initial file: %+v, want it applied, and no keys that require a restart", got)
	}
}

func TestLogIsJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	startProcess(t, fmt.Sprintf(`{"servers": [{"default_log_path": %q, "default_log_format": "json", "listeners": [], "routers": []}]}`, path))
	p, _ := startProcess(t, fmt.Sprintf(`{"servers": [{"default_log_path": %q, "default_log_format": "json", "listeners": [], "routers": []}]}`, path))
	p.log.Warn("a message", "key", "value")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var line map[string]any
	if err := json.Unmarshal(lines[len(lines)-1], &line); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if line["msg"] != "a message" || line["level"] != "WARN" || line["key"] != "value" || line["time"] == nil {
		t.Errorf("the line is %v, want the message, level WARN, key=value and a time", line)
	}
	f := startFlags{logJSON: true, drainSeconds: -1}
	file, problems := source{path: writeConfig(t, `{"servers": [{"listeners": [], "routers": []}]}`)}.open()
	if file == nil {
		t.Fatal(problems)
	}
	if f.override(file.Snapshot); !file.Snapshot.Server.Log.JSON {
		t.Error("--log-json has no effect")
	}
}

func TestStandardInputCannotBeReloaded(t *testing.T) {
	p, _ := startProcess(t, configText(listenerText("front", "127.0.0.1:0", ""), "", ""))
	p.flags.path = stdin
	if got := p.reload(t.Context()); got.Applied || !strings.Contains(strings.Join(got.Problems, "\n"), "standard input") {
		t.Errorf("reload result %+v, want it rejected", got)
	}
}

// TestShutdownAbortsReload verifies that SIGTERM aborts a reload that waits for the hosts of a
// cluster whose name server does not respond.
func TestShutdownAbortsReload(t *testing.T) {
	nameServer, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer nameServer.Close()
	queried := make(chan struct{}, 1)
	go func() {
		var b [512]byte
		if _, _, err := nameServer.ReadFrom(b[:]); err == nil {
			queried <- struct{}{}
		}
	}()
	p, rewrite := startProcess(t, configText(listenerText("front", "127.0.0.1:0", ""), "", `"graceful_timeout": "1m", `))
	signals := make(chan os.Signal, 4)
	ended := make(chan error, 1)
	go func() { ended <- p.run(t.Context(), signals) }()
	host, port, _ := net.SplitHostPort(nameServer.LocalAddr().String())
	rewrite(strings.Replace(configText(listenerText("front", "127.0.0.1:0", ""), "", `"graceful_timeout": "1m", `), "{", fmt.Sprintf(
		`{"cluster_manager": {"clusters": [{"name": "named", "type": "STRICT_DNS", "hosts": [{"address": "slow.test:80"}],
			"dns_resolvers": {"servers": [%q], "port": %q, "timeout": 4, "attempts": 1}}]}, `, host, port), 1))
	signals <- syscall.SIGHUP
	select {
	case <-queried:
	case err := <-ended:
		t.Fatalf("the process ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("the reload does not wait for hosts")
	}
	started := time.Now()
	signals <- syscall.SIGTERM
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("run = %v, want nil", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("SIGTERM waits for the reload, want SIGTERM to abort it")
	}
	if elapsed := time.Since(started); elapsed > 3*time.Second {
		t.Errorf("SIGTERM waited %s for the reload, want at most 3s", elapsed)
	}
	if r := p.state.Load().rejected; r == nil || !slices.Contains(r.Reasons, errShuttingDown.Error()) {
		t.Errorf("the rejection of the reload is %+v, want the reason %q", r, errShuttingDown)
	}
}

// TestReloadCommand verifies the output and the exit status for a response of the admin port.
func TestReloadCommand(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		exit   int
		out    string
	}{
		"applied": {200, `{"source": "a.json", "applied": true, "problems": ["a.json:1:1: warning: w"], "restart": ["pprof.debug"]}`, 0,
			"a.json:1:1: warning: w\nthe change of pprof.debug takes effect after a restart\na.json: applied\n"},
		"rejected": {422, `{"source": "a.json", "applied": false, "problems": ["a.json:3:4: invalid"]}`, 1,
			"a.json:3:4: invalid\na.json: rejected, the previous configuration stays active\n"},
	} {
		t.Run(name, func(t *testing.T) {
			port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != "/reload" {
					t.Errorf("the request is %s %s, want POST /reload", r.Method, r.URL.Path)
				}
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer port.Close()
			address := port.Listener.Addr().String()
			status, out, errs := runWeft(t, "reload", "--admin", address)
			if status != c.exit || out != c.out || errs != "" {
				t.Errorf("status %d, %q, %q; want %d, %q", status, out, errs, c.exit, c.out)
			}
			var got inspect.Reload
			status, out, _ = runWeft(t, "reload", "--admin", address, "-o", "json")
			if err := json.Unmarshal([]byte(out), &got); err != nil || status != c.exit || got.Source != "a.json" {
				t.Errorf("-o json: status %d, %s (%v); want %d, source a.json", status, out, err, c.exit)
			}
		})
	}
}

// TestAdminPortReloads verifies that weft reload makes a running process reload.
func TestAdminPortReloads(t *testing.T) {
	p, rewrite := startProcess(t, configText(listenerText("front", "127.0.0.1:0", ""), adminText(0), ""))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, nil) }()
	defer func() { cancel(); <-ended }()
	address := p.ports[0].Addr().String()
	if status, out, errs := runWeft(t, "reload", "--admin", address); status != 0 || !strings.HasSuffix(out, ": applied\n") {
		t.Errorf("status %d, %s%s; want 0, applied", status, out, errs)
	}
	rewrite(`{"servers": [{"listeners": [{"name": "front"}]}]}`)
	if status, out, errs := runWeft(t, "reload", "--admin", address); status != 1 || !strings.Contains(out, "config.json:1:") || !strings.HasSuffix(out, ": rejected, the previous configuration stays active\n") {
		t.Errorf("invalid file: status %d, %s%s; want 1, rejected at config.json:1", status, out, errs)
	}
}

func TestBannerHasReloadCommand(t *testing.T) {
	p, _ := startProcess(t, configText(listenerText("front", "127.0.0.1:0", ""), "", ""))
	want := fmt.Sprintf("Reload with: kill -HUP %d\n", os.Getpid())
	if got := banner(p.flags.source, p.server.Running()); !strings.Contains(got, want) || !strings.Contains(got, "is ready: 1 listener, 0 clusters") {
		t.Errorf("banner %q, want a text with %q", got, want)
	}
}
