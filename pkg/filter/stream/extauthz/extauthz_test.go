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

// fakeService is an authorization service. It records the last request as text.
type fakeService struct {
	received string
	respond  func(x *protocol.Exchange) error
}

func (s *fakeService) Start(_ context.Context, x *protocol.Exchange) error {
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
	s.received = b.String()
	if timeout := time.Until(x.Deadline); timeout <= 0 || timeout > time.Minute {
		return errors.New("the request has no deadline within a minute")
	}
	return s.respond(x)
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
	message, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return respondFrame(string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))))+string(message), "0")
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

// serveWith serves x behind the filter and describes the outcome: "passed" with the request that
// the application received, or "rejected", and then the reason, the status and the response
// headers.
func serveWith(t *testing.T, settings filtertest.Settings, service *fakeService, x *protocol.Exchange) (string, *filtertest.Probe) {
	t.Helper()
	f, counts := filtertest.BuildWith(t, Factory(), settings, &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"authz": service}})
	return serve(t, f, x), counts
}

func serve(t *testing.T, f filter.Filter, x *protocol.Exchange) string {
	t.Helper()
	var result strings.Builder
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		result.WriteString("passed")
		for name, value := range x.Request.Header.All() {
			result.WriteString(" " + name + ":" + value)
		}
		if x.Request.Body != nil {
			content, err := io.ReadAll(x.Request.Body)
			if err != nil {
				return err
			}
			result.WriteString(" [" + string(content) + "]")
		}
		x.LocalReply(200, "", "")
		return nil
	})
	if err := x.Serve(t.Context(), f(app)); err != nil {
		x.LocalReplyError(err)
	}
	if x.Response.Status != 200 || result.Len() == 0 {
		result.WriteString("rejected")
	}
	if r := x.Record.Reason; r != protocol.ReasonNone {
		result.WriteString(" " + r.String())
	}
	if s := x.Response.Status; s != 200 {
		result.WriteString(" " + string(rune('0'+s/100)) + string(rune('0'+s/10%10)) + string(rune('0'+s%10)))
	}
	for name, value := range x.Response.Header.All() {
		result.WriteString(" <" + name + ":" + value + ">")
	}
	return result.String()
}

const httpConfig = `{"http_service": {"server_uri": {"cluster": "authz"}, "path_prefix": "/check",
	"authorization_request": {"allowed_headers": {"patterns": [{"exact": "X-Tenant"}]}, "headers_to_add": [{"key": "x-gate", "value": "front"}]},
	"authorization_response": {
		"allowed_upstream_headers": {"patterns": [{"exact": "x-user"}, {"prefix": "x-auth-"}]},
		"allowed_upstream_headers_to_append": {"patterns": [{"exact": "x-role"}]},
		"allowed_client_headers": {"patterns": [{"exact": "x-why"}]},
		"allowed_client_headers_on_success": {"patterns": [{"exact": "set-cookie"}]},
		"dynamic_metadata_from_headers": {"patterns": [{"exact": "x-tag"}]}}}EXTRA}`

func httpSettings(extra string) filtertest.Settings {
	return filtertest.Settings(strings.Replace(httpConfig, "EXTRA", extra, 1))
}

