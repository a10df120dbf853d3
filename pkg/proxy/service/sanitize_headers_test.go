package service

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// sanitizedHeaders returns the request headers that filters and routes see, one per line, without
// those of every test exchange. headers are the headers that the client sends.
func sanitizedHeaders(t *testing.T, p *config.Proxy, conn *protocol.ConnMeta, headers ...string) (string, *protocol.Exchange) {
	t.Helper()
	x := newTestExchange(headers...)
	x.Meta.Protocol = string(config.HTTP1)
	x.Meta.Conn = conn
	got := ""
	f := Forwarded(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		got = strings.TrimPrefix(headerLines(&x.Request.Header), "Authorization: secret-token\nCookie: secret-cookie\n")
		return nil
	}), p)
	if err := x.Serve(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	return got, x
}

func connFrom(ip string) *protocol.ConnMeta {
	return &protocol.ConnMeta{Remote: netip.AddrPortFrom(netip.MustParseAddr(ip), 1234), RemoteIP: ip}
}

func TestTimeoutOverridesAreRemovedFromUntrustedClients(t *testing.T) {
	headers := []string{"X-Mosn-Global-Timeout: 86400000", "x-mosn-try-timeout: 1", "x-mosn-try-timeout: 2", "x-mosn-other-thing: 1"}
	for _, test := range []struct {
		name string
		c    config.ClientHeaders
		want string
	}{
		{"by default", config.ClientHeaders{}, "x-mosn-other-thing: 1\n"},
		{"trusted client", config.ClientHeaders{OverrideTimeouts: true}, strings.Join(headers, "\n") + "\n"},
		{"Envoy rules", config.ClientHeaders{Envoy: &config.EnvoyHeaders{}}, "x-mosn-other-thing: 1\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &config.Proxy{ClientHeaders: test.c}
			if got, _ := sanitizedHeaders(t, p, connFrom("192.0.2.1"), headers...); got != test.want {
				t.Errorf("headers:\n%swant:\n%s", got, test.want)
			}
			x := newTestExchange(headers...)
			x.Request.Method = "" // RPC
			f := Forwarded(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), p)
			if err := x.Serve(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if _, ok := x.Request.Header.Lookup("x-mosn-global-timeout"); ok != test.c.OverrideTimeouts {
				t.Errorf("an RPC request keeps x-mosn-global-timeout: %v, want %v", ok, test.c.OverrideTimeouts)
			}
		})
	}
}

// envoyHeaders lists all x-envoy-* headers of requests that Envoy 1.40 knows, and some others.
var envoyHeaders = []string{
	"x-envoy-attempt-count", "x-envoy-decorator-operation", "x-envoy-downstream-service-cluster", "x-envoy-downstream-service-node",
	"x-envoy-expected-rq-timeout-ms", "x-envoy-external-address", "X-Envoy-Force-Trace", "x-envoy-hedge-on-per-try-timeout", "x-envoy-internal",
	"x-envoy-ip-tags", "x-envoy-is-timeout-retry", "x-envoy-max-retries", "x-envoy-original-dst-host", "x-envoy-original-host",
	"x-envoy-original-path", "x-envoy-original-url", "x-envoy-peer-metadata", "x-envoy-retriable-header-names",
	"x-envoy-retriable-status-codes", "x-envoy-retry-grpc-on", "X-ENVOY-RETRY-ON", "x-envoy-upstream-alt-stat-name",
	"x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-upstream-rq-timeout-alt-response", "x-envoy-upstream-rq-timeout-ms",
	"x-envoy-upstream-stream-duration-ms", "x-envoy-foo", "x-mosn-original-path", "x-forwarded-host",
}

