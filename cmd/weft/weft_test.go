package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/configs"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/inspect"
	"github.com/weft-proxy/weft/pkg/network"
)

// TestEveryCloseReasonIsExported verifies that the metrics have a label value for each close
// reason; without one, connections would not be counted.
func TestEveryCloseReasonIsExported(t *testing.T) {
	r := newRegistry()
	l, release := r.Listener("in")
	defer release()
	want := map[string]float64{}
	for c := range network.CloseReasons() {
		want[c.String()] = float64(c) + 1
		for range c + 1 {
			l.Closed(uint8(c))
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "weft_listener_connections_closed_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == metrics.LabelCloseReason {
					got[label.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("exported %v, want %v", got, want)
	}
}

// pluginPackages returns the names of the packages in a directory.
func pluginPackages(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "testdata" && e.Name() != "codectest" {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestEveryPluginIsRegistered verifies that every plugin directory is registered.
func TestEveryPluginIsRegistered(t *testing.T) {
	var filters, engines, codecs []string
	for _, f := range streamFilters() {
		name := strings.ToLower(strings.ReplaceAll(f.Name, "_", ""))
		filters = append(filters, strings.TrimSuffix(name, "filter")) // MOSN's flowControlFilter
	}
	for _, p := range protocols(nil, nil) {
		if p.Multiplexed && p.Name != config.HTTP2 { // a codec of the xprotocol engine
			name, _, _ := strings.Cut(string(p.Name), "v2") // versions share a directory
			codecs = append(codecs, name)
			engines = append(engines, "xprotocol")
		} else {
			engines = append(engines, strings.ToLower(string(p.Name)))
		}
		if p.NewServer == nil || p.NewUpstreamConn == nil {
			t.Errorf("the protocol %s has no server or no upstream side", p.Name)
		}
	}
	for dir, got := range map[string][]string{
		"../../pkg/filter/stream":      filters,
		"../../pkg/stream":             engines,
		"../../pkg/protocol/xprotocol": codecs,
	} {
		slices.Sort(got)
		got = slices.Compact(got)
		if want := pluginPackages(t, dir); !slices.Equal(got, want) {
			t.Errorf("registered: %v; in %s: %v", got, dir, want)
		}
	}
}

// TestRegisteredPluginsAreConfigurable verifies that the configuration accepts exactly the
// registered names.
func TestRegisteredPluginsAreConfigurable(t *testing.T) {
	c := capabilities()
	for _, f := range streamFilters() {
		if !slices.ContainsFunc(c.StreamFilters, func(accepted filter.StreamFilterFactory) bool { return accepted.Name == f.Name }) {
			t.Errorf("the configuration does not accept the filter %s", f.Name)
		}
		for _, section := range document.Sections(f.Name, f.Config(), nil) {
			for _, key := range section.Keys {
				if !strings.HasSuffix(key.Doc, ".") {
					t.Errorf("%s.%s: %q is not a sentence", section.Path, key.Name, key.Doc)
				}
			}
		}
	}
	for _, p := range protocols(nil, nil) {
		if !slices.Contains(c.Protocols, p.Name) {
			t.Errorf("the configuration does not accept the protocol %s", p.Name)
		}
	}
	for policy, newBalancer := range policies() {
		if !slices.Contains(c.Policies, policy) || newBalancer == nil {
			t.Errorf("the configuration does not accept the policy %s, or it has no balancer", policy)
		}
	}
	if len(c.StreamFilters) != len(streamFilters()) || len(c.Protocols) != len(protocols(nil, nil)) || len(c.Policies) != len(policies())+1 { // LB_ORIGINAL_DST needs no balancer
		t.Error("the configuration accepts names that are not registered")
	}
}

func TestBannerMatchesReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	file, problems := source{}.open()
	if file == nil {
		t.Fatal(problems)
	}
	text := banner(source{}, file.Snapshot)
	for _, want := range []string{
		"weft " + version + " is ready: 3 listeners, 2 clusters\n",
		"client       egress   127.0.0.1:2045\n",
		"server       ingress  127.0.0.1:2046\n",
		"admin                 127.0.0.1:34901\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the banner lacks %q:\n%s", want, text)
		}
	}
	for _, command := range []string{"curl -i http://127.0.0.1:2045/\n", "curl http://127.0.0.1:34901/ "} {
		if !strings.Contains(text, command) || !strings.Contains(string(readme), command) {
			t.Errorf("the banner or the README does not contain %q", command)
		}
	}
	body := ""
	for _, table := range file.Snapshot.Routes {
		for _, route := range table.VirtualHosts[0].Routes {
			if route.DirectResponse != nil {
				body = strings.TrimSpace(route.DirectResponse.Body)
			}
		}
	}
	if body == "" || !strings.Contains(text, `"`+body+`"`) {
		t.Errorf("the banner does not show %q:\n%s", body, text)
	}
}

func TestBannerHintsOnlyForQuickstart(t *testing.T) {
	sameContent := filepath.Join(t.TempDir(), "mine.json")
	other := filepath.Join(t.TempDir(), "other.json")
	for path, text := range map[string][]byte{sameContent: configs.Quickstart, other: append(slices.Clone(configs.Quickstart), '\n')} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{"": true, "../../configs/quickstart.json": true, sameContent: true, other: false, "missing.json": false} {
		if got := strings.Contains(banner(source{path: path}, &config.Snapshot{}), "Try:"); got != want {
			t.Errorf("%q: prints hints: %t, want %t", path, got, want)
		}
	}
}

func TestLevelNamesRoundTrip(t *testing.T) {
	last := slog.Level(-100)
	for _, level := range levels() {
		l := levelOf(level)
		if levelName(l) != string(level) {
			t.Errorf("levelName(levelOf(%s)) = %s, want %s", level, levelName(l), level)
		}
		if l <= last {
			t.Errorf("%s is not above the previous level", level)
		}
		last = l
	}
	if got := levelOf("nonsense"); got != slog.LevelInfo {
		t.Errorf("levelOf an unknown name = %v, want INFO", got)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: levelTrace, ReplaceAttr: replaceLevel}))
	log.Log(t.Context(), levelTrace, "low")
	log.Log(t.Context(), levelCritical, "high", "level", config.LevelDebug)
	for _, want := range []string{"level=TRACE msg=low", "level=CRITICAL msg=high level=DEBUG"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &out)
		}
	}
}

