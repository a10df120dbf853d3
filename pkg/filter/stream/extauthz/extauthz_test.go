package extauthz

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// fakeService is an authorization service. It keeps the last request as text.
type fakeService struct {
	received string
	respond  func(x *protocol.Exchange) error
}

func (a *fakeService) Start(_ context.Context, x *protocol.Exchange) error {
	var b strings.Builder
	b.WriteString(x.Request.Method + " " + x.Request.Authority + x.Request.Path)
	for name, value := range x.Request.Header.All() {
		b.WriteString(" " + name + ":" + value)
	}
	if x.Request.Body != nil {
		content, err := io.ReadAll(x.Request.Body)
		if err != nil {
			return err
		}
		b.WriteString(" [" + string(content) + "]")
	}
	a.received = b.String()
	if left := time.Until(x.Deadline); left <= 0 || left > time.Minute {
		return errors.New("the question has no deadline")
	}
	return a.respond(x)
}

// respondHTTP returns a handler that sends an HTTP response.
func respondHTTP(code int, body string, fields ...string) func(x *protocol.Exchange) error {
	return func(x *protocol.Exchange) error {
		x.LocalReply(code, "text/html", body)
		filtertest.AddHeaders(&x.Response.Header, fields...)
		return nil
	}
}

// respondMessage returns a handler that sends a gRPC response.
func respondMessage(t *testing.T, m *authv3.CheckResponse) func(x *protocol.Exchange) error {
	t.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return respondFrame(string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))))+string(text), "0")
}

func respondFrame(frame, code string) func(x *protocol.Exchange) error {
	return func(x *protocol.Exchange) error {
		x.LocalReply(200, "application/grpc", frame)
		x.Response.Trailer.Add("grpc-status", code)
		return nil
	}
}

func newGET(fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Protocol, x.Meta.Version, x.Meta.Start = "Http1", "HTTP/1.1", time.Unix(1, 0)
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "GET", "http", "shop.test", "/buy?n=1"
	filtertest.AddHeaders(&x.Request.Header, fields...)
	return x
}

func newPOST(content string, declared bool) *protocol.Exchange {
	x := newGET()
	x.Request.Method, x.Request.Body = "POST", protocol.NewStringBody(content)
	if declared {
		x.Request.ContentLength = int64(len(content))
	}
	return x
}

// serveWith serves x behind the filter and returns what the application received, or what the
// client received.
func serveWith(t *testing.T, settings filtertest.Settings, to *fakeService, x *protocol.Exchange) (string, *filtertest.Counts) {
	t.Helper()
	made, counts := filtertest.BuildWith(t, Factory(), settings, &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"authz": to}})
	return serve(t, made, x), counts
}

func serve(t *testing.T, made filter.Filter, x *protocol.Exchange) string {
	t.Helper()
	var b strings.Builder
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		b.WriteString("passed")
		for name, value := range x.Request.Header.All() {
			b.WriteString(" " + name + ":" + value)
		}
		if x.Request.Body != nil {
			content, err := io.ReadAll(x.Request.Body)
			if err != nil {
				return err
			}
			b.WriteString(" [" + string(content) + "]")
		}
		x.LocalReply(200, "", "")
		return nil
	})
	if err := x.Serve(t.Context(), made(app)); err != nil {
		x.LocalReplyError(err)
	}
	if x.Response.Status != 200 || b.Len() == 0 {
		b.WriteString("refused")
	}
	if r := x.Record.Reason; r != protocol.ReasonNone {
		b.WriteString(" " + r.String())
	}
	if s := x.Response.Status; s != 200 {
		b.WriteString(" " + string(rune('0'+s/100)) + string(rune('0'+s/10%10)) + string(rune('0'+s%10)))
	}
	for name, value := range x.Response.Header.All() {
		b.WriteString(" <" + name + ":" + value + ">")
	}
	return b.String()
}

const httpConfig = `{"http_service": {"server_uri": {"cluster": "authz"}, "path_prefix": "/check",
	"authorization_request": {"allowed_headers": {"patterns": [{"exact": "X-Tenant"}]}, "headers_to_add": [{"key": "x-gate", "value": "front"}]},
	"authorization_response": {
		"allowed_upstream_headers": {"patterns": [{"exact": "x-user"}, {"prefix": "x-auth-"}]},
		"allowed_upstream_headers_to_append": {"patterns": [{"exact": "x-role"}]},
		"allowed_client_headers": {"patterns": [{"exact": "x-why"}]},
		"allowed_client_headers_on_success": {"patterns": [{"exact": "set-cookie"}]},
		"dynamic_metadata_from_headers": {"patterns": [{"exact": "x-tag"}]}}}MORE}`