func TestEnvoyHeadersAreSanitizedLikeEnvoy(t *testing.T) {
	const (
		keptFromAnyClient = "x-envoy-attempt-count x-envoy-is-timeout-retry x-envoy-original-dst-host x-envoy-peer-metadata x-envoy-foo x-forwarded-host"
		keptInsideMesh    = keptFromAnyClient + " x-envoy-decorator-operation x-envoy-downstream-service-cluster x-envoy-downstream-service-node" +
			" x-envoy-external-address x-envoy-original-host x-envoy-original-path x-mosn-original-path"
		// RouterHeaders removes the control headers of internal clients.
		keptFromInternal = keptInsideMesh + " x-envoy-expected-rq-timeout-ms x-envoy-force-trace x-envoy-ip-tags x-envoy-original-url x-envoy-internal" +
			" x-envoy-hedge-on-per-try-timeout x-envoy-max-retries x-envoy-retriable-header-names x-envoy-retriable-status-codes x-envoy-retry-grpc-on" +
			" x-envoy-retry-on x-envoy-upstream-alt-stat-name x-envoy-upstream-rq-per-try-timeout-ms x-envoy-upstream-rq-timeout-alt-response" +
			" x-envoy-upstream-rq-timeout-ms x-envoy-upstream-stream-duration-ms"
	)
	net10 := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	edgeOptions := config.HTTP1Options{XForwarded: config.ForwardedAppend, XForwardedProto: config.ForwardedProtoSet, XFFBareAddressOnly: true}
	insideOptions := config.HTTP1Options{XFFClientIndex: 1, XFFBareAddressOnly: true}
	withClientIndex := func(o config.HTTP1Options, n int) config.HTTP1Options {
		o.XFFClientIndex = n
		return o
	}
	for _, test := range []struct {
		name     string
		rules    config.EnvoyHeaders
		options  config.HTTP1Options
		conn     *protocol.ConnMeta
		xff      string
		want     string
		external string // x-envoy-external-address; "": as sent
	}{
		{"client at the edge", config.EnvoyHeaders{UseRemoteAddress: true}, edgeOptions, connFrom("127.0.0.1"), "", keptFromAnyClient + " x-envoy-external-address", "127.0.0.1"},
		{"internal client at the edge", config.EnvoyHeaders{UseRemoteAddress: true, InternalRanges: local}, edgeOptions, connFrom("127.0.0.1"), "", keptFromInternal, ""},
		{"X-Forwarded-For from an internal address", config.EnvoyHeaders{UseRemoteAddress: true, InternalRanges: local}, edgeOptions, connFrom("127.0.0.1"), "10.0.0.1", keptFromAnyClient + " x-envoy-external-address", "127.0.0.1"},
		{"client behind a trusted proxy", config.EnvoyHeaders{UseRemoteAddress: true, InternalRanges: local}, withClientIndex(edgeOptions, 1), connFrom("127.0.0.1"), "9.9.9.9", keptFromAnyClient + " x-envoy-external-address", "9.9.9.9"},
		{"unix socket", config.EnvoyHeaders{UseRemoteAddress: true}, edgeOptions, &protocol.ConnMeta{}, "", keptFromAnyClient + " x-envoy-external-address", ""},
		{"internal unix socket", config.EnvoyHeaders{UseRemoteAddress: true, InternalUnixSocket: true}, edgeOptions, &protocol.ConnMeta{}, "", keptFromInternal, ""},
		{"inside, without X-Forwarded-For", config.EnvoyHeaders{InternalRanges: local}, insideOptions, connFrom("127.0.0.1"), "", keptInsideMesh, ""},
		{"inside, external client", config.EnvoyHeaders{InternalRanges: net10}, insideOptions, connFrom("127.0.0.1"), "8.8.8.8", keptInsideMesh, ""},
		{"inside, internal client", config.EnvoyHeaders{InternalRanges: net10}, insideOptions, connFrom("127.0.0.1"), "10.0.0.1", keptFromInternal, ""},
		{"inside, address of the direct peer", config.EnvoyHeaders{InternalRanges: local}, insideOptions, connFrom("127.0.0.1"), "127.0.0.1", keptFromInternal, ""},
		{"inside, no internal ranges", config.EnvoyHeaders{}, insideOptions, connFrom("10.0.0.1"), "10.0.0.1", keptInsideMesh, ""},
		{"inside, several addresses", config.EnvoyHeaders{InternalRanges: net10}, insideOptions, connFrom("127.0.0.1"), "10.0.0.2, 10.0.0.1", keptInsideMesh, ""},
		{"inside, address with a port", config.EnvoyHeaders{InternalRanges: net10}, insideOptions, connFrom("127.0.0.1"), "10.0.0.1:80", keptInsideMesh, ""},
		{"inside, behind another proxy", config.EnvoyHeaders{InternalRanges: net10}, withClientIndex(insideOptions, 2), connFrom("127.0.0.1"), "10.0.0.1", keptInsideMesh, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var headers []string
			for _, name := range envoyHeaders {
				headers = append(headers, name+": 1")
			}
			if test.xff != "" {
				headers = append(headers, "X-Forwarded-For: "+test.xff)
			}
			_, x := sanitizedHeaders(t, &config.Proxy{HTTP1: test.options, ClientHeaders: config.ClientHeaders{Envoy: &test.rules}}, test.conn, headers...)
			got, want := map[string]bool{}, map[string]bool{}
			for name := range x.Request.Header.All() {
				if name = strings.ToLower(name); strings.HasPrefix(name, "x-envoy-") || strings.HasPrefix(name, "x-mosn-") || name == "x-forwarded-host" {
					got[name] = true
				}
			}
			for name := range strings.FieldsSeq(test.want) {
				want[name] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if want["x-envoy-internal"] && x.Request.Header.Get("x-envoy-internal") != "true" {
				t.Errorf("x-envoy-internal: %q, want \"true\"", x.Request.Header.Get("x-envoy-internal"))
			}
			if test.external != "" && x.Request.Header.Get("x-envoy-external-address") != test.external {
				t.Errorf("x-envoy-external-address: %s, want %s", x.Request.Header.Get("x-envoy-external-address"), test.external)
			}
		})
	}
}

