package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
)

// packed returns m as an Any.
func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tcpListener returns a serialized listener with a tcp_proxy and the fields in text.
func tcpListener(t *testing.T, text string, filters ...*listenerv3.ListenerFilter) []byte {
	t.Helper()
	m := &listenerv3.Listener{}
	if err := prototext.Unmarshal([]byte(`name: "l" address: {socket_address: {address: "127.0.0.1", port_value: 15006}} `+text), m); err != nil {
		t.Fatal(err)
	}
	m.ListenerFilters = filters
	m.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
		Name:       "envoy.filters.network.tcp_proxy",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, &tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "c"}})},
	}}}}
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// listenerFilter returns a listener filter; disabled is its filter_disabled as text, or "".
func listenerFilter(t *testing.T, m proto.Message, disabled string) *listenerv3.ListenerFilter {
	t.Helper()
	f := &listenerv3.ListenerFilter{Name: "f", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: packed(t, m)}}
	if disabled != "" {
		f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{}
		if err := prototext.Unmarshal([]byte(disabled), f.FilterDisabled); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestOriginalDestination(t *testing.T) {
	original := listenerFilter(t, &originaldstv3.OriginalDst{}, "")
	for _, test := range []struct {
		name, text     string
		filters        []*listenerv3.ListenerFilter
		mode           config.OriginalDstMode
		keepRedirected bool
	}{
		{"default", "", nil, "", false},
		{"original_dst filter", "", []*listenerv3.ListenerFilter{original}, config.OriginalDstRedirect, true},
		{"use_original_dst", "use_original_dst: {value: true}", nil, config.OriginalDstRedirect, false},
		{"filter and use_original_dst", "use_original_dst: {value: true}", []*listenerv3.ListenerFilter{original}, config.OriginalDstRedirect, false},
		{"TPROXY", "transparent: {value: true}", []*listenerv3.ListenerFilter{original}, config.OriginalDstTProxy, true},
		{"use_original_dst false", "use_original_dst: {value: false}", []*listenerv3.ListenerFilter{original}, config.OriginalDstRedirect, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := ReadListener(tcpListener(t, test.text, test.filters...), testCapabilities())
			if err != nil {
				t.Fatal(err)
			}
			if l.Config.OriginalDst != test.mode || l.Config.KeepRedirected != test.keepRedirected {
				t.Errorf("OriginalDst = %q, KeepRedirected = %t, want %q, %t", l.Config.OriginalDst, l.Config.KeepRedirected, test.mode, test.keepRedirected)
			}
		})
	}
}

func TestListenerFilters(t *testing.T) {
	tls, http := &tlsinspectorv3.TlsInspector{}, &httpinspectorv3.HttpInspector{}
	for _, test := range []struct {
		name, text string
		filters    []*listenerv3.ListenerFilter
		want       config.Inspection
		seconds    float64
	}{
		{"default", "", nil, config.Inspection{}, 15},
		{"timeout", "listener_filters_timeout: {seconds: 2}", nil, config.Inspection{}, 2},
		{"no timeout", "listener_filters_timeout: {} continue_on_listener_filters_timeout: true", nil, config.Inspection{NoTimeout: true, ContinueOnTimeout: true}, 0},
		{"inspectors on every port", "", []*listenerv3.ListenerFilter{listenerFilter(t, tls, ""), listenerFilter(t, http, "")}, config.Inspection{}, 15},
		{"excluded ports", "", []*listenerv3.ListenerFilter{
			listenerFilter(t, tls, "destination_port_range: {start: 15006, end: 15007}"),
			listenerFilter(t, http, "or_match: {rules: {destination_port_range: {start: 80, end: 90}} rules: {destination_port_range: {start: 65535, end: 65536}}}"),
		}, config.Inspection{SkipTLSPorts: []config.PortRange{{First: 15006, Last: 15006}}, SkipHTTPPorts: []config.PortRange{{First: 80, Last: 89}, {First: 65535, Last: 65535}}}, 15},
		{"all ports excluded", "", []*listenerv3.ListenerFilter{listenerFilter(t, http, "any_match: true")}, config.Inspection{SkipHTTPPorts: []config.PortRange{{Last: 65535}}}, 15},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := ReadListener(tcpListener(t, test.text, test.filters...), testCapabilities())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, l.Config.Inspection); diff != "" || l.Config.InspectTimeout.Seconds() != test.seconds {
				t.Errorf("timeout %v; inspection, - want + got:\n%s", l.Config.InspectTimeout, diff)
			}
		})
	}
}