func httpSettings(more string) filtertest.Settings {
	return filtertest.Settings(strings.Replace(httpConfig, "MORE", more, 1))
}

func TestHTTPService(t *testing.T) {
	for _, test := range []struct {
		name    string
		more    string // settings
		x       *protocol.Exchange
		answer  func(x *protocol.Exchange) error
		asked   string // "": not checked
		outcome string
	}{
		{
			name: "a request passes", x: newGET("Authorization: a", "X-Tenant: blue", "X-Secret: s"), answer: respondHTTP(200, ""),
			asked:   "GET shop.test/check/buy?n=1 Authorization:a X-Tenant:blue x-gate:front",
			outcome: "passed Authorization:a X-Tenant:blue X-Secret:s",
		},
		{
			name: "with fields of the service", x: newGET("X-User: root", "x_user: root", "X-Auth-Level: 9", "X-Role: guest", "X-Tenant: blue"),
			answer:  respondHTTP(200, "", "x-user: ann", "X-Role: admin", "Set-Cookie: a=b", "X-Why: no", "X-Envoy-Auth-Headers-To-Remove: x-tenant, x-none", "x-tag: vip"),
			outcome: "passed X-Role:guest x-user:ann X-Role:admin <Set-Cookie:a=b>",
		},
		{
			name: "a field twice", x: newGET(), answer: respondHTTP(200, "", "x-user: ann", "x-user: bob"), outcome: "passed x-user:ann x-user:bob",
		},
		{
			name: "fields to remove, in two", x: newGET("X-Tenant: blue", "a: b", "c: d"),
			answer: respondHTTP(200, "", "X-Envoy-Auth-Headers-To-Remove: x-tenant", "x-envoy-auth-headers-to-remove: c"), outcome: "passed a:b",
		},
		{
			name: "a refusal", x: newGET(), answer: respondHTTP(418, "no", "X-Why: tea", "X-User: ann", "Location: /login", "Content-Length: 7"),
			outcome: "refused denied 418 <Content-Type:text/plain; charset=utf-8> <X-Why:tea> <Location:/login>",
		},
		{name: "unauthenticated", x: newGET(), answer: respondHTTP(401, "", "WWW-Authenticate: Basic"), outcome: "refused unauthenticated 401 <WWW-Authenticate:Basic>"},
		{name: "a redirection", x: newGET(), answer: respondHTTP(302, "", "Location: /login"), outcome: "refused denied 302 <Location:/login>"},
		{name: "too many", x: newGET(), answer: respondHTTP(429, ""), outcome: "refused rate_limited 429"},
		{name: "a status that is not 200", x: newGET(), answer: respondHTTP(204, ""), outcome: "refused denied 204"},
		{name: "no response", x: newGET(), answer: func(*protocol.Exchange) error { return protocol.NewFault(protocol.UpstreamTimeout, nil) },
			outcome: "refused denied 403 <Content-Type:text/plain; charset=utf-8>"},
		{name: "an error", x: newGET(), answer: respondHTTP(503, ""), outcome: "refused denied 403 <Content-Type:text/plain; charset=utf-8>"},
		{name: "response too large", x: newGET(), answer: respondHTTP(403, strings.Repeat("x", maxResponseBody+1)),
			outcome: "refused denied 403 <Content-Type:text/plain; charset=utf-8>"},
		{name: "another status for errors", more: `, "status_on_error": {"code": 503}`, x: newGET(), answer: respondHTTP(500, ""),
			outcome: "refused denied 503 <Content-Type:text/plain; charset=utf-8>"},
		{name: "open to errors", more: `, "failure_mode_allow": true, "failure_mode_allow_header_add": true`, x: newGET("X-User: root"), answer: respondHTTP(500, ""),
			outcome: "passed X-Envoy-Auth-Failure-Mode-Allowed:true"},
		{name: "open, and no error", more: `, "failure_mode_allow": true, "failure_mode_allow_header_add": true`,
			x: newGET("X_Envoy_Auth_Failure_Mode_Allowed: true"), answer: respondHTTP(200, ""), outcome: "passed"},
		{name: "open, and a field that cannot be", more: `, "failure_mode_allow": true`, x: newGET("a: b"), answer: respondHTTP(200, "", "x-user: a\r\nb: c"), outcome: "passed a:b"},
		{name: "a field that cannot be", x: newGET("a: b"), answer: respondHTTP(200, "", "x-user: a\r\nb: c"),
			outcome: "refused denied 403 <Content-Type:text/plain; charset=utf-8>"},
		{name: "disabled", more: `, "disabled": true`, x: newGET("X-User: root", "a: b"), answer: respondHTTP(403, ""), outcome: "passed a:b"},
		{name: "disallowed header", more: `, "disallowed_headers": {"patterns": [{"exact": "authorization"}]}`, x: newGET("Authorization: a"), answer: respondHTTP(200, ""),
			asked: "GET shop.test/check/buy?n=1 x-gate:front", outcome: "passed Authorization:a"},
		{name: "content", more: `, "with_request_body": {"max_request_bytes": 4}`, x: newPOST("book", true), answer: respondHTTP(200, ""),
			asked: "POST shop.test/check/buy?n=1 x-gate:front X-Envoy-Auth-Partial-Body:false [book]", outcome: "passed [book]"},
		{name: "content of unknown length", more: `, "with_request_body": {"max_request_bytes": 4}`, x: newPOST("book", false), answer: respondHTTP(200, ""),
			asked: "POST shop.test/check/buy?n=1 x-gate:front X-Envoy-Auth-Partial-Body:false [book]", outcome: "passed [book]"},
		{name: "too much content", more: `, "with_request_body": {"max_request_bytes": 3}`, x: newPOST("book", true), answer: respondHTTP(200, ""),
			outcome: "refused body_too_large 413 <Content-Type:text/plain; charset=utf-8>"},
		{name: "too much of unknown length", more: `, "with_request_body": {"max_request_bytes": 3}`, x: newPOST("book", false), answer: respondHTTP(200, ""),
			outcome: "refused body_too_large 413 <Content-Type:text/plain; charset=utf-8>"},
		{name: "the beginning", more: `, "with_request_body": {"max_request_bytes": 3, "allow_partial_message": true}`, x: newPOST("books", true), answer: respondHTTP(200, ""),
			asked: "POST shop.test/check/buy?n=1 x-gate:front X-Envoy-Auth-Partial-Body:true [boo]", outcome: "passed [books]"},
		{name: "no content for this route", more: `, "with_request_body": {"max_request_bytes": 3}, "check_settings": {"disable_request_body_buffering": true}`,
			x: newPOST("book", true), answer: respondHTTP(200, ""), asked: "POST shop.test/check/buy?n=1 x-gate:front", outcome: "passed [book]"},
		{name: "another limit for this route", more: `, "with_request_body": {"max_request_bytes": 3}, "check_settings": {"with_request_body": {"max_request_bytes": 9}}`,
			x: newPOST("book", true), answer: respondHTTP(200, ""), outcome: "passed [book]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := &fakeService{respond: test.answer}
			got, counts := serveWith(t, httpSettings(test.more), to, test.x)
			if got != test.outcome {
				t.Errorf("outcome %q,\nwant    %q", got, test.outcome)
			}
			if test.asked != "" && to.received != test.asked {
				t.Errorf("the service received %q,\nwant                 %q", to.received, test.asked)
			}
			if n, asked := counts.Value(requestsMetric()), to.received != ""; (n == 1) != asked {
				t.Errorf("%v requests are counted; sent to the service: %t", n, asked)
			}
		})
	}
}

