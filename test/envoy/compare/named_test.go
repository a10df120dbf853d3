package compare

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// names returns the aspects of the differences of two views with the name of each difference.
func names(feature string, envoy, weft View) []string {
	list := []string{}
	for _, d := range NewResult(feature, &cases.Case{}, envoy, weft).Differences {
		list = append(list, d.Aspect+": "+d.Name)
	}
	return list
}

func TestNamedDifferences(t *testing.T) {
	field := func(name, value string) wire.Field { return wire.Field{Name: name, Value: value} }
	forwarded := field("x-envoy-upstream-service-time", "<ms>")
	for _, test := range []struct {
		name        string
		feature     string
		envoy, weft View
		want        []string
	}{
		{"a local reply with another text", "f",
			localReply(t, 503, "no healthy upstream"), localReply(t, 503, "no healthy host"), []string{"resp.body: "}},
		{"a local reply with another status", "f",
			localReply(t, 503, "x"), localReply(t, 502, "x"), []string{"resp.status: "}},
		{"a local reply instead of a response of the host", "f",
			localReply(t, 503, "x", forwarded), localReply(t, 503, "x"),
			[]string{"resp.headers.x-envoy-upstream-service-time: "}},
		{"kept after an early reply", "f",
			localReply(t, 403, "", field("connection", "close")), localReply(t, 403, ""),
			[]string{"resp.headers.connection: connection kept after an early reply"}},
		{"kept after a response", "f",
			View{"resp.status": {"200"}, "resp.headers.connection": {"close"}, "log.details": {"via_upstream"}},
			View{"resp.status": {"200"}, "log.details": {"via_upstream"}}, []string{"resp.headers.connection: "}},
		{"another TLS error", "f",
			View{"log.details": {"early{failure|TLS_error:|1:CERTIFICATE_VERIFY_FAILED}"}}, View{"log.details": {"early{failure|TLS_error:_unknown_CA}"}},
			[]string{"log.details: text of TLS errors"}},
		{"another error than that of TLS", "f",
			View{"log.details": {"early{failure|TLS_error:|1:CERTIFICATE_VERIFY_FAILED}"}}, View{"log.details": {"early{failure}"}}, []string{"log.details: "}},
		{"another server", "f", localReply(t, 200, "", field("server", "envoy")), localReply(t, 200, "", field("server", "weft")), []string{"resp.headers.server: "}},
		{"vary with CORS", "cors", localReply(t, 200, ""), localReply(t, 200, "", field("vary", "Origin")), []string{"resp.headers.vary: vary with CORS"}},
		{"a line for a redirect", "route.internal_redirect", View{"log.status": {"302", "200"}}, View{"log.status": {"200"}}, []string{"log.status: access log of internal redirects"}},
		{"another last line", "route.internal_redirect", View{"log.status": {"302", "200"}}, View{"log.status": {"302"}}, []string{"log.status: "}},
		{"two lines elsewhere", "f", View{"log.status": {"302", "200"}}, View{"log.status": {"200"}}, []string{"log.status: "}},
		{"a body of 304", "route.direct_response", View{"resp.status": {"304"}, "extra": {"hi"}}, View{"resp.status": {"304"}}, []string{"extra: bodies of 304"}},
		{"a path as the host", "f", View{"o0.headers.host": {"/a"}}, View{"o0.headers.host": {"a.test"}}, []string{"o0.headers.host: host_rewrite_path_regex"}},
		{"another host", "f", View{"o0.headers.host": {"b.test"}}, View{"o0.headers.host": {"a.test"}}, []string{"o0.headers.host: "}},
		{"vary without CORS", "f", localReply(t, 200, ""), localReply(t, 200, "", field("vary", "Origin")), []string{"resp.headers.vary: "}},
		{"another scheme", "f",
			exchange(t, &cases.Case{}, 200, "", nil, []wire.Field{field("x-forwarded-proto", "http")}),
			exchange(t, &cases.Case{}, 200, "", nil, []wire.Field{field("x-forwarded-proto", "https")}), []string{"o0.headers.x-forwarded-proto: "}},
		{"log line of a stream that was reset", "f", View{"resp.reset": {"2"}}, View{"resp.reset": {"2"}, "log.flags": {"DPE"}, "log.status": {"-"}},
			[]string{"log.flags: access log of malformed requests", "log.status: access log of malformed requests"}},
		{"log line of another reset", "f", View{"resp.reset": {"1"}}, View{"resp.reset": {"2"}, "log.flags": {"DPE"}},
			[]string{"log.flags: ", "resp.reset: "}},
		{"an ambiguous path", "rbac",
			View{"resp.status": {"200"}, "n_origin": {"1"}}, View{"resp.status": {"403"}, "resp.body": {"RBAC: access denied"}, "n_origin": {"0"}},
			[]string{"n_origin: ", "resp.body: ", "resp.status: "}}, // the case has an unambiguous path
		{"another challenge", "f",
			View{"resp.headers.www-authenticate": {`Bearer realm="http://a.test/", error="invalid_token"`}},
			View{"resp.headers.www-authenticate": {"Bearer"}}, []string{"resp.headers.www-authenticate: "}},
		{"via", "f", View{"resp.headers.via": {"1.1 up, me"}}, View{"resp.headers.via": {"1.1 up", "1.1 me"}}, []string{"resp.headers.via: protocol version in via"}},
		{"via of another proxy", "f", View{"resp.headers.via": {"1.1 up, me"}}, View{"resp.headers.via": {"1.1 other", "1.1 me"}}, []string{"resp.headers.via: "}},
		{"via without another proxy", "f", View{"resp.headers.via": {"me"}}, View{"resp.headers.via": {"1.1 me"}}, []string{"resp.headers.via: protocol version in via"}},
		{"TLS 1.3 to a host", "f", View{"o0.tls": {"sni=a alpn= v=TLS 1.2"}}, View{"o0.tls": {"sni=a alpn= v=TLS 1.3"}}, []string{"o0.tls: TLS 1.3 to hosts"}},
		{"another server name to a host", "f", View{"o0.tls": {"sni=a alpn= v=TLS 1.2"}}, View{"o0.tls": {"sni=b alpn= v=TLS 1.3"}}, []string{"o0.tls: "}},
		{"an alert without a client certificate", "f", View{"error": {"alert: unknown certificate"}}, View{"error": {"alert: bad certificate"}}, []string{"error: "}},
		{"trailers of HTTP/1.1", "f", View{}, View{"resp.trailers": {"x: 1"}}, []string{"resp.trailers: trailers over HTTP/1.1"}},
		{"a field te without gRPC", "f", View{}, View{"o0.headers.te": {"trailers"}}, []string{"o0.headers.te: "}},
		{"a field te of gRPC", "f", View{"o0.headers.content-type": {"application/grpc"}},
			View{"o0.headers.content-type": {"application/grpc"}, "o0.headers.te": {"trailers"}}, []string{"o0.headers.te: trailers over HTTP/1.1"}},
		{"no via", "f", View{"resp.headers.via": {"me"}}, View{}, []string{"resp.headers.via: "}},
		{"a client on loopback", "f",
			View{"o0.headers.x-forwarded-for": {"1.2.3.4,192.0.2.2"}}, View{"o0.headers.x-forwarded-for": {"1.2.3.4, 127.0.0.1"}},
			[]string{"o0.headers.x-forwarded-for: client address on loopback"}},
		{"another client", "f",
			View{"o0.headers.x-forwarded-for": {"1.2.3.4,192.0.2.2"}}, View{"o0.headers.x-forwarded-for": {"1.2.3.5, 127.0.0.1"}},
			[]string{"o0.headers.x-forwarded-for: "}},
		{"a client too few", "f",
			View{"o0.headers.x-forwarded-for": {"1.2.3.4,192.0.2.2"}}, View{"o0.headers.x-forwarded-for": {"127.0.0.1"}},
			[]string{"o0.headers.x-forwarded-for: "}},
		{"closed after an error", "f",
			View{"closed": {"false"}, "n_origin": {"0"}, "resp.status": {"400"}, "resp.body": {"Bad Request"}, "resp.headers.connection": {"close"}},
			View{"closed": {"true"}, "n_origin": {"0"}, "resp.status": {"400"}, "resp.body": {"Bad Request"}, "resp.headers.connection": {"close"}},
			[]string{"closed: connection closed after an error"}},
		{"a connection that Weft keeps", "f",
			View{"n_origin": {"0"}, "resp.status": {"413"}, "resp.headers.connection": {"close"}},
			View{"n_origin": {"0"}, "resp.status": {"413"}},
			[]string{"resp.headers.connection: connection kept after an early reply"}},
		{"a response of a host after which Weft keeps the connection", "f",
			View{"resp.status": {"200"}, "resp.headers.connection": {"close"}, logPrefix + "details": {viaUpstream}},
			View{"resp.status": {"200"}, logPrefix + "details": {viaUpstream}},
			[]string{"resp.headers.connection: "}},
		{"sizes in trailers", "decompressor",
			View{"resp.trailers": {"x-envoy-decompressor-x-compressed-bytes: 1"}}, View{}, []string{"resp.trailers: sizes in trailers"}},
		{"other trailers", "decompressor",
			View{"resp.trailers": {"x-envoy-decompressor-x-compressed-bytes: 1", "a: b"}}, View{}, []string{"resp.trailers: "}},
		{"vary without a body", "compressor",
			View{"resp.status": {"204"}, "resp.headers.vary": {"Accept-Encoding"}}, View{"resp.status": {"204"}}, []string{"resp.headers.vary: vary without a body"}},
		{"vary with a body", "compressor",
			View{"resp.status": {"200"}, "resp.headers.vary": {"Accept-Encoding"}}, View{"resp.status": {"200"}}, []string{"resp.headers.vary: "}},
		{"grpc_status of fault", "fault",
			View{"resp.status": {"200"}, "resp.body": {"fault filter abort"}}, View{"resp.status": {"503"}, "resp.body": {"fault injected\n"}},
			[]string{"resp.body: grpc_status of fault", "resp.status: grpc_status of fault"}},
		{"the limit of buffer", "buffer",
			View{"resp.status": {"200"}, "n_origin": {"1"}}, View{"resp.status": {"413"}, "resp.body": {"request body too large\n"}, "n_origin": {"0"}},
			[]string{"n_origin: limit of buffer", "resp.body: limit of buffer", "resp.status: limit of buffer"}},
		{"closed after a response", "f",
			View{"closed": {"false"}, "resp.status": {"200"}}, View{"closed": {"true"}, "resp.status": {"200"}}, []string{"closed: "}},
		{"the log of a filter's response", "f",
			View{"n_origin": {"0"}, "log.cluster": {"o1"}}, View{"n_origin": {"0"}, "log.cluster": {"-"}},
			[]string{"log.cluster: cluster of requests without a host"}},
		{"the log of a forwarded request", "f",
			View{"n_origin": {"1"}, "log.cluster": {"o1"}}, View{"n_origin": {"1"}, "log.cluster": {"-"}}, []string{"log.cluster: "}},
		{"the log of a malformed request", "f",
			View{"n_origin": {"0"}, "resp.status": {"400"}, "resp.body": {"Bad Request"}, "log.status": {"400"}},
			View{"n_origin": {"0"}, "resp.status": {"400"}, "resp.body": {"Bad Request"}},
			[]string{"log.status: access log of malformed requests"}},
		{"the log of another local reply", "f",
			View{"n_origin": {"0"}, "resp.status": {"403"}, "resp.body": {"denied"}, "log.status": {"403"}},
			View{"n_origin": {"0"}, "resp.status": {"403"}, "resp.body": {"denied"}}, []string{"log.status: "}},
		{"a missing log line", "f",
			View{"log.protocol": {"HTTP/2", "HTTP/2"}}, View{"log.protocol": {"HTTP/2.0"}}, []string{"log.protocol: "}},
	} {
		if got := names(test.feature, test.envoy, test.weft); !slices.Equal(got, test.want) {
			t.Errorf("%s: the differences are %q, want %q", test.name, got, test.want)
		}
	}
}