func TestRequestID(t *testing.T) {
	const v1 = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	generate := config.RequestID{Generate: true, Replace: true, ResetTraceReason: true}
	preserve := config.RequestID{Generate: true, ResetTraceReason: true}
	internal := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, test := range []struct {
		name  string
		rules config.EnvoyHeaders
		id    string // "": none
		want  string // "new": a new UUID
	}{
		{"at the edge", config.EnvoyHeaders{UseRemoteAddress: true, RequestID: generate}, "forged", "new"},
		{"at the edge, preserved", config.EnvoyHeaders{UseRemoteAddress: true, RequestID: preserve}, "forged", "forged"},
		{"at the edge, preserved UUID", config.EnvoyHeaders{UseRemoteAddress: true, RequestID: preserve}, v1, "6ba7b810-9dad-41d1-80b4-00c04fd430c8"},
		{"at the edge, preserved UUID with its trace reason", config.EnvoyHeaders{UseRemoteAddress: true, RequestID: config.RequestID{Generate: true}}, v1, v1},
		{"at the edge, preserved, none", config.EnvoyHeaders{UseRemoteAddress: true, RequestID: preserve}, "", "new"},
		{"at the edge, not generated", config.EnvoyHeaders{UseRemoteAddress: true, RequestID: config.RequestID{Replace: true, ResetTraceReason: true}}, v1, v1},
		{"internal client", config.EnvoyHeaders{UseRemoteAddress: true, RequestID: generate, InternalRanges: internal}, v1, v1},
		{"behind an edge", config.EnvoyHeaders{RequestID: generate}, v1, v1},
		{"behind an edge, none", config.EnvoyHeaders{RequestID: generate}, "", "new"},
		{"behind an edge, empty", config.EnvoyHeaders{RequestID: generate}, " ", "new"},
		{"behind an edge, not generated", config.EnvoyHeaders{}, "", ""},
	} {
		var headers []string
		if test.id != "" {
			headers = []string{"X-Request-Id: " + strings.TrimSpace(test.id), "x-request-id: again"}
		}
		p := &config.Proxy{ClientHeaders: config.ClientHeaders{Envoy: &test.rules}}
		_, x := sanitizedHeaders(t, p, connFrom("192.0.2.1"), headers...)
		got := x.Request.Header.Get("x-request-id")
		isNew := uuid.MatchString(got) && got != test.id && strings.Count(strings.ToLower(headerLines(&x.Request.Header)), "x-request-id") == 1
		if test.want == "new" && !isNew || test.want != "new" && got != test.want {
			t.Errorf("%s: x-request-id is %q, want %q; headers:\n%s", test.name, got, test.want, headerLines(&x.Request.Header))
		}
	}
}