func TestHTTPServiceMetadata(t *testing.T) {
	x := newGET()
	serveWith(t, httpSettings(""), &fakeService{respond: respondHTTP(200, "", "X-Tag: vip")}, x)
	if got, _ := x.Metadata.Lookup("envoy.filters.http.ext_authz", "x-tag"); got != "vip" {
		t.Errorf("x-tag is %q, want vip", got)
	}
}

func TestUnusualRequestTargets(t *testing.T) {
	for _, test := range []struct{ name, method, path, asked, outcome string }{
		{"OPTIONS *", "OPTIONS", "*", "OPTIONS shop.test/check/* x-gate:front", "passed"},
		{"CONNECT", "CONNECT", "", "", "refused denied 403 <Content-Type:text/plain; charset=utf-8>"},
	} {
		x := newGET()
		x.Request.Method, x.Request.Path = test.method, test.path
		to := &fakeService{respond: respondHTTP(200, "")}
		if got, _ := serveWith(t, httpSettings(""), to, x); got != test.outcome || to.received != test.asked {
			t.Errorf("%s: the service received %q, outcome %q", test.name, to.received, got)
		}
	}
	x := newGET()
	x.Request.Path, x.Record.OriginalPath, x.Record.OriginalAuthority = "/rewritten", "/asked", "asked.test"
	to := &fakeService{respond: respondHTTP(200, "")}
	serveWith(t, httpSettings(""), to, x)
	if want := "GET asked.test/check/asked x-gate:front"; to.received != want {
		t.Errorf("rewritten request: the service received %q, want %q", to.received, want)
	}
}