func TestAmbiguousPaths(t *testing.T) {
	forwarded := View{"n_origin": {"1"}, "resp.status": {"200"}, "resp.body": {"from o1"}}
	denied := View{"n_origin": {"0"}, "resp.status": {"403"}, "resp.body": {"RBAC: access denied"}}
	for path, named := range map[string]bool{"/b/../a": true, "//a": true, "/%61": true, "/a": false} {
		c := &cases.Case{Script: client.Script{Path: path}}
		if got := NewResult("rbac", c, forwarded, denied).Named(); got != named {
			t.Errorf("Weft denies %s: Named = %v, want %v", path, got, named)
		}
		if NewResult("rbac", c, denied, forwarded).Named() || NewResult("cors", c, forwarded, denied).Named() {
			t.Errorf("%s: a difference of another kind has a name", path)
		}
	}
}

func TestMalformedRequests(t *testing.T) {
	forwarded := View{"n_origin": {"1"}, "resp.status": {"200"}, "resp.body": {"from o1"}}
	rejected := View{"n_origin": {"0"}, "resp.status": {"400"}, "resp.body": {"Bad Request"}}
	for data, named := range map[string]bool{
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": true,
		"GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n":      true,
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n":       false,
	} {
		c := &cases.Case{Script: client.Script{Kind: client.Raw, Method: "GET", Parts: []client.Part{{Data: []byte(data)}}}}
		if got := NewResult("http1", c, forwarded, rejected).Named(); got != named {
			t.Errorf("Weft rejects %q: Named = %v, want %v", data, got, named)
		}
		timedOut := View{"n_origin": {"1"}, "error": {"no connection"}}
		if NewResult("http1", c, timedOut, rejected).Named() {
			t.Errorf("Weft rejects %q, and Envoy does not respond: the difference has a name, want none", data)
		}
		if NewResult("http1", c, rejected, forwarded).Named() {
			t.Errorf("Weft forwards %q, and Envoy rejects it: the difference has a name, want none", data)
		}
	}
}

func TestNamesAreUniqueAndExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range AllNamed() {
		if n.Name == "" || n.Text == "" || seen[n.Name] {
			t.Errorf("difference %q, %q: want a unique name and a text", n.Name, n.Text)
		}
		seen[n.Name] = true
	}
	for _, n := range byDesign() {
		if n.Reason == "" {
			t.Errorf("%q has no reason", n.Name)
		}
	}
}

func TestReport(t *testing.T) {
	groups := []*cases.Group{
		{Name: "a.1", Feature: "a", Area: cases.Filters, Cases: []*cases.Case{{ID: "a.1-0"}, {ID: "a.1-1"}, {ID: "a.1-2"}}},
		{Name: "a.2", Feature: "a", Area: cases.Filters, Cases: []*cases.Case{{ID: "a.2-0"}}},
		{Name: "b.1", Feature: "b", Area: cases.Routing, Cases: []*cases.Case{{ID: "b.1-0"}, {ID: "b.1-1"}}},
	}
	r := NewReport(groups, []*Result{
		NewResult("a", groups[0].Cases[0], View{"x": {"1"}}, View{"x": {"1"}}),
		NewResult("a", groups[0].Cases[1], View{"resp.headers.via": {"me"}}, View{"resp.headers.via": {"1.1 me"}}),
		NewResult("a", groups[0].Cases[2], View{"x": {"1"}}, View{"x": {"2"}}),
	}, []Rejection{
		{Group: "a.2", Feature: "a", Cases: 1, Weft: "unsupported"},
		{Group: "b.1", Feature: "b", Cases: 2, Envoy: "invalid", Weft: "invalid"},
	})
	want := []Feature{{"a", Count{Cases: 4, Equal: 1, Named: 2, Rejected: 1}}, {"b", Count{Cases: 2, Invalid: 2}}}
	if !slices.Equal(r.Features, want) {
		t.Errorf("features = %+v, want %+v", r.Features, want)
	}
	if named, equal := r.Features[0].Share(), r.Features[0].EqualShare(); named != 50 || equal != 25 {
		t.Errorf("shares of %+v = %d and %d, want 50 and 25", r.Features[0], named, equal)
	}
	wantTable := "| area | cases | equal | equal or named | rejected |\n|---|---|---|---|---|\n" +
		"| routing | 0 | 100 % | 100 % | 0 |\n| filters | 4 | 25 % | 50 % | 1 |\n| all | 4 | 25 % | 50 % | 1 |\n"
	if table := r.Markdown(); table != wantTable {
		t.Errorf("Markdown =\n%s, want\n%s", table, wantTable)
	}
	var out strings.Builder
	if err := r.WriteDifferences(&out); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a.1-2", "a.2 rejected by weft"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("WriteDifferences does not mention %q:\n%s", text, &out)
		}
	}
	for _, text := range []string{"a.1-0", "a.1-1", "b.1"} {
		if strings.Contains(out.String(), text) {
			t.Errorf("WriteDifferences mentions %q:\n%s", text, &out)
		}
	}
}