func TestHeadersOfEnvoy(t *testing.T) {
	local := netip.MustParseAddrPort("192.0.2.9:8443")
	conn := &protocol.ConnMeta{Local: local, Remote: netip.MustParseAddrPort("192.0.2.1:1234"), RemoteIP: "192.0.2.1"}
	edge := config.HTTP1Options{XForwarded: config.ForwardedAppend, XForwardedProto: config.ForwardedProtoSet}
	behind := config.HTTP1Options{XFFClientIndex: 1, XForwardedProto: config.ForwardedProtoAdd}
	for _, test := range []struct {
		name    string
		rules   config.EnvoyHeaders
		options config.HTTP1Options
		conn    *protocol.ConnMeta
		headers []string
		want    string
	}{
		{"scheme is added", config.EnvoyHeaders{}, behind, conn, nil, "X-Forwarded-Proto: http\n"},
		{"separator of addresses", config.EnvoyHeaders{UseRemoteAddress: true}, edge, conn, []string{"x-forwarded-for: 1.1.1.1"},
			"x-forwarded-for: 1.1.1.1,192.0.2.1\nx-envoy-external-address: 192.0.2.1\nX-Forwarded-Proto: http\n"},
		{"several lists of addresses", config.EnvoyHeaders{}, behind, conn, []string{"x-forwarded-for: 1.1.1.1", "x-forwarded-for: 2.2.2.2"},
			"x-forwarded-for: 1.1.1.1,2.2.2.2\nX-Forwarded-Proto: http\n"},
		{"unix socket", config.EnvoyHeaders{UseRemoteAddress: true, ForwardedPort: true}, edge, &protocol.ConnMeta{}, nil, "X-Forwarded-Proto: http\n"},
		{"port", config.EnvoyHeaders{ForwardedPort: true}, behind, conn, nil, "X-Forwarded-Proto: http\nX-Forwarded-Port: 8443\n"},
		{"port of a trusted proxy", config.EnvoyHeaders{ForwardedPort: true}, behind, conn, []string{"x-forwarded-port: 1"}, "x-forwarded-port: 1\nX-Forwarded-Proto: http\n"},
		{"port of an edge client", config.EnvoyHeaders{UseRemoteAddress: true, ForwardedPort: true}, edge, conn, []string{"x-forwarded-port: 1"},
			"x-forwarded-port: 8443\nx-envoy-external-address: 192.0.2.1\nX-Forwarded-Proto: http\nX-Forwarded-For: 192.0.2.1\n"},
		{"scheme is replaced", config.EnvoyHeaders{Scheme: "https"}, behind, conn, []string{"x-forwarded-proto: http"}, "x-forwarded-proto: https\n"},
		{"user agent", config.EnvoyHeaders{UserAgent: "c", NodeID: "n"}, behind, conn, nil,
			"x-envoy-downstream-service-cluster: c\nuser-agent: c\nx-envoy-downstream-service-node: n\nX-Forwarded-Proto: http\n"},
		{"user agent of the client", config.EnvoyHeaders{UserAgent: "c"}, behind, conn, []string{"user-agent: curl", "x-envoy-downstream-service-cluster: z"},
			"user-agent: curl\nx-envoy-downstream-service-cluster: c\nX-Forwarded-Proto: http\n"},
		{"referer", config.EnvoyHeaders{}, behind, conn, []string{"referer: https://a.test/b?c"}, "referer: https://a.test/b?c\nX-Forwarded-Proto: http\n"},
		{"invalid referer", config.EnvoyHeaders{}, behind, conn, []string{"referer: a"}, "X-Forwarded-Proto: http\n"},
		{"two referers", config.EnvoyHeaders{}, behind, conn, []string{"referer: http://a/", "referer: http://b"}, "referer: http://a/,http://b\nX-Forwarded-Proto: http\n"},
	} {
		p := &config.Proxy{HTTP1: test.options, ClientHeaders: config.ClientHeaders{Envoy: &test.rules}, ForwardedScheme: true}
		got, x := sanitizedHeaders(t, p, test.conn, test.headers...)
		if got != test.want {
			t.Errorf("%s: headers:\n%swant:\n%s", test.name, got, test.want)
		}
		if test.rules.Scheme != "" && x.Request.Scheme != test.rules.Scheme {
			t.Errorf("%s: scheme %q, want %q", test.name, x.Request.Scheme, test.rules.Scheme)
		}
	}
}