func TestRejectedListenerFilters(t *testing.T) {
	tls := &tlsinspectorv3.TlsInspector{}
	for _, test := range []struct {
		name   string
		filter *listenerv3.ListenerFilter
		want   string
	}{
		{"original_dst filter with filter_disabled", listenerFilter(t, &originaldstv3.OriginalDst{}, "any_match: true"), "listener_filters[0].filter_disabled: is supported only for"},
		{"empty port range", listenerFilter(t, tls, "destination_port_range: {start: 10, end: 10}"), "destination_port_range: the range from 10"},
		{"port range too high", listenerFilter(t, tls, "destination_port_range: {start: 10, end: 65537}"), "destination_port_range: the range from 10"},
		{"port range too low", listenerFilter(t, tls, "destination_port_range: {start: -1, end: 2}"), "destination_port_range: the range from -1"},
		{"not_match", listenerFilter(t, tls, "or_match: {rules: {not_match: {any_match: true}}}"), "or_match.rules[0].not_match: "},
		{"not a listener filter", listenerFilter(t, &tcpv3.TcpProxy{}, ""), "is not supported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := ReadListener(tcpListener(t, "", test.filter), testCapabilities()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ReadListener: error %v, want one with %q", err, test.want)
			}
		})
	}
}

// FuzzReadListener verifies that every input is rejected or becomes a listener with a name.
func FuzzReadListener(f *testing.F) {
	for _, body := range capturedResources(f, "02-LDS.pb") {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := ReadListener(body, testCapabilities())
		if err == nil && (l.Config == nil || l.Config.Name == "" || len(l.TLS) != len(l.Config.FilterChains)+len(defaultChains(l.Config))) {
			t.Errorf("accepted listener %+v, want a name and one TLS context per chain", l)
		}
	})
}

func defaultChains(l *config.Listener) []*config.FilterChain {
	if l.DefaultChain == nil {
		return nil
	}
	return []*config.FilterChain{l.DefaultChain}
}

// FuzzReadRoutes verifies that every input is rejected or becomes a table.
func FuzzReadRoutes(f *testing.F) {
	for _, body := range capturedResources(f, "04-RDS.pb") {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := ReadRoutes(body, testCapabilities()); err == nil && r.Config == nil {
			t.Error("ReadRoutes returned neither a table nor an error")
		}
	})
}

// TestStdoutAccessLogs verifies access logs to stdout and stderr.
func TestStdoutAccessLogs(t *testing.T) {
	format := &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
		TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "%REQ(:METHOD)%\n"}},
	}}
	m := &listenerv3.Listener{}
	if err := proto.Unmarshal(tcpListener(t, ""), m); err != nil {
		t.Fatal(err)
	}
	for _, accessLog := range []proto.Message{
		&streamv3.StdoutAccessLog{}, &streamv3.StderrAccessLog{AccessLogFormat: &streamv3.StderrAccessLog_LogFormat{LogFormat: format}},
	} {
		m.AccessLog = append(m.AccessLog, &accesslogv3.AccessLog{Name: "log", ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: packed(t, accessLog)}})
	}
	l, err := ReadListener(marshaled(t, m), testCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	want := []config.AccessLog{{Path: "stdout"}, {Path: "stderr", Format: "%request_method%"}}
	if diff := cmp.Diff(want, l.Config.AccessLogs); diff != "" || len(l.Ignored) > 0 {
		t.Errorf("access logs (-want +got):\n%s\nignored: %v", diff, l.Ignored)
	}
}