// TestLauncherFlagsAreAccepted verifies that start accepts and hides the flags of launchers such as
// pilot-agent.
func TestLauncherFlagsAreAccepted(t *testing.T) {
	cmd := startCommand()
	err := cmd.ParseFlags([]string{
		"--config", "c.json", "--restart-epoch", "0", "--drain-time-s", "45", "--parent-shutdown-time-s", "60",
		"--service-cluster", "shop", "-n", "sidecar~10.0.0.1~shop.default~cluster.local", "--service-type", "sidecar",
		"--local-address-ip-version", "v4", "--base-id", "1", "--log-format", "%v", "--log-format-prefix-with-location", "0",
		"--component-log-level", "misc:error", "-l", "WARN", "--concurrency", "2", "--drain-strategy", "immediate",
		"--max-obj-name-len", "189", "--cluster-domain", "cluster.local", "-s", "again", "-p", "again",
		"--service-meta", "a=b", "--allow-unknown-fields", "x", "-f", "gates",
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, hidden := range map[string]bool{"service-node": true, "base-id": true, "config": false, "log-level": false, "drain-time-s": false} {
		if f := cmd.Flags().Lookup(name); f == nil || f.Hidden != hidden {
			t.Errorf("--%s: hidden is not %t", name, hidden)
		}
	}
	if help := cmd.UsageString(); strings.Contains(help, "service-cluster") || !strings.Contains(help, "--drain-time-s SECONDS") {
		t.Errorf("the help is\n%s\nwant --drain-time-s SECONDS, and no flag of a launcher", help)
	}
}

func TestFlagsOverrideFile(t *testing.T) {
	file := func() *config.Snapshot {
		return &config.Snapshot{Server: config.Server{MaxProcs: 1, GracefulTimeout: time.Minute, Log: config.Log{Level: config.LevelInfo}}}
	}
	for name, test := range map[string]struct {
		flags startFlags
		want  config.Server
	}{
		"none":          {startFlags{drainSeconds: -1}, file().Server},
		"all":           {startFlags{drainSeconds: 5, concurrency: 3, logLevel: "debug"}, config.Server{MaxProcs: 3, GracefulTimeout: 5 * time.Second, Log: config.Log{Level: config.LevelDebug}}},
		"no drain time": {startFlags{drainSeconds: 0}, config.Server{MaxProcs: 1, Log: config.Log{Level: config.LevelInfo}}},
	} {
		c := file()
		test.flags.override(c)
		if c.Server != test.want {
			t.Errorf("%s: %+v, want %+v", name, c.Server, test.want)
		}
	}
}

func TestCheckReportsAllErrors(t *testing.T) {
	invalid := filepath.Join(t.TempDir(), "bad.json")
	text := `{
  "servers": [{
    "listenrs": [],
    "graceful_timeout": "soon"
  }]
}`
	if err := os.WriteFile(invalid, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		args   []string
		status int
		stdout string
		stderr []string
	}{
		{"valid file", []string{"check", "-c", "../../configs/quickstart.json"}, 0, "../../configs/quickstart.json: ok: 3 listeners, 3 route tables, 2 clusters\n", nil},
		{"invalid file", []string{"check", "-c", invalid}, 1, "", []string{invalid + ":3:5: ", "listeners", invalid + ":4:25: ", "graceful_timeout"}},
		{"missing file", []string{"check", "-c", "missing.json"}, 1, "", []string{"missing.json", "no such file"}},
		{"no argument", []string{"check"}, 1, "", []string{"the file is missing", "weft check FILE"}},
		{"two arguments", []string{"check", "-c", invalid, "more"}, 1, "", []string{"more"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, stdout, stderr := runWeft(t, test.args...)
			if status != test.status || stdout != test.stdout {
				t.Errorf("status %d, %q; want %d, %q", status, stdout, test.status, test.stdout)
			}
			for _, want := range test.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not contain %q:\n%s", want, stderr)
				}
			}
		})
	}
	if got := runCommand(t.Context(), []string{"check", "-c", invalid}); got != 1 {
		t.Errorf("the exit status for an invalid file is %d, want 1", got)
	}
	if got := runCommand(t.Context(), []string{"version"}); got != 0 {
		t.Errorf("the exit status of version is %d, want 0", got)
	}
}

