package variable

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// fakeScope is a route, a cluster or a host.
type fakeScope struct{ name, resource, hostname string }

func (f fakeScope) Name() string                         { return f.name }
func (f fakeScope) ResourceName() string                 { return f.resource }
func (f fakeScope) Hostname() string                     { return f.hostname }
func (f fakeScope) ResponseDiscarded(*protocol.Exchange) {}

// newLoggedExchange returns an exchange with a value for every operator.
func newLoggedExchange() *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	start := time.Date(2026, 11, 4, 4, 7, 10, 894_651_000, time.UTC)
	x.Meta = protocol.Meta{Protocol: "Http1", Version: "HTTP/1.1", Start: start, HeadSize: 42, Conn: &protocol.ConnMeta{
		ID: 7, Listener: "l",
		Local: netip.MustParseAddrPort("10.1.2.3:8080"), LocalText: "10.1.2.3:8080",
		Remote: netip.MustParseAddrPort("[2001:db8::1]:555"), RemoteText: "[2001:db8::1]:555", RemoteIP: "2001:db8::1",
	}}
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "GET", "http", "h.test", "/new/a?x=1&y=%20b"
	x.Record.OriginalPath = "/rw/a?x=1&y=%20b"
	x.Request.Header.Add("x-r", "rr")
	x.Request.Header.Add("x-e", "")
	x.Request.Header.Add("user-agent", "ua")
	x.Request.Header.Add("x-request-id", "ea72e598-d294-4992-8779-c617be5b1851")
	x.Request.Header.Add("content-type", "application/grpc")
	x.Response.Status, x.Response.Source, x.Response.Version, x.Response.ContentLength = 200, protocol.UpstreamResponse, "HTTP/2.0", 5
	x.Response.Header.Add("x-up", "v")
	x.Response.Trailer.Add("grpc-status", "3")
	x.Metadata.Set("n.s", protocol.MetadataKey("k"), "v")
	x.Metadata.Set("n.s", protocol.MetadataKey("o", "i"), "w")
	x.Metadata.AddElement("n.s", "l", "1")
	x.Metadata.AddElement("n.s", "l", "2")
	r := &x.Record
	r.Route, r.Cluster = fakeScope{name: "v/0", resource: "rn"}, fakeScope{name: "c"}
	r.LogType = protocol.LogDownstreamEnd
	r.Attempts = []protocol.Attempt{
		{Host: fakeScope{name: "10.0.0.1:80"}, Local: "10.1.2.3:4000", Status: 503},
		{Host: fakeScope{name: "10.0.0.3:80"}, Reason: protocol.ConnectFailure},
		{Host: fakeScope{name: "10.0.0.2:80", hostname: "b.test"}, Local: "10.1.2.3:4001", Status: 200},
	}
	r.RequestBytes, r.ResponseBytes = 3, 5
	r.UpstreamStart, r.UpstreamFirstByte, r.End = start.Add(time.Millisecond), start.Add(3*time.Millisecond), start.Add(9_900*time.Microsecond)
	return x
}

func appendFixedUUID(dst []byte) []byte { return append(dst, "uuid"...) }

func logOptions() OperatorOptions {
	chain := "fc"
	return OperatorOptions{AppendUUID: appendFixedUUID, FilterChain: &chain}
}