func TestHTTPService(t *testing.T) {
	for _, test := range []struct {
		name        string
		extra       string // additional settings
		x           *protocol.Exchange
		respond     func(x *protocol.Exchange) error
		wantRequest string // "": not checked
		want        string
	}{
		{
			name: "allowed", x: newGET("Authorization: a", "X-Tenant: blue", "X-Secret: s"), respond: respondHTTP(200, ""),
			wantRequest: "GET shop.test/check/buy?n=1 Authorization:a X-Tenant:blue x-gate:front",
			want:        "passed Authorization:a X-Tenant:blue X-Secret:s",
		},
		{
			name: "allowed, with headers of the service", x: newGET("X-User: root", "x_user: root", "X-Auth-Level: 9", "X-Role: guest", "X-Tenant: blue"),
			respond: respondHTTP(200, "", "x-user: ann", "X-Role: admin", "Set-Cookie: a=b", "X-Why: no", "X-Envoy-Auth-Headers-To-Remove: x-tenant, x-none", "x-tag: vip"),
			want:    "passed X-Role:guest x-user:ann X-Role:admin <Set-Cookie:a=b>",
		},
		{
			name: "repeated header of the service", x: newGET(), respond: respondHTTP(200, "", "x-user: ann", "x-user: bob"), want: "passed x-user:ann x-user:bob",
		},
		{
			name: "two lists of headers to remove", x: newGET("X-Tenant: blue", "a: b", "c: d"),
			respond: respondHTTP(200, "", "X-Envoy-Auth-Headers-To-Remove: x-tenant", "x-envoy-auth-headers-to-remove: c"), want: "passed a:b",
		},
		{
			name: "rejection", x: newGET(), respond: respondHTTP(418, "no", "X-Why: tea", "X-User: ann", "Location: /login", "Content-Length: 7"),
			want: "rejected denied 418 <Content-Type:text/plain; charset=utf-8> <X-Why:tea> <Location:/login>",
		},
		{name: "unauthenticated", x: newGET(), respond: respondHTTP(401, "", "WWW-Authenticate: Basic"), want: "rejected unauthenticated 401 <WWW-Authenticate:Basic>"},
		{name: "redirect", x: newGET(), respond: respondHTTP(302, "", "Location: /login"), want: "rejected denied 302 <Location:/login>"},
		{name: "rate limited", x: newGET(), respond: respondHTTP(429, ""), want: "rejected rate_limited 429"},
		{name: "status 204", x: newGET(), respond: respondHTTP(204, ""), want: "rejected denied 204"},
		{name: "no response", x: newGET(), respond: func(*protocol.Exchange) error { return protocol.NewFault(protocol.UpstreamTimeout, nil) },
			want: "rejected denied 403 <Content-Type:text/plain; charset=utf-8>"},
		{name: "error response", x: newGET(), respond: respondHTTP(503, ""), want: "rejected denied 403 <Content-Type:text/plain; charset=utf-8>"},
		{name: "response too large", x: newGET(), respond: respondHTTP(403, strings.Repeat("x", maxResponseBody+1)),
			want: "rejected denied 403 <Content-Type:text/plain; charset=utf-8>"},
		{name: "status_on_error", extra: `, "status_on_error": {"code": 503}`, x: newGET(), respond: respondHTTP(500, ""),
			want: "rejected denied 503 <Content-Type:text/plain; charset=utf-8>"},
		{name: "fails open", extra: `, "failure_mode_allow": true, "failure_mode_allow_header_add": true`, x: newGET("X-User: root"), respond: respondHTTP(500, ""),
			want: "passed X-Envoy-Auth-Failure-Mode-Allowed:true"},
		{name: "failure_mode_allow without a failure", extra: `, "failure_mode_allow": true, "failure_mode_allow_header_add": true`,
			x: newGET("X_Envoy_Auth_Failure_Mode_Allowed: true"), respond: respondHTTP(200, ""), want: "passed"},
		{name: "fails open after an invalid header", extra: `, "failure_mode_allow": true`, x: newGET("a: b"), respond: respondHTTP(200, "", "x-user: a\r\nb: c"), want: "passed a:b"},
		{name: "invalid header", x: newGET("a: b"), respond: respondHTTP(200, "", "x-user: a\r\nb: c"),
			want: "rejected denied 403 <Content-Type:text/plain; charset=utf-8>"},
		{name: "disabled", extra: `, "disabled": true`, x: newGET("X-User: root", "a: b"), respond: respondHTTP(403, ""), want: "passed a:b"},
		{name: "disallowed header", extra: `, "disallowed_headers": {"patterns": [{"exact": "authorization"}]}`, x: newGET("Authorization: a"), respond: respondHTTP(200, ""),
			wantRequest: "GET shop.test/check/buy?n=1 x-gate:front", want: "passed Authorization:a"},
		{name: "body", extra: `, "with_request_body": {"max_request_bytes": 4}`, x: newPOST("book", true), respond: respondHTTP(200, ""),
			wantRequest: "POST shop.test/check/buy?n=1 x-gate:front X-Envoy-Auth-Partial-Body:false [book]", want: "passed [book]"},
		{name: "body of unknown length", extra: `, "with_request_body": {"max_request_bytes": 4}`, x: newPOST("book", false), respond: respondHTTP(200, ""),
			wantRequest: "POST shop.test/check/buy?n=1 x-gate:front X-Envoy-Auth-Partial-Body:false [book]", want: "passed [book]"},
		{name: "body too large", extra: `, "with_request_body": {"max_request_bytes": 3}`, x: newPOST("book", true), respond: respondHTTP(200, ""),
			want: "rejected body_too_large 413 <Content-Type:text/plain; charset=utf-8>"},
		{name: "body of unknown length too large", extra: `, "with_request_body": {"max_request_bytes": 3}`, x: newPOST("book", false), respond: respondHTTP(200, ""),
			want: "rejected body_too_large 413 <Content-Type:text/plain; charset=utf-8>"},
		{name: "partial body", extra: `, "with_request_body": {"max_request_bytes": 3, "allow_partial_message": true}`, x: newPOST("books", true), respond: respondHTTP(200, ""),
			wantRequest: "POST shop.test/check/buy?n=1 x-gate:front X-Envoy-Auth-Partial-Body:true [boo]", want: "passed [books]"},
		{name: "check_settings disable the body", extra: `, "with_request_body": {"max_request_bytes": 3}, "check_settings": {"disable_request_body_buffering": true}`,
			x: newPOST("book", true), respond: respondHTTP(200, ""), wantRequest: "POST shop.test/check/buy?n=1 x-gate:front", want: "passed [book]"},
		{name: "check_settings replace the body limit", extra: `, "with_request_body": {"max_request_bytes": 3}, "check_settings": {"with_request_body": {"max_request_bytes": 9}}`,
			x: newPOST("book", true), respond: respondHTTP(200, ""), want: "passed [book]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := &fakeService{respond: test.respond}
			got, counts := serveWith(t, httpSettings(test.extra), service, test.x)
			if got != test.want {
				t.Errorf("outcome %q,\nwant    %q", got, test.want)
			}
			if test.wantRequest != "" && service.received != test.wantRequest {
				t.Errorf("the service received %q,\nwant                 %q", service.received, test.wantRequest)
			}
			if n, sent := counts.Value(requestsMetric()), service.received != ""; (n == 1) != sent {
				t.Errorf("request counter = %v; sent to the service: %t, want 1 if sent", n, sent)
			}
		})
	}
}