func TestVersion(t *testing.T) {
	status, stdout, _ := runWeft(t, "version")
	if fields := strings.Fields(stdout); status != 0 || len(fields) != 5 || fields[0] != "weft" || fields[1] != version || !strings.HasPrefix(fields[3], "go1.") {
		t.Errorf("status %d, %q; want 0, and five fields from \"weft %s\"", status, stdout, version)
	}
}

// TestRejectedReloadKeepsConfiguration verifies that a rejected reload leaves the previous
// configuration active. The process does not run.
func TestRejectedReloadKeepsConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const valid = `{"servers": [{"default_log_path": "stderr", "default_log_level": "OFF",
		"listeners": [{"name": "front", "address": "127.0.0.1:0",
			"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"],
			"routers": [{"name": "%s", "direct_response": {"status": 200}}]}]}]}]}`
	write(fmt.Sprintf(valid, "first"))
	flags := startFlags{source: source{path: path}, drainSeconds: -1}
	file, problems := flags.open()
	if file == nil {
		t.Fatal(problems)
	}
	p, err := newProcess(flags, file)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	if got := p.adminState(); got != inspect.Starting {
		t.Errorf("before: %s, want starting", got)
	}
	if err := p.start(context.Background(), file); err != nil {
		t.Fatal(err)
	}
	route := func() string {
		tables := p.server.DescribeRoutes("table")
		if len(tables) != 1 {
			t.Fatal("the table is missing")
		}
		return tables[0].VirtualHosts[0].Routes[0].Name
	}
	if got := p.adminState(); got != inspect.Ready || route() != "first" {
		t.Errorf("state %s with the route %s; want ready, first", got, route())
	}

	write(`{"servers": [{"listeners": [{"name": "front"}]}]}`)
	p.reload(context.Background())
	if c := p.adminConfig(); c.Rejected == nil || len(c.Rejected.Reasons) == 0 || !strings.Contains(c.Rejected.Reasons[0], "config.json:1:") || route() != "first" {
		t.Errorf("after an invalid file: rejected %+v, the route %s; want a reason at config.json:1, first", c.Rejected, route())
	}
	if hasXDS {
		write(`{"static_resources": {"clusters": [{"name": "shop"}]}}`)
		p.reload(context.Background())
		if c := p.adminConfig(); c.Rejected == nil || len(p.server.Running().Listeners) != 1 {
			t.Errorf("after an Envoy file, which requires a restart: rejected %+v, %d listeners; want a rejection, 1", c.Rejected, len(p.server.Running().Listeners))
		}
	}
	write(fmt.Sprintf(valid, "second"))
	p.reload(context.Background())
	if c := p.adminConfig(); c.Rejected != nil || route() != "second" {
		t.Errorf("after a valid file: rejected %+v, the route %s; want nil, second", c.Rejected, route())
	}
	if len(p.server.DescribeRoutes("other")) != 0 {
		t.Error("DescribeRoutes returned a table that does not exist")
	}
	if tables := p.server.DescribeRoutes(""); len(tables) != 1 {
		t.Errorf("DescribeRoutes without a name returned %v, want one table", tables)
	}
}

func TestSetLogLevel(t *testing.T) {
	p := &process{level: new(slog.LevelVar), log: slog.New(slog.DiscardHandler)}
	for _, name := range []string{"debug", "WARN", "Off"} {
		if err := p.setLevel(name); err != nil || !strings.EqualFold(levelName(p.level.Level()), name) {
			t.Errorf("setLevel(%q) = %v, the level is %s; want nil, %s", name, err, levelName(p.level.Level()), name)
		}
	}
	if err := p.setLevel("loud"); err == nil || !strings.Contains(err.Error(), "TRACE") {
		t.Errorf("setLevel(%q) = %v, want an error with the valid levels", "loud", err)
	}
}

func TestFileArgumentSuggestsFlag(t *testing.T) {
	want := `unexpected argument "a.json": specify the file with -c a.json`
	if err := rejectArgs(nil, []string{"a.json"}); err == nil || err.Error() != want {
		t.Errorf("rejectArgs = %v, want %s", err, want)
	}
	if err := rejectArgs(nil, nil); err != nil {
		t.Errorf("rejectArgs without arguments = %v, want nil", err)
	}
}