// TestOperators expects the values that Envoy 1.40 writes for the same exchange.
func TestOperators(t *testing.T) {
	for _, c := range []struct{ format, text, json string }{
		{"%START_TIME%", "2026-11-04T04:07:10.894Z", ""},
		{"%START_TIME(%s.%3f)%", "1793765230.894", ""},
		{"%START_TIME(%Y/%m/%dT%H:%M:%S%z|%f|%9f|%a|%j|%E4Y|%e|%k)%", "2026/11/04T04:07:10+0000|894651000|894651000|Wed|308|2026| 4| 4", ""},
		{"%START_TIME(%A %B %b %p %I %l %y %C %u %w %T %D %F %R %r %Z %E6S %Ez %%)%", "Wednesday November Nov AM 04  4 26 20 3 3 04:07:10 11/04/26 2026-11-04 04:07 04:07:10 AM UTC 10.894651 +00:00 %", ""},
		{"%EMIT_TIME%", "2026-11-04T04:07:10.904Z", ""},
		{"%DURATION%", "9", "9"},
		{"%REQUEST_DURATION%", "1", "1"},
		{"%RESPONSE_DURATION%", "3", "3"},
		{"%RESPONSE_TX_DURATION%", "6", "6"},
		{"%ROUNDTRIP_DURATION%", "-", "null"},
		{"%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%", "9900", "9900"},
		{"%COMMON_DURATION(DS_RX_BEG:US_RX_BEG)%", "3", "3"},
		{"%COMMON_DURATION(DS_TX_END:DS_RX_BEG)%", "-", "null"},
		{"%COMMON_DURATION(DS_CX_BEG:DS_CX_END)%", "-", "null"},
		{"%BYTES_RECEIVED%", "3", "3"},
		{"%BYTES_SENT%", "5", "5"},
		{"%PROTOCOL%", "HTTP/1.1", ""},
		{"%UPSTREAM_PROTOCOL%", "HTTP/2", ""},
		{"%RESPONSE_CODE%", "200", "200"},
		{"%RESPONSE_CODE%-x", "200-x", ""},
		{"%RESPONSE_CODE_DETAILS%", "via_upstream", ""},
		{"%CONNECTION_TERMINATION_DETAILS%", "-", "null"},
		{"%RESPONSE_FLAGS%", "-", `"-"`},
		{"%RESPONSE_FLAGS_LONG%", "-", `"-"`},
		{"%ROUTE_NAME%", "rn", ""},
		{"%UPSTREAM_HOST%", "10.0.0.2:80", ""},
		{"%UPSTREAM_HOST_NAME%", "b.test", ""},
		{"%UPSTREAM_HOST_NAME_WITHOUT_PORT%", "b.test", ""},
		{"%UPSTREAM_HOSTS_ATTEMPTED%", "10.0.0.1:80,10.0.0.2:80", ""},
		{"%UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT%", "10.0.0.1,10.0.0.2", ""},
		{"%UPSTREAM_HOST_NAMES_ATTEMPTED%", "10.0.0.1:80,b.test", ""},
		{"%UPSTREAM_REQUEST_ATTEMPT_COUNT%", "3", "3"},
		{"%UPSTREAM_CLUSTER%", "c", ""},
		{"%UPSTREAM_CLUSTER_RAW%", "c", ""},
		{"%UPSTREAM_LOCAL_ADDRESS%", "10.1.2.3:4001", ""},
		{"%UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT(16)%", "10.1.0.0/16", ""},
		{"%UPSTREAM_LOCAL_PORT%", "4001", "4001"},
		{"%UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "10.0.0.2", ""},
		{"%UPSTREAM_REMOTE_PORT%", "80", "80"},
		{"%UPSTREAM_TRANSPORT_FAILURE_REASON%", "-", "null"},
		{"%DOWNSTREAM_REMOTE_ADDRESS%", "[2001:db8::1]:555", ""},
		{"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "2001:db8::1", ""},
		{"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(32)%", "2001:db8::/32", ""},
		{"%DOWNSTREAM_REMOTE_PORT%", "555", "555"},
		{"%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%", "2001:db8::1", ""},
		{"%DOWNSTREAM_LOCAL_ADDRESS%", "10.1.2.3:8080", ""},
		{"%DOWNSTREAM_LOCAL_PORT%", "8080", "8080"},
		{"%CONNECTION_ID%", "7", "7"},
		{"%REQUESTED_SERVER_NAME%", "-", "null"},
		{"%REQUESTED_SERVER_NAME(SNI_FIRST)%", "h.test", ""},
		{"%REQUESTED_SERVER_NAME(HOST_FIRST:ORIG)%", "-", "null"},
		{"%DOWNSTREAM_TLS_VERSION%", "-", "null"},
		{"%DOWNSTREAM_PEER_CERT_V_START%", "-", "null"},
		{"%LOCAL_REPLY_BODY%", "", `""`},
		{"%CUSTOM_FLAGS%", "", `""`},
		{"%FILTER_CHAIN_NAME%", "fc", ""},
		{"%ACCESS_LOG_TYPE%", "DownstreamEnd", ""},
		{"%UNIQUE_ID%", "uuid", ""},
		{"%TRACE_ID%", "-", "null"},
		{"%QUERY_PARAM(x):1%", "1", ""},
		{"%QUERY_PARAM(y)%", " b", ""},
		{"%QUERY_PARAM(z)%", "-", "null"},
		{"%QUERY_PARAMS%", "x=1&y=%20b", ""},
		{"%PATH%", "/rw/a?x=1&y=%20b", ""},
		{"%PATH(NQ)%", "/rw/a", ""},
		{"%PATH(NQ:PATH)%", "/new/a", ""},
		{"%PATH(WQ:ORIG):3%", "/rw", ""},
		{"%STREAM_ID%", "ea72e598-d294-4992-8779-c617be5b1851", ""},
		{"%GRPC_STATUS%", "InvalidArgument", ""},
		{"%GRPC_STATUS(SNAKE_STRING)%", "INVALID_ARGUMENT", ""},
		{"%GRPC_STATUS(NUMBER)%", "3", "3"},
		{"%GRPC_STATUS_NUMBER%", "3", "3"},
		{"%REQ(X-R)%", "rr", ""},
		{"%REQ(X-None?x-r):1%", "r", ""},
		{"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%", "GET /rw/a?x=1&y=%20b", ""},
		{"%REQ(:path)%", "/new/a?x=1&y=%20b", ""},
		{"%REQ(x-e)%", "", `""`},
		{"%REQ(x-none)%", "-", "null"},
		{"%REQ(x-none)%|%REQ(x-r)%", "-|rr", ""},
		{"%REQ(content-length)%", "-", "null"},
		{"%RESP(:status)%", "200", `"200"`},
		{"%RESP(content-length)%", "5", `"5"`},
		{"%TRAILER(x?grpc-status)%", "3", `"3"`},
		{"%DYNAMIC_METADATA(n.s:k)%", "v", ""},
		{"%DYNAMIC_METADATA(n.s:l)%", `["1","2"]`, `["1","2"]`},
		{"%DYNAMIC_METADATA(n.s:o):4%", `{"i"`, `{"i":"w"}`},
		{"%METADATA(DYNAMIC:n.s:o:i)%", "w", ""},
		{"%DYNAMIC_METADATA(none:k)%", "-", "null"},
		{`%COALESCE({"operators": ["REQUESTED_SERVER_NAME", {"command": "REQ", "param": ":authority", "max_length": 3}]}):2%`, "h.", ""},
		{"100%%", "100%", ""},
	} {
		template, err := CompileOperators(c.format, logOptions())
		if err != nil {
			t.Errorf("CompileOperators(%q): %v", c.format, err)
			continue
		}
		x := newLoggedExchange()
		if got := string(template.Append(nil, x)); got != c.text {
			t.Errorf("%s = %q, want %q", c.format, got, c.text)
		}
		want := c.json
		if want == "" {
			quoted, err := json.Marshal(c.text)
			if err != nil {
				t.Fatal(err)
			}
			want = strings.ReplaceAll(string(quoted), `\u0026`, "&")
		}
		if got := string(template.AppendJSON(nil, x)); got != want {
			t.Errorf("%s = %s in JSON, want %s", c.format, got, want)
		}
	}
}

func TestOperatorsOfARelayedConnection(t *testing.T) {
	x := newLoggedExchange()
	start, end := x.Meta.Start, x.Record.End
	x.Request, x.Response = protocol.Request{}, protocol.Response{}
	x.Meta = protocol.Meta{Protocol: protocol.Relayed, Start: start}
	x.Record = protocol.Record{End: end, RequestBytes: 32, ResponseBytes: 125, LogType: protocol.LogTCPConnectionEnd}
	const format = "%PROTOCOL% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %REQUEST_DURATION% " +
		"%COMMON_DURATION(DS_CX_BEG:DS_CX_END:us)% %REQ(:path)% %ACCESS_LOG_TYPE% %GRPC_STATUS% %DOWNSTREAM_LOCAL_PORT%"
	template, err := CompileOperators(format, logOptions())
	if err != nil {
		t.Fatal(err)
	}
	const want = "- 0 - 32 125 9 - 9900 - TcpConnectionEnd - -"
	if got := string(template.Append(nil, x)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOmitMissing(t *testing.T) {
	template, err := CompileOperators("a %REQ(x-none)% b", OperatorOptions{OmitMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	x := newLoggedExchange()
	if got := string(template.Append(nil, x)); got != "a  b" {
		t.Errorf("Append = %q", got)
	}
	if got := string(template.AppendJSON(nil, x)); got != `"a  b"` {
		t.Errorf("AppendJSON = %s", got)
	}
}

func TestLongFlags(t *testing.T) {
	x := newLoggedExchange()
	x.Record.Flags, x.Record.Reason = protocol.DelayInjected, protocol.UpstreamTimeout
	if got, _ := longFlags(x); got != "DelayInjected,UpstreamRequestTimeout" {
		t.Errorf("longFlags = %q", got)
	}
}

func TestLocalReplyBodyOperator(t *testing.T) {
	template, err := CompileOperators("<%LOCAL_REPLY_BODY%>", OperatorOptions{LocalReply: true})
	if err != nil {
		t.Fatal(err)
	}
	x := newLoggedExchange()
	x.LocalReply(403, "text/plain", "denied")
	if got := string(template.Append(nil, x)); got != "<denied>" {
		t.Errorf("%q", got)
	}
}

func TestStatusOfADisconnectedClient(t *testing.T) {
	x := newLoggedExchange()
	x.Abandon("gone")
	if status, _ := sentStatus(x); status != 0 {
		t.Errorf("status %d, want 0", status)
	}
}

func TestCompileOperatorsRejects(t *testing.T) {
	for _, c := range []struct{ format, want string }{
		{"%", "no operator follows"},
		{"a % b", "byte 3"},
		{"%start_time%", "no operator follows"},
		{"%REQ%", "requires an argument"},
		{"%REQ()%", "requires an argument"},
		{"%REQ(a", "closing parenthesis"},
		{"%REQ(a)", "closing parenthesis"},
		{"%REQ(a):x%", "closing parenthesis"},
		{"%REQ(a b)%", "not a header name"},
		{"%REQ(a?b?c)%", "not a header name"},
		{"%PROTOCOL(a)%", "takes no argument"},
		{"%PROTOCOL:3%", "takes no length"},
		{"%PROTOCOL", "no closing %"},
		{"%CEL(a)%", "CEL is not supported"},
		{"%NO_SUCH_OPERATOR%", "NO_SUCH_OPERATOR is not supported"},
		{"%START_TIME(%)%", "ends with a percent sign"},
		{"%START_TIME(%n)%", "line break"},
		{"%START_TIME(%Q)%", "unknown conversion %Q"},
		{"%START_TIME(%0f)%", "unknown conversion"},
		{"%COMMON_DURATION(DS_RX_BEG)%", "START:END"},
		{"%COMMON_DURATION(DS_RX_BEG:x)%", `"x" is not recorded`},
		{"%COMMON_DURATION(DS_RX_BEG:DS_TX_END:s)%", "precision"},
		{"%GRPC_STATUS(x)%", "CAMEL_STRING"},
		{"%PATH(x)%", "WQ or NQ"},
		{"%PATH(WQ:x)%", "ORIG, PATH"},
		{"%QUERY_PARAMS(DECODED)%", "not supported"},
		{"%REQUESTED_SERVER_NAME(x)%", "SNI_ONLY"},
		{"%UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT(129)%", "address prefix"},
		{"%METADATA(ROUTE:a)%", `"ROUTE" is not supported`},
		{"%DYNAMIC_METADATA(:a)%", "namespace"},
		{"%COALESCE(x)%", "not JSON"},
		{`%COALESCE({"operators": []})%`, "no operators"},
		{`%COALESCE({"operators": ["CEL"]})%`, "CEL is not supported"},
		{"%UNIQUE_ID%", "only in access logs"},
		{"%FILTER_CHAIN_NAME%", "only in access logs"},
	} {
		_, err := CompileOperators(c.format, OperatorOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("CompileOperators(%q): %v, want %q", c.format, err, c.want)
		}
	}
}

func TestReplaceOperators(t *testing.T) {
	got, err := ReplaceOperators("%HOSTNAME% %REQ(x):3% 5%% %ENVIRONMENT(A):2%", func(name, argument string) (string, bool) {
		if name == "REQ" {
			return "", false
		}
		return "50%" + argument, true
	})
	if want := "50%% %REQ(x):3% 5%% 50"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := ReplaceOperators("%", func(string, string) (string, bool) { return "", false }); err == nil {
		t.Error("no error for a malformed format")
	}
}

func TestOpenSSLCipher(t *testing.T) {
	for name, want := range map[string]string{
		"TLS_AES_128_GCM_SHA256":                        "TLS_AES_128_GCM_SHA256",
		"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256":         "ECDHE-RSA-AES128-GCM-SHA256",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
		"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA":            "ECDHE-RSA-AES256-SHA",
		"TLS_RSA_WITH_AES_256_GCM_SHA384":               "AES256-GCM-SHA384",
	} {
		if got := openSSLCipher(name); got != want {
			t.Errorf("openSSLCipher(%s) = %s, want %s", name, got, want)
		}
	}
}

// TestOperatorsAllocateNothing covers the operators of the default formats of Envoy and Istio.
func TestOperatorsAllocateNothing(t *testing.T) {
	const format = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
		`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" ` +
		`%UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%`
	template, err := CompileOperators(format, OperatorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x, line := newLoggedExchange(), make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { line = template.Append(line[:0], x) }); n != 0 {
		t.Errorf("a line allocates %v times", n)
	}
}

func FuzzCompileOperators(f *testing.F) {
	for _, name := range OperatorNames() {
		f.Add("%" + name + "%")
		f.Add("a%" + name + "(x?y:z):3%%%")
	}
	f.Add("%START_TIME(%Y-%m-%dT%H:%M:%E3S%z %f %3f)%")
	f.Add(`%COALESCE({"operators": ["PROTOCOL", {"command": "REQ", "param": "x"}]})%`)
	x := newLoggedExchange()
	f.Fuzz(func(t *testing.T, format string) {
		template, err := CompileOperators(format, logOptions())
		if err != nil {
			return
		}
		for b := range strings.SplitSeq(string(template.Append(nil, x)), "") {
			if b == "\n" && !strings.Contains(format, "\n") {
				t.Errorf("%q writes a line break", format)
			}
		}
		if value := template.AppendJSON(nil, x); !json.Valid(value) {
			t.Errorf("%q writes %s, which is not JSON", format, value)
		}
	})
}

func BenchmarkOperators(b *testing.B) {
	template, err := CompileOperators(`[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% `+
		`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`, OperatorOptions{})
	if err != nil {
		b.Fatal(err)
	}
	x, line := newLoggedExchange(), make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		line = template.Append(line[:0], x)
	}
}