const grpcConfig = `{"grpc_service": {"envoy_grpc": {"cluster_name": "authz"}, "initial_metadata": [{"key": "x-gate", "value": "front"}]}, "include_peer_certificate": true}`

// receivedAttributes parses the request that a gRPC service received.
func receivedAttributes(t *testing.T, asked string) *authv3.AttributeContext {
	t.Helper()
	head, frame, _ := strings.Cut(asked, " [")
	if want := "POST authz/envoy.service.auth.v3.Authorization/Check content-type:application/grpc te:trailers grpc-timeout:"; !strings.HasPrefix(head, want) || !strings.HasSuffix(head, "m x-gate:front") {
		t.Errorf("the gRPC request is %q", head)
	}
	m := new(authv3.CheckRequest)
	if err := proto.Unmarshal([]byte(strings.TrimSuffix(frame, "]"))[prefixLen:], m); err != nil {
		t.Fatal(err)
	}
	return m.GetAttributes()
}

func TestGRPCServiceReceivesAttributes(t *testing.T) {
	x := newGET("X-A: 1", "x-a: 2", "Cookie: \xff", "X-Envoy-Auth-Partial-Body: true")
	x.Meta.Conn = &protocol.ConnMeta{
		Remote: netip.MustParseAddrPort("192.0.2.1:4711"), Local: netip.MustParseAddrPort("192.0.2.2:80"),
		TLS: &protocol.TLS{ServerName: "shop.test", Peer: &protocol.Certificate{Subject: "CN=cart", URISANs: []string{"spiffe://shop/cart"}, Raw: [][]byte{{1, 2}}}},
	}
	x.Request.Body, x.Request.ContentLength = protocol.NewStringBody("book"), 4
	settings := filtertest.Settings(strings.Replace(grpcConfig, `"include_peer`, `"include_tls_session": true, "with_request_body": {"max_request_bytes": 9},
		"check_settings": {"context_extensions": {"realm": "shop"}}, "include_peer`, 1))
	to := &fakeService{respond: respondMessage(t, &authv3.CheckResponse{})}
	if got, _ := serveWith(t, settings, to, x); !strings.HasPrefix(got, "passed X-A:1 x-a:2") || !strings.HasSuffix(got, "[book]") {
		t.Fatalf("outcome %q", got)
	}
	a := receivedAttributes(t, to.received)
	r := a.GetRequest().GetHttp()
	for name, want := range map[string]string{
		":authority": "shop.test", ":method": "GET", ":path": "/buy?n=1", ":scheme": "http", "x-a": "1,2", "cookie": "!", "x-envoy-auth-partial-body": "false",
	} {
		if got := r.GetHeaders()[name]; got != want {
			t.Errorf("the service received %s: %q, want %q", name, got, want)
		}
	}
	for what, pair := range map[string][2]string{
		"method": {r.GetMethod(), "GET"}, "path": {r.GetPath(), "/buy?n=1"}, "host": {r.GetHost(), "shop.test"}, "protocol": {r.GetProtocol(), "HTTP/1.1"}, "body": {r.GetBody(), "book"},
		"principal": {a.GetSource().GetPrincipal(), "spiffe://shop/cart"}, "caller": {a.GetSource().GetAddress().GetSocketAddress().GetAddress(), "192.0.2.1"},
		"certificate": {a.GetSource().GetCertificate(), "-----BEGIN%20CERTIFICATE-----%0AAQI%3D%0A-----END%20CERTIFICATE-----%0A"},
		"name":        {a.GetTlsSession().GetSni(), "shop.test"}, "extension": {a.GetContextExtensions()["realm"], "shop"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("the service received the %s %q, want %q", what, pair[0], pair[1])
		}
	}
}

