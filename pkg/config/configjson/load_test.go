package configjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// exampleCapabilities returns the features that the examples need. The filters accept any settings;
// the packages of the filters check them.
func exampleCapabilities() Capabilities {
	caps := testCapabilities()
	caps.Protocols = append(caps.Protocols, config.HTTP2)
	caps.StreamFilters = nil
	for _, name := range []string{
		"adaptive_concurrency", "compressor", "cors", "csrf", "decompressor", "dubbo_stream", "ext_authz", "fault", "flowControlFilter", "gzip", "header_mutation", "header_to_metadata", "istio_stats", "peer_metadata",
		"healthcheck", "ip_access", "jwt_authn", "local_ratelimit", "mirror", "payload_limit", "rbac",
	} {
		caps.StreamFilters = append(caps.StreamFilters, filter.StreamFilterFactory{Name: name, Config: func() any { return &map[string]any{} }})
	}
	return caps
}

// examples returns the paths of the example files in configs.
func examples(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{"*.json", "*.yaml"} {
		paths, err := filepath.Glob(filepath.Join("../../../configs", pattern))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, paths...)
	}
	if len(list) < 5 {
		t.Fatalf("found the examples %v, want at least 5", list)
	}
	return list
}

func TestExamplesLoadWithoutWarnings(t *testing.T) {
	o := exampleOptions(t)
	for _, path := range examples(t) {
		s, diags := Load(path, exampleCapabilities(), o)
		if s == nil || len(diags) > 0 {
			t.Errorf("Load(%s) = %v, want a snapshot without diagnostics; reports\n%v", path, s, diags)
		}
	}
}

func TestExamplesUseLoopbackOnly(t *testing.T) {
	o := exampleOptions(t)
	for _, path := range examples(t) {
		s, _ := Load(path, exampleCapabilities(), o)
		if s == nil {
			continue // the previous test reports it
		}
		for _, l := range s.Listeners {
			if l.Bind && !strings.HasPrefix(l.Address, "127.0.0.1:") {
				t.Errorf("%s listens on %s, want 127.0.0.1", path, l.Address)
			}
		}
	}
}

// TestJSONAndYAMLAreEquivalent reads every example in the other format: Redact writes JSON, and
// JSON is valid YAML.
func TestJSONAndYAMLAreEquivalent(t *testing.T) {
	o := exampleOptions(t)
	for _, path := range examples(t) {
		want, _ := Load(path, exampleCapabilities(), o)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var r document.Report
		redacted := document.Redact(document.Parse(path, data, document.Options{}, &r))
		for _, name := range []string{"as.json", "as.yaml"} {
			got, diags := Parse(name, redacted, exampleCapabilities(), o)
			if got == nil {
				t.Errorf("%s as %s is rejected: %v, want a snapshot", path, name, diags)
				continue
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("%s %s differs (-want +got):\n%s", path, name, diff)
			}
		}
	}
}

func TestLegacyFormIsEquivalent(t *testing.T) {
	legacy, diags := Load("../../../configs/older_form.json", exampleCapabilities(), Options{})
	if legacy == nil {
		t.Fatal(diags)
	}
	current, diags := Parse("today.json", []byte(`{
		"servers": [{
			"default_log_path": "stdout",
			"listeners": [{"name": "client", "address": "127.0.0.1:2345", "filter_chains": [{"filters": [{"type": "proxy", "config": {
				"downstream_protocol": "Http1", "upstream_protocol": "Http1", "router_config_name": "client_router"}}]}]}],
			"routers": [{"router_config_name": "client_router", "virtual_hosts": [{"name": "client_host", "domains": ["*"], "routers": [
				{"match": {"prefix": "/", "headers": [{"name": "service", "value": ".*", "regex": true}]}, "route": {"cluster_name": "client_cluster"}}]}]}]
		}],
		"cluster_manager": {"clusters": [{"name": "client_cluster", "lb_type": "LB_RANDOM", "max_request_per_conn": 1024, "hosts": [{"address": "127.0.0.1:2346"}]}]}
	}`), exampleCapabilities(), Options{})
	if current == nil {
		t.Fatal(diags)
	}
	if diff := cmp.Diff(current, legacy); diff != "" {
		t.Errorf("the legacy form differs (-current +legacy):\n%s", diff)
	}
}

