package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
)

// runWeft runs weft with args and returns its exit status and output.
func runWeft(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newCommand()
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	switch err := root.ExecuteContext(t.Context()).(type) {
	case nil:
	case *exitError:
		status = err.status
	default:
		status = 1
		fmt.Fprintln(&stderr, "weft:", err)
	}
	return status, stdout.String(), stderr.String()
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// configText returns a configuration with a listener and a direct response. root and server are
// additional members of the root and of the server.
func configText(listener, root, server string) string {
	return fmt.Sprintf(`{%s"servers": [{%s"default_log_level": "OFF", "listeners": [%s],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"],
			"routers": [{"direct_response": {"status": 200}}]}]}]}]}`, root, server, listener)
}

func listenerText(name, address, members string) string {
	return fmt.Sprintf(`{"name": %q, "address": %q, %s
		"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}`, name, address, members)
}

func adminText(port int) string {
	return fmt.Sprintf(`"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}, `, port)
}

// TestCheckAndStartRejectSameFiles verifies that check and start reject the same files.
func TestCheckAndStartRejectSameFiles(t *testing.T) {
	dir := t.TempDir()
	front := listenerText("front", "127.0.0.1:1801", "")
	notDir := filepath.Join(dir, "file")
	if err := os.WriteFile(notDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	longPath := "/tmp/" + strings.Repeat("s", 110)
	for name, c := range map[string]struct{ text, want string }{
		"admin port has the address of a listener": {configText(front, adminText(1801), ""),
			`the admin port cannot bind 127.0.0.1:1801: listener "front" binds 127.0.0.1:1801`},
		"admin port covered by a wildcard listener": {configText(listenerText("front", "0.0.0.0:1801", ""), adminText(1801), ""),
			`the admin port cannot bind 127.0.0.1:1801: listener "front" binds 0.0.0.0:1801`},
		"two listeners on one port": {configText(front+","+listenerText("all", "[::]:1801", ""), "", ""),
			`listener "all" cannot bind [::]:1801: listener "front" binds 127.0.0.1:1801`},
		"metrics on the admin port": {configText(front, adminText(1802)+
			`"metrics": {"sinks": [{"type": "prometheus", "config": {"port": 1802, "address": "127.0.0.1", "endpoint": "/metrics"}}]}, `, ""),
			`the Prometheus sink cannot bind 127.0.0.1:1802: the admin port binds 127.0.0.1:1802`},
		"profiler on the port of a listener": {configText(front, `"pprof": {"debug": true, "port_value": 1801}, `, ""),
			`the profiler cannot bind 127.0.0.1:1801: listener "front" binds 127.0.0.1:1801`},
		"admin port on an abstract socket": {configText(front, `"admin": {"address": {"pipe": {"path": "@weft"}}}, `, ""),
			`an abstract socket`},
		"socket path too long": {configText(listenerText("front", "unix://"+longPath, ""), "", ""),
			`the path of a unix socket has at most 107 bytes, this one has 115`},
		"access log is a directory": {configText(listenerText("front", "127.0.0.1:1801", fmt.Sprintf(`"access_logs": [{"log_path": %q}],`, dir)), "", ""),
			`is a directory`},
		"directory of the log is a file": {configText(front, "", fmt.Sprintf(`"default_log_path": %q, `, notDir+"/log")),
			`not a directory`},
		"directory of the PID file is a file": {configText(front, fmt.Sprintf(`"pid": %q, `, notDir+"/pid"), ""),
			`pid file: `},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeConfig(t, c.text)
			status, out, errs := runWeft(t, "check", path)
			if status != 1 || !strings.Contains(errs, c.want) {
				t.Errorf("check: status %d, %s%s\nwant 1 and %q", status, out, errs, c.want)
			}
			f := startFlags{source: source{path: path}, drainSeconds: -1}
			file, _ := f.open()
			if file == nil {
				return // open has rejected the file, for check and start
			}
			p, err := newProcess(f, file)
			if err == nil {
				err = p.start(t.Context(), file)
				p.stop()
			}
			if err == nil {
				t.Error("start accepted the file, want an error")
			}
		})
	}
}

func TestCheckAcceptsValidFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ports chosen by the kernel": configText(listenerText("a", "127.0.0.1:0", ""), adminText(0), ""),
		"port shared by reuseport": configText(listenerText("a", "0.0.0.0:0", `"reuseport": true,`)+","+
			listenerText("b", "127.0.0.1:0", `"reuseport": true,`), "", ""),
		"missing files": configText(listenerText("a", "127.0.0.1:0", fmt.Sprintf(`"access_logs": [{"log_path": %q}],`, dir+"/logs/a")),
			fmt.Sprintf(`"pid": %q, `, dir+"/pid"), fmt.Sprintf(`"default_log_path": %q, `, dir+"/logs/weft")),
	} {
		t.Run(name, func(t *testing.T) {
			path := writeConfig(t, text)
			before, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if status, _, errs := runWeft(t, "check", path); status != 0 {
				t.Errorf("check: status %d: %s, want 0", status, errs)
			}
			if after, err := os.ReadDir(dir); err != nil || len(after) != len(before) {
				t.Errorf("files after check: %v (%v), want only %v", after, err, before)
			}
			f := startFlags{source: source{path: path}, drainSeconds: -1}
			file, problems := f.open()
			if file == nil {
				t.Fatal(problems)
			}
			p, err := newProcess(f, file)
			if err != nil {
				t.Fatal(err)
			}
			defer p.stop()
			if err := p.start(t.Context(), file); err != nil {
				t.Errorf("start: %v", err)
			}
		})
	}
}

// TestCheckBindsNothing verifies that check accepts a file whose port is in use.
func TestCheckBindsNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	path := writeConfig(t, configText(listenerText("front", ln.Addr().String(), ""), "", ""))
	status, out, errs := runWeft(t, "check", "-c", path)
	if want := path + ": ok: 1 listener, 1 route table, 0 clusters\n"; status != 0 || out != want {
		t.Errorf("status %d, %q, %s; want 0 and %q", status, out, errs, want)
	}
}

// TestCheckPrintsWarningsOfStart verifies that check prints the warnings that start logs.
func TestCheckPrintsWarningsOfStart(t *testing.T) {
	dir := t.TempDir()
	expired := testpki.New(t).Issue(testpki.Spec{DNS: []string{"front.test"}, NotAfter: time.Now().Add(-time.Hour)})
	expiredCert, expiredKey := expired.Write(t, dir, "expired")
	for name, test := range map[string]struct{ certificate, key, members, want string }{
		"unusable certificate with fall_back": {"missing.pem", "missing.key", `"fall_back": true, `, "unusable tls_context ignored because it sets fall_back"},
		"expired certificate":                 {expiredCert, expiredKey, "", "peers will reject a local certificate"},
	} {
		tls := fmt.Sprintf(`"tls_context_set": [{"status": true, %s"cert_chain": %q, "private_key": %q}], "filters"`, test.members, test.certificate, test.key)
		path := writeConfig(t, configText(strings.Replace(listenerText("front", "127.0.0.1:0", ""), `"filters"`, tls, 1), "", ""))
		if status, _, errs := runWeft(t, "check", path); status != 0 || !strings.Contains(errs, "warning: msg=\""+test.want) {
			t.Errorf("%s: status %d, %s; want 0 and the warning %q", name, status, errs, test.want)
		}
	}
}