// TestRouteTimeoutPerTable verifies that each route table has the initial_fetch_timeout of its own
// source. If several sources name a table, the longest timeout applies.
func TestRouteTimeoutPerTable(t *testing.T) {
	chain := func(i int, table, timeout string) *listenerv3.FilterChain {
		m := &hcmv3.HttpConnectionManager{}
		text := `stat_prefix: "s" http_filters: {name: "router" typed_config: {[type.googleapis.com/envoy.extensions.filters.http.router.v3.Router] {}}}
			rds: {route_config_name: "` + table + `" config_source: {ads: {} initial_fetch_timeout: {` + timeout + `}}}`
		if err := prototext.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		return &listenerv3.FilterChain{
			FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: []string{fmt.Sprintf("%d.test", i)}},
			Filters:          []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, m)}}},
		}
	}
	m := &listenerv3.Listener{Name: "l", Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/l"}}}}
	for i, source := range [][2]string{{"slow", "seconds: 60"}, {"endless", "seconds: 0"}, {"endless", "seconds: 5"}, {"both", "seconds: 2"}, {"both", "seconds: 3"}, {"quick", "seconds: 1"}} {
		m.FilterChains = append(m.FilterChains, chain(i, source[0], source[1]))
	}
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ReadListener(body, testCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{"slow": time.Minute, "endless": 0, "both": 3 * time.Second, "quick": time.Second}
	if !maps.Equal(l.RouteTimeouts, want) {
		t.Errorf("the timeouts are %v, want %v", l.RouteTimeouts, want)
	}
}

// TestReusePort verifies that enable_reuse_port overrides reuse_port, the field of older control
// planes.
func TestReusePort(t *testing.T) {
	for text, want := range map[string]bool{
		``:                                 false,
		`enable_reuse_port: {value: true}`: true,
		`reuse_port: true`:                 true,
		`enable_reuse_port: {value: false} reuse_port: true`: false,
	} {
		m := &listenerv3.Listener{}
		if err := prototext.Unmarshal([]byte(`name: "l" address: {pipe: {path: "/l"}} `+text), m); err != nil {
			t.Fatal(err)
		}
		l, _ := ReadListener(marshaled(t, m), testCapabilities())
		if l.Config.ReusePort != want || len(l.Ignored) != 0 {
			t.Errorf("%q: ReusePort = %v, ignored fields %q; want %v and none", text, l.Config.ReusePort, l.Ignored, want)
		}
	}
}

// TestRouteTableNameHasNoLineBreak verifies that a listener cannot refer to a table by a name of
// the form that inline and Dubbo tables have.
func TestRouteTableNameHasNoLineBreak(t *testing.T) {
	m := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: DubboTableName("a")}}}
	r := &report{capabilities: testCapabilities()}
	fieldReader{report: r}.readHTTP(m, &Listener{Config: &config.Listener{Name: "l"}})
	const want = `rds.route_config_name: "dubbo\na" contains a line break`
	if err := r.rejection(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("readHTTP: error %v, want one with %s", err, want)
	}
}

func TestRouteNamesAreUnique(t *testing.T) {
	v := &config.VirtualHost{Name: "v"}
	for _, name := range []string{"a", "a", "a#2", "a", "", "4"} {
		v.Routes = append(v.Routes, &config.Route{Name: name})
	}
	nameRoutes(v, nil, func(i int) string { return v.Routes[i].Name })
	var got []string
	for _, r := range v.Routes {
		got = append(got, r.Name)
	}
	if want := []string{"v/a", "v/a#2", "v/a#2#2", "v/a#3", "v/4", "v/4#2"}; !slices.Equal(got, want) {
		t.Errorf("route names %q, want %q", got, want)
	}
}