func TestGRPCService(t *testing.T) {
	closed := "refused denied 403 <Content-Type:text/plain; charset=utf-8>"
	for _, test := range []struct {
		name    string
		answer  func(x *protocol.Exchange) error
		outcome string
	}{
		{"yes", respondMessage(t, &authv3.CheckResponse{}), "passed a:b"},
		{"no", respondMessage(t, &authv3.CheckResponse{Status: &status.Status{Code: 7}}), "refused denied 403"},
		{"it is not there", respondFrame("", "14"), closed},
		{"error in grpc-status", respondFrame("", "7"), closed},
		{"no message", respondFrame("", "0"), closed},
		{"two messages", respondFrame("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "0"), closed},
		{"compressed", respondFrame("\x01\x00\x00\x00\x00", "0"), closed},
		{"invalid message", respondFrame("\x00\x00\x00\x00\x01\x0a", "0"), closed},
		{"HTTP response", respondHTTP(200, "yes"), closed},
		{"no response", func(*protocol.Exchange) error { return protocol.NewFault(protocol.NoHealthyHost, nil) }, closed},
		{"client disconnected", func(*protocol.Exchange) error { return protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil) },
			"refused downstream_gone 499 <Content-Type:text/plain; charset=utf-8>"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := serveWith(t, grpcConfig, &fakeService{respond: test.answer}, newGET("a: b")); got != test.outcome {
				t.Errorf("outcome %q, want %q", got, test.outcome)
			}
		})
	}
}