func TestAbsentKeysGetDefaults(t *testing.T) {
	s, diags := Parse("config.json", []byte(`{
		"servers": [{
			"listeners": [{"address": "127.0.0.1:1", "filter_chains": [{"filters": [{"type": "proxy", "config": {
				"downstream_protocol": "Http1", "router_config_name": "t"}}]}]},
				{"address": "/run/db.sock", "filter_chains": [{"filters": [{"type": "tcp_proxy", "config": {"cluster": "c"}}]}]}],
			"routers": [{"router_config_name": "t", "virtual_hosts": [{"domains": ["*"], "routers": [{"route": {"cluster_name": "c"}}]}]}]
		}],
		"cluster_manager": {"clusters": [{"name": "c", "hosts": [{"address": "127.0.0.1:2"}]}]},
		"admin": {"address": {"socket_address": {"port_value": 3}}},
		"metrics": {"sinks": [{"type": "prometheus", "config": {"port": 4}}]}
	}`), testCapabilities(), Options{})
	if s == nil {
		t.Fatal(diags)
	}
	want := &config.Snapshot{
		Server: config.Server{Log: config.Log{Path: "stderr", Level: config.LevelInfo}, GracefulTimeout: 30 * time.Second},
		Listeners: []*config.Listener{
			{
				Name: "127.0.0.1:1", Network: "tcp", Address: "127.0.0.1:1", Bind: true, IdleTimeout: 90 * time.Second,
				FilterChains: []*config.FilterChain{{Proxy: &config.Proxy{
					Downstream: []config.Protocol{config.HTTP1}, RouteTable: "t", HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options(),
					RPC: config.DefaultRPCOptions(), DetectTimeout: 10 * time.Second,
				}}},
			},
			{
				Name: "/run/db.sock", Network: "unix", Address: "/run/db.sock", Bind: true, IdleTimeout: 90 * time.Second,
				FilterChains: []*config.FilterChain{{TCPProxy: &config.TCPProxy{Cluster: "c", IdleTimeout: 10 * time.Minute, MaxConnectAttempts: 1}}},
			},
		},
		Routes: []*config.RouteTable{{Name: "t", VirtualHosts: []*config.VirtualHost{{
			Name: "virtual_host_0", Domains: []string{"*"},
			Routes: []*config.Route{{Name: "virtual_host_0/0", Forward: &config.Forward{Cluster: "c", Timeout: time.Minute}}},
		}}}},
		Clusters: []*config.Cluster{{
			Name: "c", Type: config.ClusterStatic, LBPolicy: config.RoundRobin, ChoiceCount: 2, ActiveRequestBias: 1, MaxRingSize: 8 << 20,
			SlowStart: config.SlowStart{Aggression: 1, MinWeightPercent: 10}, Failover: config.Failover{Overprovisioning: 1.4, PanicThreshold: 50},
			ConnectTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxRequestsPerConn: 1024,
			Pool:            config.Pool{Mode: config.Multiplex, Connections: 1, MaxFrameSize: 8 << 20, MaxConnecting: 64, MaxPendingBytes: 64 << 20},
			CircuitBreakers: config.DefaultCircuitBreakers(), HighCircuitBreakers: config.DefaultCircuitBreakers(),
			Heartbeat: config.Heartbeat{Interval: 15 * time.Second, Timeout: 90 * time.Second},
			Hosts:     []config.Host{{Address: "127.0.0.1:2", Weight: 1}},
			DNS:       config.DNS{RefreshRate: 5 * time.Second, Family: "AUTO"},
		}},
		Admin:   &config.Admin{Address: "127.0.0.1:3"},
		Metrics: config.Metrics{Prometheus: &config.Prometheus{Address: "0.0.0.0:4", Path: "/metrics"}},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("Parse differs (-want +got):\n%s", diff)
	}
}