// TestHTTPServiceMetadata verifies that the metadata has the name of the header in lower case, also
// after the memory of the response was overwritten.
func TestHTTPServiceMetadata(t *testing.T) {
	for _, name := range []string{"X-Tag", "x-tag"} {
		x := newGET()
		serveWith(t, httpSettings(""), &fakeService{respond: respondHTTP(200, "", name+": vip")}, x)
		if got, ok := x.Metadata.Lookup("envoy.filters.http.ext_authz", "x-tag"); got != "vip" {
			t.Errorf("%s: metadata x-tag = %q, %t; want vip", name, got, ok)
		}
	}
}

func TestUnusualRequestTargets(t *testing.T) {
	for _, test := range []struct{ name, method, path, wantRequest, want string }{
		{"OPTIONS *", "OPTIONS", "*", "OPTIONS shop.test/check/* x-gate:front", "passed"},
		{"CONNECT", "CONNECT", "", "", "rejected denied 403 <Content-Type:text/plain; charset=utf-8>"},
	} {
		x := newGET()
		x.Request.Method, x.Request.Path = test.method, test.path
		service := &fakeService{respond: respondHTTP(200, "")}
		if got, _ := serveWith(t, httpSettings(""), service, x); got != test.want || service.received != test.wantRequest {
			t.Errorf("%s: the service received %q, outcome %q; want %q, %q", test.name, service.received, got, test.wantRequest, test.want)
		}
	}
	x := newGET()
	x.Request.Path, x.Record.OriginalPath, x.Record.OriginalAuthority = "/rewritten", "/original", "original.test"
	service := &fakeService{respond: respondHTTP(200, "")}
	serveWith(t, httpSettings(""), service, x)
	if want := "GET original.test/check/original x-gate:front"; service.received != want {
		t.Errorf("rewritten request: the service received %q, want %q", service.received, want)
	}
}

const grpcConfig = `{"grpc_service": {"envoy_grpc": {"cluster_name": "authz"}, "initial_metadata": [{"key": "x-gate", "value": "front"}]}, "include_peer_certificate": true}`