// TestCheckKeepsStateFile verifies that check reports an unreadable state file of Dubbo services and
// changes no file.
func TestCheckKeepsStateFile(t *testing.T) {
	dir := t.TempDir()
	state, leftover := filepath.Join(dir, "state.json"), filepath.Join(dir, "state.json.new-1")
	for _, file := range []string{state, leftover} {
		if err := os.WriteFile(file, []byte("invalid"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	path := writeConfig(t, fmt.Sprintf(`{"servers": [{"listeners": [], "routers": []}],
		"extends": [{"type": "dubbo_registry", "config": {"enable": true, "state_file": %q}}]}`, state))
	if status, _, errs := runWeft(t, "check", path); status != 0 || !strings.Contains(errs, "cannot read the state file") {
		t.Errorf("status %d, %s; want 0 and a warning about the state file", status, errs)
	}
	for _, file := range []string{state, leftover} {
		if text, err := os.ReadFile(file); err != nil || string(text) != "invalid" {
			t.Errorf("%s contains %q (%v), want it unchanged", file, text, err)
		}
	}
}

func TestCheckPrintsJSON(t *testing.T) {
	var got checkResult
	path := writeConfig(t, `{"servers": [{"listeners": [{"name": "front"}]}]}`)
	status, out, errs := runWeft(t, "check", "-o", "json", path)
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 1 || errs != "" {
		t.Fatalf("status %d, %q, %q (%v); want status 1 and a result on stdout", status, out, errs, err)
	}
	if got.OK || len(got.Problems) == 0 || got.Problems[0].Line != 1 || got.Problems[0].Severity != "error" || got.Problems[0].File != path ||
		!strings.HasPrefix(got.Problems[0].Path, "servers[0].listeners[0]") || got.Problems[0].Message == "" {
		t.Errorf("result %+v, want one error at line 1 of servers[0].listeners[0]", got)
	}
	path = writeConfig(t, configText(listenerText("front", "127.0.0.1:0", ""), "", ""))
	got = checkResult{}
	status, out, _ = runWeft(t, "check", "-o", "json", path)
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || !got.OK || got.Listeners != 1 || got.RouteTables != 1 || got.Problems == nil || len(got.Problems) != 0 {
		t.Errorf("status %d, %s (%v); want 0, one listener, one route table and no problems", status, out, err)
	}
	if status, _, errs := runWeft(t, "check", "-o", "xml", path); status != 1 || !strings.Contains(errs, "expected text or json") {
		t.Errorf("-o xml: status %d, %s; want 1, expected text or json", status, errs)
	}
}

func TestCheckReadsStandardInput(t *testing.T) {
	in, err := os.Open(writeConfig(t, configText(listenerText("front", "127.0.0.1:0", ""), "", "")))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	previous := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = previous }()
	if status, out, errs := runWeft(t, "check", "-c", "-"); status != 0 || !strings.HasPrefix(out, "standard input: ok: 1 listener,") {
		t.Errorf("status %d, %s%s; want 0, standard input: ok", status, out, errs)
	}
}

func TestCheckRequiresOneFile(t *testing.T) {
	for _, args := range [][]string{{"check"}, {"check", "a", "-c", "b"}, {"check", "a", "b"}} {
		if status, _, errs := runWeft(t, args...); status != 1 || errs == "" {
			t.Errorf("%v: status %d, %s; want 1 and an error", args, status, errs)
		}
	}
}

func TestStrictCheckFailsOnWarnings(t *testing.T) {
	path := writeConfig(t, strings.Replace(configText(listenerText("front", "127.0.0.1:0", ""), "", ""),
		`{"direct_response"`, `{"match": {"prefix": "api"}, "direct_response"`, 1))
	const want = `servers[0].routers[0].virtual_hosts[0].routers[0].match.prefix: found "api", which no path matches`
	status, out, errs := runWeft(t, "check", path)
	if status != 0 || !strings.Contains(errs, want) || !strings.Contains(out, ": ok: ") {
		t.Errorf("status %d, %s%s; want 0, a warning with %q and ok", status, out, errs, want)
	}
	status, out, errs = runWeft(t, "check", "--strict", path)
	if status != 1 || !strings.Contains(errs, want) || !strings.Contains(errs, ": 1 warning, and --strict was given") || out != "" {
		t.Errorf("--strict: status %d, %s%s; want 1 and a warning with %q", status, out, errs, want)
	}
	var got checkResult
	status, out, _ = runWeft(t, "check", "--strict", "-o", "json", path)
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 1 || got.OK || len(got.Problems) != 1 || got.Problems[0].Severity != "warning" {
		t.Errorf("--strict -o json: status %d, %s; want 1 and one warning", status, out)
	}
	if _, problems := (source{path: path}).open(); len(problems) != 0 {
		t.Errorf("start has warnings: %v, want none", problems)
	}
}

func TestVersionIsPrintedByFlagsAndAsJSON(t *testing.T) {
	_, want, _ := runWeft(t, "version")
	if !strings.HasPrefix(want, "weft "+version+" ") {
		t.Errorf("weft version: %q, want the prefix \"weft %s\"", want, version)
	}
	for _, flag := range []string{"-v", "--version"} {
		if status, got, errs := runWeft(t, flag); status != 0 || got != want {
			t.Errorf("weft %s: status %d, %q, %s; want %q", flag, status, got, errs, want)
		}
	}
	var got map[string]string
	status, out, _ := runWeft(t, "version", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || got["version"] != version || got["revision"] == "" || got["go"] == "" || got["os"] == "" || got["arch"] == "" {
		t.Errorf("status %d, %s (%v); want 0 and all fields", status, out, err)
	}
}

func TestUnknownLogLevelIsRejected(t *testing.T) {
	const want = "weft: --log-level FOO: expected one of TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL, OFF\n"
	if status, _, errs := runWeft(t, "start", "-l", "FOO"); status != 1 || errs != want {
		t.Errorf("status %d, %q, want %q", status, errs, want)
	}
	for _, level := range []string{"", "debug", "WARN", "warning"} {
		if err := (&startFlags{logLevel: level}).check(); err != nil {
			t.Errorf("%q: %v, want nil", level, err)
		}
	}
}