func TestProxyProtocols(t *testing.T) {
	for _, test := range []struct {
		name, config string
		want         func(p *config.Proxy)
	}{
		{"list in order", `"downstream_protocol": "dubbo, http1"`, func(p *config.Proxy) {
			p.Downstream = []config.Protocol{config.Dubbo, config.HTTP1}
		}},
		{"Auto downstream and upstream", `"downstream_protocol": "AUTO", "upstream_protocol": "auto"`, func(p *config.Proxy) {
			p.Downstream = []config.Protocol{config.Auto}
		}},
		{"Auto with an upstream protocol", `"downstream_protocol": "Auto", "upstream_protocol": "dubbo"`, func(p *config.Proxy) {
			p.Downstream, p.Upstream = []config.Protocol{config.Auto}, config.Dubbo
		}},
		{"X with sub_protocol", `"downstream_protocol": "X", "upstream_protocol": "X", "extend_config": {"sub_protocol": "dubbo"}`, func(p *config.Proxy) {
			p.Downstream, p.Upstream = []config.Protocol{config.Dubbo}, config.Dubbo
		}},
		{"X with a list", `"downstream_protocol": "X", "upstream_protocol": "X", "extend_config": {"sub_protocol": "dubbo,Http1"}`, func(p *config.Proxy) {
			p.Downstream = []config.Protocol{config.Dubbo, config.HTTP1}
		}},
		{"X with Auto", `"downstream_protocol": "X", "extend_config": {"sub_protocol": "Auto"}`, func(p *config.Proxy) {
			p.Downstream = []config.Protocol{config.Auto}
		}},
		{"limits", `"downstream_protocol": "dubbo", "extend_config": {"max_request_body_size": "1MB", "max_in_flight": 7,
			"frame_timeout": "2s", "write_timeout": "3s", "detect_timeout": "4s"}`, func(p *config.Proxy) {
			p.Downstream = []config.Protocol{config.Dubbo}
			p.HTTP1.MaxRequestBodySize, p.RPC.MaxFrameSize = 1<<20, 1<<20
			p.RPC.MaxInFlight, p.RPC.FrameTimeout = 7, 2*time.Second
			p.HTTP1.WriteTimeout, p.RPC.WriteTimeout = 3*time.Second, 3*time.Second
			p.DetectTimeout = 4 * time.Second
		}},
		{"no size limit", `"downstream_protocol": "dubbo", "extend_config": {"max_request_body_size": 0}`, func(p *config.Proxy) {
			p.Downstream = []config.Protocol{config.Dubbo}
			p.RPC.MaxFrameSize = 0
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, diags := Parse("config.json", []byte(`{
				"servers": [{
					"listeners": [{"name": "in", "address": "127.0.0.1:1", "filter_chains": [{"filters": [{"type": "proxy", "config": {
						`+test.config+`, "router_config_name": "t"}}]}]}],
					"routers": [{"router_config_name": "t", "virtual_hosts": []}]
				}]
			}`), testCapabilities(), Options{})
			if s == nil || len(diags) > 0 {
				t.Fatal(diags)
			}
			want := &config.Proxy{
				RouteTable: "t", HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options(), RPC: config.DefaultRPCOptions(), DetectTimeout: 10 * time.Second,
			}
			test.want(want)
			if diff := cmp.Diff(want, s.Listeners[0].FilterChains[0].Proxy); diff != "" {
				t.Errorf("Proxy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilterSettings(t *testing.T) {
	s, diags := Parse("config.json", []byte(`{
		"servers": [{
			"listeners": [{"name": "in", "address": "127.0.0.1:1", "filter_chains": [{"filters": [{"type": "proxy", "config": {
				"downstream_protocol": "Http1", "router_config_name": "t"}}]}]}],
			"routers": [{"router_config_name": "t", "virtual_hosts": [{"domains": ["*"], "routers": [
				{"direct_response": {}, "per_filter_config": {"fault": {"percentage": 5}}}]}]}]
		}],
		"stream_filters": [{"name": "in", "stream_filters": [{"type": "early"}, {"type": "fault", "config": {"delay": "2s"}}]}]
	}`), testCapabilities(), Options{})
	if s == nil || len(diags) > 0 {
		t.Fatal(diags)
	}
	want := []config.Filter{
		{Name: "early", Config: &earlySettings{Tag: "x-early"}},
		{Name: "fault", Config: &faultSettings{Status: 503, Percentage: 100, Delay: 2 * time.Second}},
	}
	if diff := cmp.Diff(want, s.Listeners[0].FilterChains[0].Proxy.StreamFilters); diff != "" {
		t.Errorf("filters of the chain named like the listener (-want +got):\n%s", diff)
	}
	byRoute := map[string]any{"fault": &faultSettings{Status: 503, Percentage: 5}}
	if diff := cmp.Diff(byRoute, s.Routes[0].VirtualHosts[0].Routes[0].Filters); diff != "" {
		t.Errorf("per_filter_config (-want +got):\n%s", diff)
	}
}

func TestMissingFileIsDiagnosed(t *testing.T) {
	s, diags := Load("testdata/nowhere.json", testCapabilities(), Options{})
	want := "testdata/nowhere.json: cannot be read: no such file or directory"
	if s != nil || diags.Error() != want {
		t.Errorf("Load = %v, %q, want nil, %q", s, diags.Error(), want)
	}
}

// failingFiles implements Files whose calls fail.
type failingFiles struct{ err error }

func (f failingFiles) ReadFile(string) ([]byte, error)       { return nil, f.err }
func (f failingFiles) ReadDir(string) ([]fs.DirEntry, error) { return nil, f.err }

func TestReadErrorsAreDiagnosed(t *testing.T) {
	_, diags := Load("a.json", testCapabilities(), Options{Files: failingFiles{errors.New("input/output error")}})
	if got, want := diags.Error(), "a.json: cannot be read: input/output error"; got != want {
		t.Errorf("Load reports %q, want %q", got, want)
	}
}

func TestDirectoryRelativeToFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "clusters.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"config.json":         `{"servers": [{}], "cluster_manager": {"clusters_configs": "clusters.d"}}`,
		"clusters.d/one.json": `{"name": "one", "hosts": []}`,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, diags := Load(filepath.Join(dir, "config.json"), testCapabilities(), Options{})
	if s == nil || len(s.Clusters) != 1 || s.Clusters[0].Name != "one" {
		t.Errorf("Load = %v, %v, want only the cluster one", s, diags)
	}
}

func TestRedactedHasNoSecrets(t *testing.T) {
	files := memoryFiles(map[string]string{
		"config.json": `{"servers": [{"mosn_server_name": "${NAME:-none}", "listeners": [{"name": "l", "address": "127.0.0.1:1",
			"filter_chains": [{"tls_context": {"status": false, "private_key": "swordfish"}, "filters": [{"type": "proxy",
				"config": {"downstream_protocol": "Http1", "router_config_name": "t"}}]}],
			"stream_filters": [{"type": "fault", "config": {"secret": "swordfish"}}]}],
			"routers": [{"router_config_name": "t", "router_configs": "hosts"}]}]}`,
		"hosts/a.json": `{"name": "a", "domains": ["*"], "routers": [{"direct_response": {}, "per_filter_config": {"fault": {"secret": "swordfish"}}}]}`,
	})
	env := func(string) (string, bool) { return "sesame", true }
	f, diags := Open("config.json", testCapabilities(), Options{Files: files, Env: env})
	if f == nil {
		t.Fatal(diags)
	}
	if f.Snapshot.Server.Name != "sesame" {
		t.Errorf("Server.Name = %q, want sesame", f.Snapshot.Server.Name)
	}
	printed := f.Redacted()
	var object map[string]any
	if err := json.Unmarshal(printed, &object); err != nil {
		t.Fatalf("Redacted is not JSON: %v\n%s", err, printed)
	}
	if len(object) != 2 || object["config.json"] == nil || object[filepath.Join("hosts", "a.json")] == nil {
		t.Errorf("Redacted, want config.json and hosts/a.json, is:\n%s", printed)
	}
	if n := bytes.Count(printed, []byte(document.Redacted)); n != 3 {
		t.Errorf("%d values are redacted, want 3:\n%s", n, printed)
	}
	for _, secret := range []string{"swordfish", "sesame"} {
		if bytes.Contains(printed, []byte(secret)) {
			t.Errorf("Redacted contains %q, want no secrets:\n%s", secret, printed)
		}
	}
}

func TestSchemaValidatesExamples(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	caps := testCapabilities()
	caps.Protocols = append(caps.Protocols, config.HTTP2)
	for _, name := range []string{ // filters in the examples
		"rbac", "peer_metadata", "local_ratelimit", "istio_stats", "ip_access", "healthcheck", "flowControlFilter", "adaptive_concurrency",
		"jwt_authn", "header_to_metadata", "header_mutation", "gzip", "ext_authz", "dubbo_stream", "decompressor", "csrf", "cors", "compressor",
	} {
		caps.StreamFilters = append(caps.StreamFilters, filter.StreamFilterFactory{Name: name, Config: func() any { return &map[string]any{} }})
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(caps.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("weft.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("weft.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, data []byte) error {
		var r document.Report
		n := document.Parse(name, data, document.Options{Env: func(string) (string, bool) { return "", true }}, &r)
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(document.Redact(n)))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	for _, path := range examples(t) {
		switch filepath.Base(path) {
		case "filters.json", "mirror.json", "older_form.json":
			continue // contains settings of filters, or a key in other case
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(path, data); err != nil {
			t.Errorf("the schema rejects %s: %v", path, err)
		}
	}
	if err := check("full.json", []byte(fullConfig)); err != nil {
		t.Errorf("the schema rejects fullConfig: %v", err)
	}
	for name, text := range map[string]string{
		"unknown key":                  `{"servers": [{}], "server": []}`,
		"missing key":                  `{}`,
		"wrong type":                   `{"servers": [{"graceful_timeout": 5}]}`,
		"wrong enum value":             `{"servers": [{"default_log_level": "LOUD"}]}`,
		"wrong duration":               `{"servers": [{"graceful_timeout": "soon"}]}`,
		"out of range":                 `{"servers": [{"processor": -1}]}`,
		"port out of range":            `{"servers": [{}], "admin": {"address": {"socket_address": {"port_value": 70000}}}}`,
		"unknown setting of a filter":  `{"servers": [{"listeners": [{"address": "a", "filter_chains": [], "stream_filters": [{"type": "fault", "config": {"statu": 1}}]}]}]}`,
		"unknown setting of the proxy": `{"servers": [{"listeners": [{"address": "a", "filter_chains": [{"filters": [{"type": "proxy", "config": {"router": 1}}]}]}]}]}`,
	} {
		if check("a.json", []byte(text)) == nil {
			t.Errorf("%s: the schema accepts %s, want a rejection", name, text)
		}
	}
	if !json.Valid(Schema()) {
		t.Error("Schema() is not JSON")
	}
}

// TestTagExamplesAreValid verifies that the examples in the tags are valid and that every
// description is a sentence.
func TestTagExamplesAreValid(t *testing.T) {
	for _, section := range document.Sections("", rootJSON{}, variants(testCapabilities())) {
		for i := range section.Keys {
			k := &section.Keys[i]
			if k.Doc == "" || !strings.HasSuffix(strings.TrimSuffix(k.Doc, "}"), ".") && !strings.HasSuffix(k.Doc, ".") {
				t.Errorf("%s.%s: doc = %q, want a sentence", section.Path, k.Name, k.Doc)
			}
			if k.Example == "" {
				continue
			}
			target := reflect.New(section.Type)
			var r document.Report
			n := document.Parse("tag.json", []byte(`{"`+k.Name+`": `+k.Example+`}`), document.Options{}, &r)
			document.NewDecoder(&r).Decode(n, target.Interface())
			for _, d := range r.Diagnostics().Errors() {
				if strings.HasPrefix(d.Path, k.Name) && !strings.Contains(d.Problem, "not supported yet") {
					t.Errorf("%s: the example of %q is rejected, want a valid one: %v", section.Path, k.Name, d)
				}
			}
		}
	}
}

func TestBigFileMemory(t *testing.T) {
	const clusters = 2000 // a fifth of BenchmarkBigFile's
	data := bigFile(clusters)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := parseConfig("big.json", data)
	runtime.ReadMemStats(&after)
	if s == nil {
		t.Fatal(err)
	}
	const maxBytes = 32 << 20 // including garbage
	if got := after.TotalAlloc - before.TotalAlloc; got > maxBytes {
		t.Errorf("%d clusters and %d routes allocate %d bytes, want at most %d", clusters, 5*clusters, got, maxBytes)
	}
}

func memoryFiles(files map[string]string) Files {
	m := memFS{}
	m.fs = map[string]*mapFile{}
	for name, text := range files {
		m.fs[name] = &mapFile{Data: []byte(text)}
	}
	return m
}

// FuzzParse verifies that any input gives either a snapshot or an error.
func FuzzParse(f *testing.F) {
	f.Add("a.json", []byte(fullConfig))
	f.Add("a.yaml", []byte("servers:\n- listeners: [{address: \"127.0.0.1:1\", filter_chains: []}]\n"))
	f.Add("a.json", []byte(`{"servers": [{"routers": [{"router_config_name": "a", "virtual_hosts": [{"domains": ["a:*"], "routers": [{"match": {"regex": "("}}]}]}]}]}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		s, diags := Parse("fuzz"+name, data, testCapabilities(), Options{
			Env: func(string) (string, bool) { return "x", true }, Files: failingFiles{fs.ErrNotExist},
		})
		if (s == nil) != diags.Failed() {
			t.Fatalf("Parse = %v, reports %v; want a snapshot or an error", s, diags)
		}
		for _, d := range diags {
			if d.Text() == "" || d.File == "" {
				t.Fatalf("diagnostic = %#v, want a text and a file", d)
			}
		}
	})
}