func TestRouteOverrides(t *testing.T) {
	kind := Factory()
	listener := filtertest.Decode(t, kind, httpSettings(""))
	for _, test := range []struct{ name, own, asked, outcome string }{
		{"disabled", `{"disabled": true}`, "", "passed a:b"},
		{"settings", `{"check_settings": {"with_request_body": {"max_request_bytes": 9}}}`, "GET shop.test/check/buy?n=1 x-gate:front X-Envoy-Auth-Partial-Body:false", "passed a:b"},
		{"a service", `{"http_service": {"server_uri": {"cluster": "authz"}}}`, "GET shop.test/buy?n=1", "passed X-User:root a:b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := &fakeService{respond: respondHTTP(200, "")}
			env := filter.Env{Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(metrics.Options{}),
				ClusterClient: &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"authz": to}}}
			made, err := kind.New(kind.Inherit(listener, filtertest.Decode(t, kind, filtertest.Settings(test.own))), env)
			if err != nil {
				t.Fatal(err)
			}
			if got := serve(t, made, newGET("X-User: root", "a: b")); got != test.outcome || to.received != test.asked {
				t.Errorf("the service received %q, outcome %q; want %q, %q", to.received, got, test.asked, test.outcome)
			}
		})
	}
	if _, err := kind.New(filtertest.Decode(t, kind, `{"check_settings": {}}`), filter.Env{Metrics: metrics.New(metrics.Options{})}); err == nil {
		t.Error("a listener without a service was accepted")
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for settings, want := range map[filtertest.Settings]string{
		`{}`: "expected http_service or grpc_service",
		`{"grpc_service": {"cluster": "a"}, "http_service": {"server_uri": {"cluster": "a"}}}`: "expected one of",
		`{"grpc_service": {}}`: "expected one of envoy_grpc and cluster",
		`{"grpc_service": {"google_grpc": {"target_uri": "a"}}}`:                                  "google_grpc",
		`{"grpc_service": {"cluster": "a"}, "clear_route_cache": true}`:                           "clear_route_cache",
		`{"grpc_service": {"cluster": "a"}, "transport_api_version": "V2"}`:                       "V3",
		`{"grpc_service": {"cluster": "a", "initial_metadata": [{"key": "Host", "value": "a"}]}}`: "Host",
		`{"grpc_service": {"cluster": "a"}, "allowed_headers": {"patterns": [{"prefix": ""}]}}`:   "prefix is empty",
		`{"http_service": {"server_uri": {"cluster": "a"}, "path_prefix": "check"}}`:              "path_prefix",
		`{"http_service": {"server_uri": {"cluster": "a", "uri": "authz"}}}`:                      "not a valid http or https URL",
		`{"http_service": {}}`: "server_uri",
		`{"disabled": true, "disallowed_headers": {"patterns": [{"exact": "cookie"}]}}`:                               "requires http_service or grpc_service",
		`{"check_settings": {}, "failure_mode_allow": false}`:                                                         "requires http_service or grpc_service",
		`{"check_settings": {}, "status_on_error": {"code": 503}}`:                                                    "requires http_service or grpc_service",
		`{"check_settings": {"disable_request_body_buffering": true, "with_request_body": {"max_request_bytes": 1}}}`: "mutually exclusive",
		`{"http_service": {"server_uri": {"cluster": "a"}}, "with_request_body": {"allow_partial_message": true}}`:    "max_request_bytes",
		`{"http_service": {"server_uri": {"cluster": "a"}}, "status_on_error": {"code": 200}}`:                        "code",
		`{"http_service": {"server_uri": {"cluster": "a"}}, "filter_enabled": {"default_value": {"numerator": 5}}}`:   "filter_enabled",
	} {
		if got := filtertest.DecodeErrors(t, Factory(), settings); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q in it", settings, got, want)
		}
	}
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 4 {
		t.Fatalf("%d examples, want 4", len(examples))
	}
	to := &fakeService{respond: respondHTTP(200, "", "x-auth-level: 1")}
	if got, _ := serveWith(t, examples[0], to, newGET("X-User: root", "Cookie: c")); got != "passed Cookie:c x-auth-level:1" || to.received != "GET shop.test/check/buy?n=1 Cookie:c" {
		t.Errorf("the service received %q, outcome %q", to.received, got)
	}
	to = &fakeService{respond: respondMessage(t, &authv3.CheckResponse{})}
	if got, _ := serveWith(t, examples[1], to, newPOST(strings.Repeat("x", 10_000), true)); len(got) < 10_000 || len(to.received) < 8000 || len(to.received) > 9000 {
		t.Errorf("the service received %d bytes, the application %d", len(to.received), len(got))
	}
	listener := filtertest.Decode(t, Factory(), examples[0])
	public := inherit(listener, filtertest.Decode(t, Factory(), examples[2])).(*Config)
	shop := inherit(listener, filtertest.Decode(t, Factory(), examples[3])).(*Config)
	if !public.Disabled || shop.Disabled || shop.Check.Extensions["realm"] != "shop" || shop.HTTP == nil {
		t.Errorf("the routes are %+v and %+v", public, shop)
	}
}

// TestBufferedBodyRewinds verifies that a body that the service received can be rewound
// even if the source cannot be.
func TestBufferedBodyRewinds(t *testing.T) {
	for _, declared := range []bool{true, false} {
		x := newPOST("book", declared)
		x.Request.Body = struct{ protocol.Body }{x.Request.Body}
		if _, _, err := bufferBody(x, &BufferSettings{MaxRequestBytes: 9}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := io.ReadAll(x.Request.Body); err != nil || string(got) != "book" {
				t.Errorf("declared %t: %q, %v", declared, got, err)
			}
			if !x.Request.Body.(protocol.Rewinder).Rewind() {
				t.Errorf("declared %t: the body cannot be rewound", declared)
			}
		}
	}
}

// TestPartiallyBufferedBodyRewinds verifies that a body can be rewound whether the service received
// all of it or only its beginning.
func TestPartiallyBufferedBodyRewinds(t *testing.T) {
	for _, test := range []struct {
		most     int
		declared bool
	}{{3, true}, {3, false}, {4, true}, {4, false}, {9, true}, {9, false}} {
		x := newPOST("book", test.declared)
		if _, _, err := bufferBody(x, &BufferSettings{MaxRequestBytes: test.most, Partial: true}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n := x.Request.Body.Buffered(); n != 4 {
				t.Errorf("%+v: %d bytes are buffered, want 4", test, n)
			}
			if got, err := io.ReadAll(x.Request.Body); err != nil || string(got) != "book" {
				t.Errorf("%+v: %q, %v", test, got, err)
			}
			if !x.Request.Body.(protocol.Rewinder).Rewind() {
				t.Errorf("%+v: the body cannot be rewound", test)
			}
		}
	}
}