// receivedAttributes parses the request that a gRPC service received.
func receivedAttributes(t *testing.T, request string) *authv3.AttributeContext {
	t.Helper()
	head, frame, _ := strings.Cut(request, " [")
	if want := "POST authz/envoy.service.auth.v3.Authorization/Check content-type:application/grpc te:trailers grpc-timeout:"; !strings.HasPrefix(head, want) || !strings.HasSuffix(head, "m x-gate:front") {
		t.Errorf("gRPC request = %q, want the prefix %q and the header x-gate", head, want)
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
	service := &fakeService{respond: respondMessage(t, &authv3.CheckResponse{})}
	if got, _ := serveWith(t, settings, service, x); !strings.HasPrefix(got, "passed X-A:1 x-a:2") || !strings.HasSuffix(got, "[book]") {
		t.Fatalf("outcome %q, want the request with its body at the application", got)
	}
	a := receivedAttributes(t, service.received)
	r := a.GetRequest().GetHttp()
	for name, want := range map[string]string{
		":authority": "shop.test", ":method": "GET", ":path": "/buy?n=1", ":scheme": "http", "x-a": "1,2", "cookie": "!", "x-envoy-auth-partial-body": "false",
	} {
		if got := r.GetHeaders()[name]; got != want {
			t.Errorf("the service received %s: %q, want %q", name, got, want)
		}
	}
	for attribute, pair := range map[string][2]string{
		"method": {r.GetMethod(), "GET"}, "path": {r.GetPath(), "/buy?n=1"}, "host": {r.GetHost(), "shop.test"}, "protocol": {r.GetProtocol(), "HTTP/1.1"}, "body": {r.GetBody(), "book"},
		"principal": {a.GetSource().GetPrincipal(), "spiffe://shop/cart"}, "caller": {a.GetSource().GetAddress().GetSocketAddress().GetAddress(), "192.0.2.1"},
		"certificate": {a.GetSource().GetCertificate(), "-----BEGIN%20CERTIFICATE-----%0AAQI%3D%0A-----END%20CERTIFICATE-----%0A"},
		"name":        {a.GetTlsSession().GetSni(), "shop.test"}, "extension": {a.GetContextExtensions()["realm"], "shop"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("the service received the %s %q, want %q", attribute, pair[0], pair[1])
		}
	}
}

func TestGRPCService(t *testing.T) {
	rejection := "rejected denied 403 <Content-Type:text/plain; charset=utf-8>"
	for _, test := range []struct {
		name    string
		respond func(x *protocol.Exchange) error
		want    string
	}{
		{"allowed", respondMessage(t, &authv3.CheckResponse{}), "passed a:b"},
		{"denied", respondMessage(t, &authv3.CheckResponse{Status: &status.Status{Code: 7}}), "rejected denied 403"},
		{"unavailable", respondFrame("", "14"), rejection},
		{"error in grpc-status", respondFrame("", "7"), rejection},
		{"no message", respondFrame("", "0"), rejection},
		{"two messages", respondFrame("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "0"), rejection},
		{"compressed", respondFrame("\x01\x00\x00\x00\x00", "0"), rejection},
		{"invalid message", respondFrame("\x00\x00\x00\x00\x01\x0a", "0"), rejection},
		{"HTTP response", respondHTTP(200, "yes"), rejection},
		{"no response", func(*protocol.Exchange) error { return protocol.NewFault(protocol.NoHealthyHost, nil) }, rejection},
		{"client disconnected", func(*protocol.Exchange) error { return protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil) },
			"rejected downstream_gone 499 <Content-Type:text/plain; charset=utf-8>"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := serveWith(t, grpcConfig, &fakeService{respond: test.respond}, newGET("a: b")); got != test.want {
				t.Errorf("outcome %q, want %q", got, test.want)
			}
		})
	}
}

func TestRouteOverrides(t *testing.T) {
	factory := Factory()
	listener := filtertest.Decode(t, factory, httpSettings(""))
	for _, test := range []struct{ name, override, wantRequest, want string }{
		{"disabled", `{"disabled": true}`, "", "passed a:b"},
		{"check_settings", `{"check_settings": {"with_request_body": {"max_request_bytes": 9}}}`, "GET shop.test/check/buy?n=1 x-gate:front X-Envoy-Auth-Partial-Body:false", "passed a:b"},
		{"another service", `{"http_service": {"server_uri": {"cluster": "authz"}}}`, "GET shop.test/buy?n=1", "passed X-User:root a:b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := &fakeService{respond: respondHTTP(200, "")}
			env := filter.Env{Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(metrics.Options{}),
				ClusterClient: &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"authz": service}}}
			f, err := factory.New(factory.Inherit(listener, filtertest.Decode(t, factory, filtertest.Settings(test.override))), env)
			if err != nil {
				t.Fatal(err)
			}
			if got := serve(t, f, newGET("X-User: root", "a: b")); got != test.want || service.received != test.wantRequest {
				t.Errorf("the service received %q, outcome %q; want %q, %q", service.received, got, test.wantRequest, test.want)
			}
		})
	}
	if _, err := factory.New(filtertest.Decode(t, factory, `{"check_settings": {}}`), filter.Env{Metrics: metrics.New(metrics.Options{})}); err == nil {
		t.Error("New accepted a listener without a service")
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for settings, want := range map[filtertest.Settings]string{
		`{}`: "expected http_service or grpc_service",
		`{"grpc_service": {"cluster": "a"}, "http_service": {"server_uri": {"cluster": "a"}}}`: "expected one of",
		`{"grpc_service": {}}`: "expected one of envoy_grpc and cluster",
		`{"grpc_service": {"google_grpc": {"target_uri": "a"}}}`:                                                                            "google_grpc",
		`{"grpc_service": {"cluster": "a"}, "clear_route_cache": true}`:                                                                     "clear_route_cache",
		`{"grpc_service": {"cluster": "a"}, "transport_api_version": "V2"}`:                                                                 "V3",
		`{"grpc_service": {"cluster": "a", "initial_metadata": [{"key": "Host", "value": "a"}]}}`:                                           `grpc_service.initial_metadata: header "Host" cannot be set`,
		`{"http_service": {"server_uri": {"cluster": "a"}, "authorization_request": {"headers_to_add": [{"key": ":path", "value": "a"}]}}}`: `http_service.authorization_request.headers_to_add: header ":path" cannot be set`,
		`{"grpc_service": {"cluster": "a"}, "allowed_headers": {"patterns": [{"prefix": ""}]}}`:                                             "prefix is empty",
		`{"http_service": {"server_uri": {"cluster": "a"}, "path_prefix": "check"}}`:                                                        "path_prefix",
		`{"http_service": {"server_uri": {"cluster": "a", "uri": "authz"}}}`:                                                                "not a valid http or https URL",
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
			t.Errorf("%s: %s, want an error with %q", settings, got, want)
		}
	}
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 4 {
		t.Fatalf("%d examples, want 4", len(examples))
	}
	service := &fakeService{respond: respondHTTP(200, "", "x-auth-level: 1")}
	if got, _ := serveWith(t, examples[0], service, newGET("X-User: root", "Cookie: c")); got != "passed Cookie:c x-auth-level:1" || service.received != "GET shop.test/check/buy?n=1 Cookie:c" {
		t.Errorf("the service received %q, outcome %q; want %q, %q", service.received, got, "GET shop.test/check/buy?n=1 Cookie:c", "passed Cookie:c x-auth-level:1")
	}
	service = &fakeService{respond: respondMessage(t, &authv3.CheckResponse{})}
	if got, _ := serveWith(t, examples[1], service, newPOST(strings.Repeat("x", 10_000), true)); len(got) < 10_000 || len(service.received) < 8000 || len(service.received) > 9000 {
		t.Errorf("the service received %d bytes, want 8000 to 9000; the application received %d, want at least 10000", len(service.received), len(got))
	}
	listener := filtertest.Decode(t, Factory(), examples[0])
	public := inherit(listener, filtertest.Decode(t, Factory(), examples[2])).(*Config)
	shop := inherit(listener, filtertest.Decode(t, Factory(), examples[3])).(*Config)
	if !public.Disabled || shop.Disabled || shop.Check.Extensions["realm"] != "shop" || shop.HTTP == nil {
		t.Errorf("effective configurations of the routes: %+v and %+v, want the first disabled and the second with the realm \"shop\"", public, shop)
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
				t.Errorf("declared %t: read %q, %v, want book", declared, got, err)
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
		maxBytes int
		declared bool
	}{{3, true}, {3, false}, {4, true}, {4, false}, {9, true}, {9, false}} {
		x := newPOST("book", test.declared)
		if _, _, err := bufferBody(x, &BufferSettings{MaxRequestBytes: test.maxBytes, AllowPartial: true}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n := x.Request.Body.Buffered(); n != 4 {
				t.Errorf("%+v: %d bytes are buffered, want 4", test, n)
			}
			if got, err := io.ReadAll(x.Request.Body); err != nil || string(got) != "book" {
				t.Errorf("%+v: read %q, %v, want book", test, got, err)
			}
			if !x.Request.Body.(protocol.Rewinder).Rewind() {
				t.Errorf("%+v: the body cannot be rewound", test)
			}
		}
	}
}
