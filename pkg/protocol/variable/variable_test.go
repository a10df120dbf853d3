package variable

import (
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// fakeNamed is a protocol.Named and a protocol.Host.
type fakeNamed string

func (p fakeNamed) Name() string { return string(p) }

func (fakeNamed) ResponseDiscarded(*protocol.Exchange) {}

// finishedExchange returns an HTTP exchange in which the values of all HTTP variables are set.
func finishedExchange() *protocol.Exchange {
	start := time.Date(2026, 11, 21, 4, 5, 6, 7_000_000, time.UTC)
	x := &protocol.Exchange{}
	x.Request.Method = "GET"
	x.Request.Scheme = "http"
	x.Request.Authority = "shop.test:8080"
	x.Request.Path = "/v2/items?color=blue&size=&color=red"
	x.Request.Header.Add("User-Agent", "curl/8")
	x.Request.Header.Add("X-Request-Id", "abc-1")
	x.Request.Header.Add("Cookie", "a=1; session=s3cret")
	x.Request.Header.Add("cookie", "late=x=y")
	x.Request.Header.Add("service", "com.shop.Items")
	x.Request.Header.Add("method", "list")
	x.Response.Status = 504
	x.Response.Header.Add("Server", "origin")
	x.Meta = protocol.Meta{
		Conn: &protocol.ConnMeta{Remote: netip.MustParseAddrPort("127.0.0.1:40000"), ID: math.MaxUint64, Listener: "egress", LocalText: "127.0.0.1:2045",
			RemoteText: "127.0.0.1:40000", RemoteIP: "127.0.0.1",
			TLS: &protocol.TLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", Protocol: "h2", ServerName: "a.example", Peer: &protocol.Certificate{
				Subject: "CN=orders", Issuer: "CN=ca", Serial: "1f", Fingerprint: "ab", DNSSANs: []string{"a", "b"}, URISANs: []string{"spiffe://shop/orders"}}}},
		Protocol: "Http1", Version: "HTTP/1.1", Start: start, HeadSize: 300,
	}
	x.Record = protocol.Record{
		Reason: protocol.UpstreamTimeout, Detail: "upstream timed out: no answer",
		Route: fakeNamed("items/0"), Cluster: fakeNamed("items"),
		Attempts: []protocol.Attempt{
			{Host: fakeNamed("10.0.0.1:80"), Reason: protocol.ConnectFailure},
			{Host: fakeNamed("10.0.0.2:80"), Local: "10.0.0.9:5000", Reason: protocol.ReasonPerTryTimeout, TLS: &protocol.TLS{
				Version: "TLSv1.2", Cipher: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Protocol: "http/1.1", Resumed: true,
				Peer: &protocol.Certificate{Subject: "CN=items", Issuer: "CN=root", Fingerprint: "cd", DNSSANs: []string{"items"}, URISANs: []string{"spiffe://shop/items", "b"}},
			}},
		},
		OriginalPath: "/v1/items?color=blue", RequestBytes: 12, ResponseBytes: 3400,
		UpstreamStart: start.Add(time.Millisecond), UpstreamFirstByte: start.Add(4 * time.Millisecond),
		End: start.Add(5500 * time.Microsecond),
	}
	return x
}

// finishedCall returns an exchange with a one-way RPC request and a response, so that all RPC
// variables have a value.
func finishedCall() *protocol.Exchange {
	x := &protocol.Exchange{}
	x.Request.Header.Add("service", "com.shop.Items")
	x.Request.Header.Add("method", "list")
	x.Request.Header.Add("version", "1.0.0")
	x.Request.Header.Add("group", "blue")
	x.Request.OneWay, x.Request.Serialization = true, "hessian2"
	x.Response.Status, x.Response.Code = 200, 20
	return x
}

func TestOnlyRPCRequestsHaveVersionAndGroup(t *testing.T) {
	x := finishedExchange()
	x.Request.Header.Add("version", "a field")
	for _, name := range []string{"rpc_version", "rpc_group", "rpc_status", "rpc_oneway", "rpc_serialization"} {
		if v, _ := Lookup(name); v.def != nil {
			if got, ok := v.Text(x); ok {
				t.Errorf("%s of an HTTP request = %q, want no value", name, got)
			}
		}
	}
}