func TestTrustedForwardedProtoSetsScheme(t *testing.T) {
	trusted := &config.Proxy{HTTP1: config.HTTP1Options{XFFClientIndex: 1}, ForwardedScheme: true}
	replaced := &config.Proxy{HTTP1: config.HTTP1Options{XForwardedProto: config.ForwardedProtoSet}, ForwardedScheme: true}
	for _, test := range []struct {
		name   string
		proxy  *config.Proxy
		proto  string
		scheme string
	}{
		{"trusted", trusted, "https", "https"},
		{"upper case", trusted, "HTTPS", "https"},
		{"not an HTTP scheme", trusted, "ftp", "http"},
		{"list", trusted, "https, http", "http"},
		{"not trusted", replaced, "https", "http"},
		{"option off", &config.Proxy{}, "https", "http"},
	} {
		if _, x := sanitizedHeaders(t, test.proxy, connFrom("192.0.2.1"), "X-Forwarded-Proto: "+test.proto); x.Request.Scheme != test.scheme {
			t.Errorf("%s: X-Forwarded-Proto %q sets the scheme %q, want %q", test.name, test.proto, x.Request.Scheme, test.scheme)
		}
	}
}

func TestSanitizeDoesNotAllocate(t *testing.T) {
	for name, c := range map[string]config.ClientHeaders{
		"default": {}, "Envoy rules": {Envoy: &config.EnvoyHeaders{InternalRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
	} {
		p := config.Proxy{ClientHeaders: c, HTTP1: config.HTTP1Options{XFFClientIndex: 1}}
		sanitizer := newHeaderSanitizer(p.ClientHeaders, &p.HTTP1)
		x := newTestExchange("x-forwarded-for: 8.8.8.8", "x-some-thing-as-long-as-they: 1")
		if n := testing.AllocsPerRun(100, func() { sanitizer.sanitize(x, nil) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// TestReferer verifies the values that Envoy 1.40 keeps and removes.
func TestReferer(t *testing.T) {
	for _, text := range []string{"http://a.b/c", "https://a.b:80/c?d", "/x", "//a.b/c", "ftp://a.b/c", "http://a", "HTTP://A.B/", "http://[::1]/", "android-app://com.x/"} {
		if !isReferer(text) {
			t.Errorf("isReferer(%q) = false, want true", text)
		}
	}
	for _, text := range []string{"", "about:blank", "http://", "http:///x", "http://a_b/c", "http://user@a.b/", "http://a.b:99999/", "https://a.b/\u00e9", "http://a.b/c#f", "a.b:80", "://a"} {
		if isReferer(text) {
			t.Errorf("isReferer(%q) = true, want false", text)
		}
	}
}