func TestTrailersOfHTTP2HaveNoName(t *testing.T) {
	c := &cases.Case{Script: client.Script{Kind: client.HTTP2}}
	trailers := View{"resp.trailers": {"x: 1"}, "o0.line": {"GET / HTTP/2"}}
	without := View{"o0.line": {"GET / HTTP/2"}}
	if NewResult("h2", c, without, trailers).Named() {
		t.Error("trailers from HTTP/2 to HTTP/2 have a name, want none")
	}
	trailers["o0.line"], without["o0.line"] = []string{"GET / HTTP/1.1"}, []string{"GET / HTTP/1.1"}
	if !NewResult("h2", c, without, trailers).Named() {
		t.Error("trailers of a host with HTTP/1.1 have no name")
	}
}

func TestMalformedHTTP2(t *testing.T) {
	c := &cases.Case{Script: client.Script{Kind: client.Frames}}
	closed := View{"closed": {"true"}}
	for _, test := range []struct {
		name        string
		envoy, weft View
		named       bool
	}{
		{"a reset stream, and another response", closed, View{"closed": {"false"}, "frames.stream 1": {"RST_STREAM 1"}, "frames.stream 101": {"HEADERS 200"}}, true},
		{"Envoy responds", View{"frames.stream 101": {"HEADERS 200"}}, View{"frames.stream 1": {"RST_STREAM 1"}}, false},
		{"another code", closed, View{"frames.stream 1": {"RST_STREAM 7"}}, false},
		{"GOAWAY", closed, View{"closed": {"true"}, "frames.connection": {"GOAWAY 1"}}, true},
		{"GOAWAY instead of nothing", View{"closed": {"false"}}, View{"closed": {"true"}, "frames.connection": {"GOAWAY 1"}}, false},
		{"GOAWAY with another code", View{"closed": {"true"}, "frames.connection": {"GOAWAY 2"}}, View{"closed": {"true"}, "frames.connection": {"GOAWAY 1"}}, false},
	} {
		if got := NewResult("h2", c, test.envoy, test.weft).Named(); got != test.named {
			t.Errorf("%s: Named = %v, want %v", test.name, got, test.named)
		}
	}
}

func TestAlerts(t *testing.T) {
	c := &cases.Case{Script: client.Script{TLS: &client.TLS{Certificate: "client"}}}
	envoy, weft := View{"tls": {"no session: alert: unknown certificate"}}, View{"tls": {"no session: alert: bad certificate"}}
	if !NewResult("tls", c, envoy, weft).Named() {
		t.Error("another alert about a client certificate has no name")
	}
	if NewResult("tls", c, weft, envoy).Named() || NewResult("tls", c, envoy, View{"tls": {"TLS 1.3"}}).Named() {
		t.Error("a difference of another kind has a name")
	}
}