func TestGRPCStatusVariable(t *testing.T) {
	template, err := Compile("%rpc_status%")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		contentType, head, trailer string
		want                       string
	}{
		"in trailers": {"application/grpc", "", "5", "5"},
		"in the head": {"application/grpc+proto", "14", "", "14"},
		"missing":     {"application/grpc", "", "", "-"},
		"not gRPC":    {"application/json", "14", "5", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			x := finishedExchange()
			x.Request.Header.Set("content-type", tt.contentType)
			if tt.head != "" {
				x.Response.Header.Add("grpc-status", tt.head)
			}
			if tt.trailer != "" {
				x.Response.Trailer.Add("grpc-status", tt.trailer)
			}
			if got := string(template.Append(nil, x)); got != tt.want {
				t.Errorf("%%rpc_status%% = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestGRPCServiceAndMethodVariables(t *testing.T) {
	template, err := Compile("%rpc_service% %rpc_method% %x-mosn-rpc-service% %Dubbo_method%")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ contentType, sent, path, want string }{
		"current path":          {"application/grpc", "", "/shop.Items/List", "shop.Items List shop.Items List"},
		"rewritten path":        {"application/grpc+proto", "/shop.Items/List?a", "/other/Path", "shop.Items List shop.Items List"},
		"path with a prefix":    {"application/grpc", "", "/v1/shop.Items/List", "v1/shop.Items List v1/shop.Items List"},
		"path without a method": {"application/grpc", "", "/shop.Items", "shop.Items - shop.Items -"},
		"not gRPC":              {"application/grpc-web", "", "/shop.Items/List", "a field a field"},
	} {
		t.Run(name, func(t *testing.T) {
			x := new(protocol.Exchange)
			x.Request.Method, x.Request.Path, x.Record.OriginalPath = "POST", tt.path, tt.sent
			x.Request.Header.Add("content-type", tt.contentType)
			x.Request.Header.Add("service", "a")
			x.Request.Header.Add("method", "field")
			if got := string(template.Append(nil, x)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEveryVariableHasItsValue(t *testing.T) {
	tests := []struct{ name, want string }{
		{"start_time", "2026/11/21 04:05:06.007"},
		{"start_time_rfc3339", "2026-11-21T04:05:06.007Z"},
		{"duration", "5.5ms"},
		{"duration_ms", "5.500"},
		{"request_received_duration_ms", "1.000"},
		{"response_received_duration_ms", "4.000"},
		{"process_time_duration_ms", "2.500"},
		{"request_finished_duration", "5.5ms"},
		{"request_received_duration", "1ms"},
		{"response_received_duration", "4ms"},
		{"process_time_duration", "2.5ms"},
		{"protocol", "Http1"},
		{"version", "HTTP/1.1"},
		{"listener", "egress"},
		{"listener_name", "egress"},
		{"connection_id", "18446744073709551615"},
		{"downstream_local_address", "127.0.0.1:2045"},
		{"downstream_remote_address", "127.0.0.1:40000"},
		{"downstream_remote_ip", "127.0.0.1"},
		{"downstream_direct_remote_address", "127.0.0.1:40000"},
		{"downstream_tls_version", "TLSv1.3"},
		{"downstream_tls_cipher", "TLS_AES_128_GCM_SHA256"},
		{"downstream_tls_alpn", "h2"},
		{"requested_server_name", "a.example"},
		{"downstream_peer_subject", "CN=orders"},
		{"downstream_peer_issuer", "CN=ca"},
		{"downstream_peer_serial", "1f"},
		{"downstream_peer_fingerprint_256", "ab"},
		{"downstream_peer_uri_san", "spiffe://shop/orders"},
		{"downstream_peer_dns_san", "a,b"},
		{"method", "GET"},
		{"request_method", "GET"},
		{"x-mosn-method", "GET"},
		{"scheme", "http"},
		{"request_scheme", "http"},
		{"x-mosn-scheme", "http"},
		{"authority", "shop.test:8080"},
		{"x-mosn-host", "shop.test:8080"},
		{"path", "/v2/items"},
		{"x-mosn-path", "/v2/items"},
		{"original_path", "/v1/items"},
		{"request_path", "/v1/items"},
		{"request_path_original", "/v1/items"},
		{"x-mosn-path-original", "/v1/items"},
		{"request_uri", "/v1/items?color=blue"},
		{"query", "color=blue&size=&color=red"},
		{"x-mosn-querystring", "color=blue&size=&color=red"},
		{"request_arg", "color=blue&size=&color=red"},
		{"request_arg_color", "blue"},
		{"request_arg_size", ""},
		{"request_header_user-agent", "curl/8"},
		{"cookie_session", "s3cret"},
		{"cookie_late", "x=y"},
		{"request_id", "abc-1"},
		{"x-mosn-rpc-service", "com.shop.Items"},
		{"x-mosn-rpc-method", "list"},
		{"rpc_service", "com.shop.Items"},
		{"rpc_method", "list"},
		{"Dubbo_service", "com.shop.Items"},
		{"Dubbo_method", "list"},
		{"rpc_version", "1.0.0"},
		{"rpc_group", "blue"},
		{"rpc_serialization", "hessian2"},
		{"rpc_oneway", "true"},
		{"rpc_status", "20"},
		{"request_length", "312"},
		{"bytes_received", "12"},
		{"route", "items/0"},
		{"route_name", "items/0"},
		{"upstream_cluster", "items"},
		{"upstream_host", "10.0.0.2:80"},
		{"upstream_local_address", "10.0.0.9:5000"},
		{"upstream_tls_version", "TLSv1.2"},
		{"upstream_tls_cipher", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		{"upstream_tls_alpn", "http/1.1"},
		{"upstream_tls_resumed", "true"},
		{"upstream_peer_subject", "CN=items"},
		{"upstream_peer_issuer", "CN=root"},
		{"upstream_peer_fingerprint_256", "cd"},
		{"upstream_peer_uri_san", "spiffe://shop/items,b"},
		{"upstream_peer_dns_san", "items"},
		{"upstream_transport_failure_reason", "upstream attempt timed out"},
		{"attempts", "2"},
		{"response_code", "504"},
		{"response_flag", "UT"},
		{"response_flags", "UT"},
		{"response_reason", "upstream_timeout"},
		{"response_detail", "upstream timed out: no answer"},
		{"response_code_details", "response_timeout"},
		{"response_header_server", "origin"},
		{"bytes_sent", "3400"},
		{"Http1_request_uri", "/v1/items?color=blue"},
		{"Http2_request_header_User-Agent", "curl/8"},
		{"Http1_cookie_a", "1"},
	}
	x, call := finishedExchange(), finishedCall()
	tested := make(map[*definition]bool)
	for _, tt := range tests {
		v, ok := Lookup(tt.name)
		if !ok {
			t.Errorf("Lookup(%q) = false, want true", tt.name)
			continue
		}
		tested[v.def] = true
		x := x
		if strings.HasPrefix(tt.name, "rpc_") {
			x = call
		}
		if got, ok := v.Text(x); got != tt.want || !ok {
			t.Errorf("%s: Text = %q, %v, want %q, true", tt.name, got, ok, tt.want)
		}
		if got, ok := v.Append([]byte("> "), x); string(got) != "> "+tt.want || !ok {
			t.Errorf("%s: Append = %q, %v, want %q, true", tt.name, got, ok, "> "+tt.want)
		}
	}
	for i := range definitions {
		if !tested[&definitions[i]] {
			t.Errorf("%s is not tested", definitions[i].name)
		}
	}
}

// alwaysSet holds the variables that have the value 0 for an empty exchange.
var alwaysSet = map[string]bool{"attempts": true, "bytes_sent": true, "bytes_received": true, "request_length": true}

func TestEmptyExchangeHasNoValues(t *testing.T) {
	x := &protocol.Exchange{}
	for name := range Names() {
		v, ok := Lookup(name)
		if !ok {
			t.Errorf("Lookup(%q) = false, want true", name)
			continue
		}
		if v.Name() != name {
			t.Errorf("Lookup(%q).Name() = %q, want the same name", name, v.Name())
		}
		if got, ok := v.Text(x); ok != alwaysSet[name] || !ok && got != "" {
			t.Errorf("%s: Text = %q, %v, want available: %v", name, got, ok, alwaysSet[name])
		}
		if got, ok := v.Append([]byte("> "), x); ok != alwaysSet[name] || !ok && string(got) != "> " {
			t.Errorf("%s: Append = %q, %v, want available: %v", name, got, ok, alwaysSet[name])
		}
	}
}

func TestNamesAreUniqueAndDocumented(t *testing.T) {
	seen := make(map[string]bool)
	for name, doc := range Names() {
		if seen[name] {
			t.Errorf("%s is listed twice", name)
		}
		seen[name] = true
		if !strings.HasSuffix(doc, ".") {
			t.Errorf("%s: doc %q is not a sentence", name, doc)
		}
	}
	for range Names() {
		break // the iterator supports an early break
	}
}

func TestLookupUnknown(t *testing.T) {
	for _, name := range []string{"", "nonsense", "request_header_", "cookie_", "START_TIME", "Http1_start_time", "Http3_request_uri"} {
		if v, ok := Lookup(name); ok {
			t.Errorf("Lookup(%q) = %s, true; want false", name, v.Name())
		}
	}
}

func TestTemplateText(t *testing.T) {
	tests := []struct{ name, format, want string }{
		{"empty", "", ""},
		{"a constant", "plain text\n", "plain text\n"},
		{"a percent sign", "100%% of 50%%", "100% of 50%"},
		{"one variable", "%method%", "GET"},
		{"variables and literals", "[%method%] %path%?%query%.", "[GET] /v2/items?color=blue&size=&color=red."},
		{"adjacent variables", "%method%%scheme%", "GEThttp"},
		{"a percent sign next to a variable", "%%%method%%%", "%GET%"},
		{"missing values in text", "a=%request_header_none% b=%cookie_none%", "a=- b=-"},
		{"missing value", "%request_header_none%", "-"},
		{"control characters of a value", "<%request_header_evil%>", `<a\x0d\x0aX: y\x00\x09\x7f>`},
		{"control characters of a single value", "%request_header_evil%", `a\x0d\x0aX: y\x00\x09\x7f`},
		{"control characters of a name in a certificate", "%upstream_peer_dns_san%", `a\x0ab,c`},
		{"a single number", "%response_code%", "504"},
	}
	x := finishedExchange()
	x.Record.Attempts[1].TLS.Peer.DNSSANs = []string{"a\nb", "c"} // an IA5String may hold any ASCII
	x.Request.Header.Add("evil", "a\r\nX: y\x00\t\x7f")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			template, err := Compile(tt.format)
			if err != nil {
				t.Fatal(err)
			}
			if got := template.Append([]byte("> "), x); string(got) != "> "+tt.want {
				t.Errorf("Compile(%q).Append = %q, want %q", tt.format, got, "> "+tt.want)
			}
			if got, ok := template.Text(x); got != tt.want || ok == (tt.want == Unavailable) {
				t.Errorf("Compile(%q).Text = %q, %v, want %q", tt.format, got, ok, tt.want)
			}
		})
	}
}

func TestTemplateJSON(t *testing.T) {
	tests := []struct{ name, format, want string }{
		{"a single number", "%response_code%", `504`},
		{"a number that does not fit a double", "%connection_id%", `18446744073709551615`},
		{"a number in text", "code %response_code%", `"code 504"`},
		{"a duration", "%duration%", `"5.5ms"`},
		{"text", "%method%", `"GET"`},
		{"missing value", "%request_header_none%", `null`},
		{"missing address", "%upstream_local_address%", `null`},
		{"missing duration", "%response_received_duration%", `null`},
		{"missing values in text", "h=%request_header_none% d=%response_received_duration%", `"h=- d=-"`},
		{"a constant with escapes", "a\"b\\\n", `"a\"b\\\u000a"`},
		{"an empty template", "", `""`},
		{"a hostile value", "%request_header_evil%", `"\"}\u000d\u000a\\\u0000é\ufffd\ufffdz\u007f"`},
		{"a hostile value in text", "v=%request_header_evil%", `"v=\"}\u000d\u000a\\\u0000é\ufffd\ufffdz\u007f"`},
		{"a hostile name in a certificate", "%downstream_peer_dns_san%", `"a\"\u000a"`},
		{"a hostile name in text", "san=%downstream_peer_dns_san%", `"san=a\"\u000a"`},
		{"a real replacement character", "%request_header_fffd%", "\"\ufffd\""},
	}
	x := finishedExchange()
	x.Meta.Conn.TLS.Peer.DNSSANs = []string{"a\"\n"}
	x.Record.UpstreamFirstByte = time.Time{}
	x.Record.Attempts = nil
	x.Request.Header.Add("evil", "\"}\r\n\\\x00é\xff\xc3z\x7f")
	x.Request.Header.Add("fffd", "\ufffd")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			template, err := Compile(tt.format)
			if err != nil {
				t.Fatal(err)
			}
			got := template.AppendJSON(nil, x)
			if string(got) != tt.want {
				t.Errorf("Compile(%q).AppendJSON = %s, want %s", tt.format, got, tt.want)
			}
			if !json.Valid(got) {
				t.Errorf("Compile(%q).AppendJSON = %s, which is not JSON", tt.format, got)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	tests := []struct{ format, want string }{
		{"50% off", `byte 3 of "50% off": % without a closing %: write %% for a percent sign`},
		{"%method% %start_tme%", `byte 10 of "%method% %start_tme%": unknown variable "start_tme": did you mean "start_time"?`},
		{"%request_headr_x%", `byte 1 of "%request_headr_x%": unknown variable "request_headr_x": did you mean "request_header_NAME"?`},
		{"%respons_code%", `byte 1 of "%respons_code%": unknown variable "respons_code": did you mean "response_code"?`},
		{"%completely else%", `byte 1 of "%completely else%": unknown variable "completely else"`},
	}
	for _, tt := range tests {
		_, err := Compile(tt.format)
		if err == nil || err.Error() != tt.want {
			t.Errorf("Compile(%q): error %v, want %s", tt.format, err, tt.want)
		}
	}
	var unknown *UnknownError
	if _, err := Compile("%nope%"); !errors.As(err, &unknown) || unknown.Name != "nope" {
		t.Errorf("Compile(%%nope%%): error %v does not contain the name", err)
	}
}

func TestConstantAndSingle(t *testing.T) {
	tests := []struct {
		format, constant string
		isConstant       bool
		single           string
	}{
		{"", "", true, ""},
		{"a%%", "a%", true, ""},
		{"%path%", "", false, "path"},
		{"%request_header_X%", "", false, "request_header_X"},
		{"%path%!", "", false, ""},
		{"!%path%", "", false, ""},
	}
	for _, tt := range tests {
		template, err := Compile(tt.format)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := template.Constant(); got != tt.constant || ok != tt.isConstant {
			t.Errorf("Compile(%q).Constant = %q, %v, want %q, %v", tt.format, got, ok, tt.constant, tt.isConstant)
		}
		v, ok := template.Single()
		if ok != (tt.single != "") || ok && v.Name() != tt.single {
			t.Errorf("Compile(%q).Single = %v, want %q", tt.format, ok, tt.single)
		}
	}
}

// allVariables returns a template of all variables.
func allVariables(t testing.TB) *Template {
	var format strings.Builder
	for name := range Names() {
		format.WriteString("%" + name + "% \"")
	}
	template, err := Compile(format.String())
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func TestTemplatesDoNotAllocate(t *testing.T) {
	x := finishedExchange()
	template := allVariables(t)
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { buf = template.Append(buf[:0], x) }); n != 0 {
		t.Errorf("Append: %v allocations, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() { buf = template.AppendJSON(buf[:0], x) }); n != 0 {
		t.Errorf("AppendJSON: %v allocations, want 0", n)
	}
	single, err := Compile("%request_header_user-agent%")
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if n := testing.AllocsPerRun(100, func() { text, _ = single.Text(x) }); n != 0 || text != "curl/8" {
		t.Errorf("Text of a single text variable = %q with %v allocations, want curl/8 with 0", text, n)
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("%method% %request_header_v% 100%%", "value\r\n\x00")
	f.Add("%request_header_v%", "\xff\"\\")
	f.Add("%%%", "")
	f.Fuzz(func(t *testing.T, format, value string) {
		template, err := Compile(format)
		if err != nil {
			return
		}
		x := finishedExchange()
		x.Request.Header.Add("v", value)
		text := string(template.Append(nil, x))
		if got, _ := template.Text(x); got != text {
			t.Errorf("Text = %q, want %q, the result of Append", got, text)
		}
		if !hasControl(format) && hasControl(text) {
			t.Errorf("the text contains a control character: %q", text)
		}
		if got := template.AppendJSON(nil, x); !json.Valid(got) {
			t.Errorf("AppendJSON = %s, which is not JSON", got)
		}
	})
}

func BenchmarkAccessLogLine(b *testing.B) {
	x := finishedExchange()
	template, err := Compile("%start_time% %request_received_duration% %response_received_duration% %bytes_sent% %bytes_received% " +
		"%protocol% %response_code% %duration% %response_flag% %response_code% %upstream_local_address% " +
		"%downstream_local_address% %downstream_remote_address% %upstream_host%\n")
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = template.Append(buf[:0], x)
	}
}
