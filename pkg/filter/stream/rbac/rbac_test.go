package rbac

import (
	"context"
	"flag"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	for _, test := range []struct {
		settings filtertest.Settings
		x        *protocol.Exchange
		want     protocol.Reason
	}{
		{examples[0], httpRequest("GET /items", "10.1.1.1:1"), protocol.ReasonNone},
		{examples[0], httpRequest("GET /admin/x", "10.1.1.1:1"), protocol.ReasonDenied},
		{examples[0], httpRequest("POST /items", "10.1.1.1:1"), protocol.ReasonDenied},
		{examples[0], httpRequest("POST /admin", "10.0.0.7:1"), protocol.ReasonNone},
		{examples[0], httpRequest("GET /items", "192.0.2.1:1"), protocol.ReasonDenied},
		{examples[1], rpcCall("org.example.Shop", "buy"), protocol.ReasonNone},
		{examples[1], rpcCall("org.example.Shop", "refund"), protocol.ReasonDenied},
		{examples[1], rpcCall("org.example.Shop", "refund", "application: billing"), protocol.ReasonNone},
		{examples[1], rpcCall("org.example.Bank", "refund"), protocol.ReasonNone},
	} {
		if got, _ := serveRequest(t, test.settings, test.x); got != test.want {
			t.Errorf("%s %s: %v, want %v", test.x.Request.Method, test.x.Request.Path, got, test.want)
		}
	}
}

// TestLowerCamelKeys verifies that the spelling of keys in the JSON form of protobuf, which MOSN
// accepts, has the same effect.
func TestLowerCamelKeys(t *testing.T) {
	const settings = `{"rules": {"action": "DENY", "policies": {"admin_pages": {
		"permissions": [{"andRules": {"rules": [{"urlPath": {"path": {"prefix": "/admin"}}}, {"notRule": {"header": {"name": ":method", "exactMatch": "HEAD"}}}]}}],
		"principals": [{"directRemoteIp": {"addressPrefix": "10.0.0.0", "prefixLen": 8}}]}}}}`
	for _, test := range []struct {
		line, from string
		want       protocol.Reason
	}{
		{"GET /admin/x", "10.1.1.1:1", protocol.ReasonDenied},
		{"HEAD /admin/x", "10.1.1.1:1", protocol.ReasonNone},
		{"GET /items", "10.1.1.1:1", protocol.ReasonNone},
		{"GET /admin/x", "192.0.2.1:1", protocol.ReasonNone},
	} {
		if got, _ := serveRequest(t, settings, httpRequest(test.line, test.from)); got != test.want {
			t.Errorf("%s from %s: %v, want %v", test.line, test.from, got, test.want)
		}
	}
}

// viaProxy returns a request through a proxy at via, whose PROXY protocol header declares the
// source address from. via is "" for a proxy on a unix socket.
func viaProxy(from, via string) *protocol.Exchange {
	x := httpRequest("GET /", from)
	x.Meta.Conn.ProxyAddr = new(netip.AddrPort)
	if via != "" {
		*x.Meta.Conn.ProxyAddr = netip.MustParseAddrPort(via)
	}
	return x
}

// httpRequest returns a request "METHOD path" from an address to 192.0.2.9:8080.
func httpRequest(line, from string, fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Request.Method, x.Request.Path, _ = strings.Cut(line, " ")
	x.Request.Authority, x.Request.Scheme = "shop.test", "http"
	x.Meta.Conn = &protocol.ConnMeta{Local: netip.MustParseAddrPort("192.0.2.9:8080")}
	if from != "" {
		x.Meta.Conn.Remote = netip.MustParseAddrPort(from)
	}
	addHeaders(x, fields)
	return x
}

func rpcCall(service, method string, attachments ...string) *protocol.Exchange {
	x := httpRequest(" /"+service+"/"+method, "10.0.0.1:1", "service: "+service, "method: "+method)
	x.Request.Authority = service
	addHeaders(x, attachments)
	return x
}

func addHeaders(x *protocol.Exchange, fields []string) {
	filtertest.AddHeaders(&x.Request.Header, fields...)
}

// serveRequest serves x and returns the Reason of its error, and the counts of the filter.
func serveRequest(t *testing.T, s filtertest.Settings, x *protocol.Exchange) (protocol.Reason, *filtertest.Probe) {
	t.Helper()
	f, counts := filtertest.Build(t, Factory(), s)
	called := false
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
		called = true
		return nil
	})))
	reason := protocol.ReasonOf(err)
	if called != (reason == protocol.ReasonNone) {
		t.Errorf("the next service was called: %t, Serve = %v; want %t", called, err, reason == protocol.ReasonNone)
	}
	return reason, counts
}

// permissionPolicy returns settings with one policy, which has one permission and any principal.
func permissionPolicy(action, permission string) filtertest.Settings {
	return singlePolicy(action, permission, `{"any": true}`)
}

func principalPolicy(action, principal string) filtertest.Settings {
	return singlePolicy(action, `{"any": true}`, principal)
}

func singlePolicy(action, permission, principal string) filtertest.Settings {
	return filtertest.Settings(`{"rules": {"action": "` + action + `", "policies": {"p": {
		"permissions": [` + permission + `], "principals": [` + principal + `]}}}}`)
}

func TestConditions(t *testing.T) {
	const blue = `{"header": {"name": "x-tenant", "string_match": {"exact": "blue"}}}`
	const get = `{"header": {"name": ":method", "exact_match": "GET"}}`
	for _, test := range []struct {
		name            string
		settings        func(action string) filtertest.Settings
		matching, other *protocol.Exchange
	}{
		{"header", withPermission(blue), httpRequest("GET /", "", "X-Tenant: blue"), httpRequest("GET /", "", "x-tenant: red")},
		{"header principal", withPrincipal(blue), httpRequest("GET /", "", "X-Tenant: blue"), httpRequest("GET /", "")},
		{"several headers of the name", withPermission(blue), httpRequest("GET /", "", "x-tenant: red", "x-tenant: blue"), httpRequest("GET /", "", "x-tenant: red,blue")},
		{"and_rules", withPermission(`{"and_rules": {"rules": [` + blue + `, ` + get + `]}}`), httpRequest("GET /", "", "x-tenant: blue"), httpRequest("PUT /", "", "x-tenant: blue")},
		{"or_rules", withPermission(`{"or_rules": {"rules": [` + blue + `, ` + get + `]}}`), httpRequest("PUT /", "", "x-tenant: blue"), httpRequest("PUT /", "")},
		{"not_rule", withPermission(`{"not_rule": ` + blue + `}`), httpRequest("GET /", ""), httpRequest("GET /", "", "x-tenant: blue")},
		{"and_ids", withPrincipal(`{"and_ids": {"ids": [` + blue + `, ` + get + `]}}`), httpRequest("GET /", "", "x-tenant: blue"), httpRequest("GET /", "")},
		{"or_ids", withPrincipal(`{"or_ids": {"ids": [` + blue + `, ` + get + `]}}`), httpRequest("GET /", ""), httpRequest("PUT /", "")},
		{"not_id", withPrincipal(`{"not_id": {"not_id": ` + blue + `}}`), httpRequest("GET /", "", "x-tenant: blue"), httpRequest("GET /", "")},
		{"path", withPermission(`{"url_path": {"path": {"exact": "/a"}}}`), httpRequest("GET /a?b=/c", ""), httpRequest("GET /ab", "")},
		{"RPC path", withPermission(`{"url_path": {"path": {"prefix": "/org.example.Shop/"}}}`), rpcCall("org.example.Shop", "buy"), rpcCall("org.example.Bank", "buy")},
		{"destination address", withPermission(`{"destination_ip": {"address_prefix": "192.0.2.0", "prefix_len": 24}}`), httpRequest("GET /", ""), nil},
		{"other destination address", withPermission(`{"destination_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), nil, httpRequest("GET /", "10.0.0.1:1")},
		{"destination port", withPermission(`{"destination_port": 8080}`), httpRequest("GET /", ""), nil},
		{"other destination port", withPermission(`{"destination_port": 8081}`), nil, httpRequest("GET /", "")},
		{"port range", withPermission(`{"destination_port_range": {"start": 8000, "end": 8081}}`), httpRequest("GET /", ""), nil},
		{"port range with excluded end", withPermission(`{"destination_port_range": {"start": 8000, "end": 8080}}`), nil, httpRequest("GET /", "")},
		{"direct remote address", withPrincipal(`{"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), httpRequest("GET /", "10.9.9.9:1"), httpRequest("GET /", "11.0.0.1:1", "X-Forwarded-For: 10.0.0.1")},
		{"source_ip", withPrincipal(`{"source_ip": {"address_prefix": "::1", "prefix_len": 128}}`), httpRequest("GET /", "[::1]:1"), httpRequest("GET /", "[::2]:1")},
		{"direct remote address of a proxy", withPrincipal(`{"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`),
			viaProxy("192.0.2.1:1", "10.9.9.9:1"), viaProxy("10.9.9.9:1", "192.0.2.1:1")},
		{"source_ip behind a proxy", withPrincipal(`{"source_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`),
			viaProxy("10.9.9.9:1", "192.0.2.1:1"), viaProxy("192.0.2.1:1", "10.9.9.9:1")},
		{"proxy without an address", withPrincipal(`{"direct_remote_ip": {"address_prefix": "0.0.0.0", "prefix_len": 0}}`),
			viaProxy("192.0.2.1:1", "10.9.9.9:1"), viaProxy("10.9.9.9:1", "")},
		{"remote address", withPrincipal(`{"remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), httpRequest("GET /", "10.9.9.9:1"), httpRequest("GET /", "11.0.0.1:1", "X-Forwarded-For: 10.0.0.1")},
		{"RPC header", withPermission(`{"header": {"name": "method", "string_match": {"exact": "buy"}}}`), rpcCall("s", "buy"), rpcCall("s", "sell", "Method: buy")},
		{"authenticated", withPrincipal(`{"authenticated": {}}`), overTLS(&protocol.TLS{Peer: new(protocol.Certificate)}, httpRequest("GET /", "10.0.0.1:1")), httpRequest("GET /", "10.0.0.1:1")},
	} {
		t.Run(test.name, func(t *testing.T) {
			for x, matches := range map[*protocol.Exchange]bool{test.matching: true, test.other: false} {
				if x == nil {
					continue
				}
				for action, want := range map[string]bool{"ALLOW": matches, "DENY": !matches, "LOG": true} {
					if got, _ := serveRequest(t, test.settings(action), x); (got == protocol.ReasonNone) != want {
						t.Errorf("%s of %s %s: %v, want allowed: %t", action, x.Request.Method, x.Request.Path, got, want)
					}
				}
			}
		})
	}
}

func withPermission(p string) func(string) filtertest.Settings {
	return func(action string) filtertest.Settings { return permissionPolicy(action, p) }
}

func withPrincipal(p string) func(string) filtertest.Settings {
	return func(action string) filtertest.Settings { return principalPolicy(action, p) }
}

// overTLS returns x on a TLS connection.
func overTLS(tls *protocol.TLS, x *protocol.Exchange) *protocol.Exchange {
	x.Meta.Conn.TLS = tls
	return x
}

func TestPrincipalNames(t *testing.T) {
	const shop, other = "spiffe://example.org/ns/shop/sa/cart", "spiffe://example.org/ns/bank/sa/pay"
	uris := &protocol.Certificate{Subject: "CN=cart", DNSSANs: []string{"cart.test"}, URISANs: []string{other, shop}}
	names := &protocol.Certificate{Subject: "CN=cart", DNSSANs: []string{"a.test", "cart.test"}}
	subjectOnly := &protocol.Certificate{Subject: "CN=cart"}
	for _, test := range []struct {
		name  string
		match string // principal_name; "": any
		peer  *protocol.Certificate
		want  protocol.Reason
	}{
		{"one of the URIs", `{"exact": "` + shop + `"}`, uris, protocol.ReasonNone},
		{"other URI", `{"exact": "` + shop + `/x"}`, uris, protocol.ReasonDenied},
		{"prefix of a URI", `{"prefix": "spiffe://example.org/ns/shop/"}`, uris, protocol.ReasonNone},
		{"a DNS name in addition to URIs", `{"exact": "cart.test"}`, uris, protocol.ReasonDenied},
		{"one of the DNS names", `{"exact": "cart.test"}`, names, protocol.ReasonNone},
		{"subject in addition to DNS names", `{"exact": "CN=cart"}`, names, protocol.ReasonDenied},
		{"subject", `{"exact": "CN=cart"}`, subjectOnly, protocol.ReasonNone},
		{"any", ``, subjectOnly, protocol.ReasonNone},
		{"any name, no certificate", ``, nil, protocol.ReasonDenied},
		{"name, no certificate", `{"prefix": "spiffe://"}`, nil, protocol.ReasonDenied},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := principalPolicy("ALLOW", `{"authenticated": {}}`)
			if test.match != "" {
				settings = principalPolicy("ALLOW", `{"authenticated": {"principal_name": `+test.match+`}}`)
			}
			if got, _ := serveRequest(t, settings, overTLS(&protocol.TLS{Peer: test.peer}, httpRequest("GET /", "10.0.0.1:1"))); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
			if got, _ := serveRequest(t, settings, httpRequest("GET /", "10.0.0.1:1")); got != protocol.ReasonDenied {
				t.Errorf("without TLS: %v, want denied", got)
			}
		})
	}
}

func TestServerNames(t *testing.T) {
	for _, test := range []struct {
		match string
		tls   *protocol.TLS
		want  protocol.Reason
	}{
		{`{"suffix": ".shop.test"}`, &protocol.TLS{ServerName: "API.shop.test"}, protocol.ReasonNone},
		{`{"suffix": ".shop.test"}`, &protocol.TLS{ServerName: "shop.test"}, protocol.ReasonDenied},
		{`{"suffix": ".shop.test"}`, nil, protocol.ReasonDenied},
		{`{"exact": ""}`, nil, protocol.ReasonNone},
	} {
		if got, _ := serveRequest(t, permissionPolicy("ALLOW", `{"requested_server_name": `+test.match+`}`), overTLS(test.tls, httpRequest("GET /", "10.0.0.1:1"))); got != test.want {
			t.Errorf("%s of %v: %v, want %v", test.match, test.tls, got, test.want)
		}
	}
}

func TestMetadata(t *testing.T) {
	withValue := func(value string) filtertest.Settings {
		return permissionPolicy("ALLOW", `{"metadata": {"filter": "jwt", "path": [{"key": "claims"}, {"key": "role"}], "value": `+value+`}}`)
	}
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		values   []string
		want     protocol.Reason
	}{
		{"string", withValue(`{"string_match": {"exact": "admin"}}`), []string{"admin"}, protocol.ReasonNone},
		{"other string", withValue(`{"string_match": {"exact": "admin"}}`), []string{"user"}, protocol.ReasonDenied},
		{"no value", withValue(`{"string_match": {"exact": ""}}`), nil, protocol.ReasonDenied},
		{"list for a string", withValue(`{"string_match": {"exact": "admin"}}`), []string{"admin", "user"}, protocol.ReasonDenied},
		{"list", withValue(`{"list_match": {"one_of": {"string_match": {"exact": "admin"}}}}`), []string{"user", "admin"}, protocol.ReasonNone},
		{"other list", withValue(`{"list_match": {"one_of": {"string_match": {"exact": "admin"}}}}`), []string{"user"}, protocol.ReasonDenied},
		{"list with one of several", withValue(`{"list_match": {"one_of": {"or_match": {"value_matchers": [{"string_match": {"exact": "admin"}}, {"string_match": {"prefix": "op"}}]}}}}`), []string{"user", "operator"}, protocol.ReasonNone},
		{"list with none of several", withValue(`{"list_match": {"one_of": {"or_match": {"value_matchers": [{"string_match": {"exact": "admin"}}, {"string_match": {"prefix": "op"}}]}}}}`), []string{"user"}, protocol.ReasonDenied},
		{"one of several", withValue(`{"or_match": {"value_matchers": [{"string_match": {"exact": "user"}}, {"string_match": {"exact": "admin"}}]}}`), []string{"admin"}, protocol.ReasonNone},
		{"none of several", withValue(`{"or_match": {"value_matchers": [{"string_match": {"exact": "user"}}, {"string_match": {"exact": "admin"}}]}}`), []string{"administrator"}, protocol.ReasonDenied},
		{"list for one of several strings", withValue(`{"or_match": {"value_matchers": [{"string_match": {"exact": "user"}}]}}`), []string{"user", "admin"}, protocol.ReasonDenied},
		{"true", withValue(`{"bool_match": true}`), []string{"true"}, protocol.ReasonNone},
		{"not true", withValue(`{"bool_match": true}`), []string{"false"}, protocol.ReasonDenied},
		{"present", withValue(`{"present_match": true}`), []string{""}, protocol.ReasonNone},
		{"not present", withValue(`{"present_match": true}`), nil, protocol.ReasonDenied},
		{"absent", withValue(`{"present_match": false}`), nil, protocol.ReasonNone},
		{"inverted", withValue(`{"string_match": {"exact": "admin"}}, "invert": true`), []string{"user"}, protocol.ReasonNone},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := httpRequest("GET /", "10.0.0.1:1")
			x.Metadata.Set("jwt", "role", "admin") // another key
			for _, v := range test.values {
				x.Metadata.Add("jwt", protocol.MetadataKey("claims", "role"), v)
			}
			if got, _ := serveRequest(t, test.settings, x); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestActions(t *testing.T) {
	newExchange := func() *protocol.Exchange { return httpRequest("GET /", "10.0.0.1:1") }
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		want     protocol.Reason
	}{
		{"no rules", `{}`, protocol.ReasonNone},
		{"no policies to allow", `{"rules": {}}`, protocol.ReasonDenied},
		{"no policies to deny", `{"rules": {"action": "DENY"}}`, protocol.ReasonNone},
		{"any", permissionPolicy("ALLOW", `{"any": true}`), protocol.ReasonNone},
		{"shadow rules alone", `{"shadow_rules": {}}`, protocol.ReasonNone},
	} {
		if got, _ := serveRequest(t, test.settings, newExchange()); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	for permission, want := range map[string]string{`{"any": true}`: "true", `{"not_rule": {"any": true}}`: "false"} {
		x := newExchange()
		if got, _ := serveRequest(t, permissionPolicy("LOG", permission), x); got != protocol.ReasonNone {
			t.Errorf("LOG denies: %v, want %v", got, protocol.ReasonNone)
		}
		if hint, _ := x.Metadata.Lookup("envoy.common", "access_log_hint"); hint != want {
			t.Errorf("access_log_hint = %q, want %q", hint, want)
		}
	}
}

func TestShadowRulesAreCountedOnly(t *testing.T) {
	const rules = `{"action": "DENY", "policies": {"p": {"permissions": [{"header": {"name": "bad"}}], "principals": [{"any": true}]}}}`
	for _, test := range []struct {
		settings filtertest.Settings
		want     protocol.Reason
		counted  [4]float64 // allowed, denied, shadow_allowed, shadow_denied
	}{
		{`{"shadow_rules": ` + rules + `}`, protocol.ReasonNone, [4]float64{0, 0, 0, 1}},
		{`{"rules": ` + rules + `}`, protocol.ReasonDenied, [4]float64{0, 1, 0, 0}},
		{`{"rules": {"action": "DENY"}, "shadow_rules": ` + rules + `}`, protocol.ReasonNone, [4]float64{1, 0, 0, 1}},
		{`{"rules": ` + rules + `, "shadow_rules": {"action": "DENY"}}`, protocol.ReasonDenied, [4]float64{0, 1, 1, 0}},
	} {
		got, counts := serveRequest(t, test.settings, httpRequest("GET /", "10.0.0.1:1", "bad: 1"))
		counted := [4]float64{counts.Value(allowedMetric()), counts.Value(deniedMetric()), counts.Value(shadowAllowedMetric()), counts.Value(shadowDeniedMetric())}
		if got != test.want || counted != test.counted {
			t.Errorf("%s: %v, counted %v; want %v and %v", test.settings, got, counted, test.want, test.counted)
		}
	}
}

func TestAmbiguousPathsAreRejected(t *testing.T) {
	rule := `{"url_path": {"path": {"prefix": "/admin"}}}`
	for path, ambiguous := range map[string]bool{
		"/": false, "/items/1": false, "/a.b/..c/d..": false, "/caf%C3%A9/a%20b": false, "/a%2Bb": false, "/a//": true, "*": false,
		"/x?next=//a/../b%2e;c": false, "/.well-known/x": false,
		"//admin": true, "/./admin": true, "/x/../admin": true, "/x/..": true, "/.": true,
		"/%61dmin": true, "/%2e%2e/admin": true, "/x%2F..%2fadmin": true, "/x%5cadmin": true, `/x\admin`: true,
		"/;x/admin": true, "/x;/../admin": true, "/%3b": true, "/%2561dmin": true, "/a%00": true, "/a%zz": true, "/a%4": true, "/a#b": true,
	} {
		x := httpRequest("GET "+path, "10.0.0.1:1")
		if got, _ := serveRequest(t, permissionPolicy("DENY", rule), x); (got == protocol.ReasonDenied) != ambiguous {
			t.Errorf("%s: %v, want denied: %t", path, got, ambiguous)
		}
		if got, _ := serveRequest(t, permissionPolicy("DENY", `{"header": {"name": ":path", "prefix_match": "/admin"}}`), x); (got == protocol.ReasonDenied) != ambiguous {
			t.Errorf("%s by :path: %v, want denied: %t", path, got, ambiguous)
		}
		if got, _ := serveRequest(t, permissionPolicy("DENY", `{"header": {"name": "x"}}`), x); got != protocol.ReasonNone {
			t.Errorf("%s: %v for rules that do not read the path, want %v", path, got, protocol.ReasonNone)
		}
		asSent := strings.Replace(string(permissionPolicy("DENY", rule)), "{", `{"ambiguous_paths_as_sent": true, `, 1)
		if got, _ := serveRequest(t, filtertest.Settings(asSent), x); got != protocol.ReasonNone {
			t.Errorf("%s: %v with ambiguous_paths_as_sent, want %v", path, got, protocol.ReasonNone)
		}
	}
	if got, _ := serveRequest(t, permissionPolicy("DENY", rule), rpcCall("a//b", "c")); got != protocol.ReasonNone {
		t.Errorf("RPC: %v, want %v", got, protocol.ReasonNone)
	}
}

func TestUnidentifiedCallsAreRejected(t *testing.T) {
	const shop, tenant = `{"header": {"name": "service", "string_match": {"exact": "Shop"}}}`, `{"header": {"name": "tenant"}}`
	unreadable := func() *protocol.Exchange { return httpRequest(" /", "10.0.0.1:1") }
	withoutService := func() *protocol.Exchange { return httpRequest(" /", "10.0.0.1:1", "a: b") }
	ambiguous := func() *protocol.Exchange {
		x := rpcCall("Harmless", "look")
		x.Request.Body = &xprotocol.Message{View: xprotocol.FrameView{Ambiguous: true}}
		return x
	}
	for _, test := range []struct {
		name, permission string
		x                *protocol.Exchange
		want             protocol.Reason
	}{
		{"with an unreadable body", shop, unreadable(), protocol.ReasonDenied},
		{"with an unreadable body, by a header", tenant, unreadable(), protocol.ReasonDenied},
		{"with an unreadable body, by the path", `{"url_path": {"path": {"prefix": "/Shop/"}}}`, unreadable(), protocol.ReasonDenied},
		{"with an unreadable body, by the port", `{"destination_port": 1}`, unreadable(), protocol.ReasonNone},
		{"without a service", shop, withoutService(), protocol.ReasonDenied},
		{"without a service, by a header", tenant, withoutService(), protocol.ReasonNone},
		{"with an ambiguous frame", shop, ambiguous(), protocol.ReasonDenied},
		{"with an ambiguous frame, by the authority", `{"header": {"name": ":authority", "string_match": {"exact": "Shop"}}}`, ambiguous(), protocol.ReasonDenied},
		{"with an ambiguous frame, by a header", tenant, ambiguous(), protocol.ReasonNone},
		{"of one service", shop, rpcCall("Harmless", "look"), protocol.ReasonNone},
	} {
		if got, _ := serveRequest(t, permissionPolicy("DENY", test.permission), test.x); got != test.want {
			t.Errorf("call %s: %v, want %v", test.name, got, test.want)
		}
		if got, _ := serveRequest(t, permissionPolicy("ALLOW", `{"not_rule": `+test.permission+`}`), test.x); got != test.want {
			t.Errorf("call %s, inverted ALLOW rule: %v, want %v", test.name, got, test.want)
		}
		asSent := strings.Replace(string(permissionPolicy("DENY", test.permission)), "{", `{"ambiguous_paths_as_sent": true, `, 1)
		wantAsSent := protocol.ReasonNone
		if test.permission == tenant || test.name == "with an unreadable body" { // the setting does not concern missing headers
			wantAsSent = test.want
		}
		if got, _ := serveRequest(t, filtertest.Settings(asSent), test.x); got != wantAsSent {
			t.Errorf("call %s: %v with ambiguous_paths_as_sent, want %v", test.name, got, wantAsSent)
		}
	}
}

func TestRemoteIPTrustedHops(t *testing.T) {
	rules := func(action, hops string) filtertest.Settings {
		return filtertest.Settings(`{"xff_num_trusted_hops": ` + hops + `, "rules": {"action": "` + action + `", "policies": {"p": {
			"permissions": [{"any": true}], "principals": [{"remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}]}}}}`)
	}
	for _, test := range []struct {
		action, hops, field string
		want                protocol.Reason
	}{
		{"ALLOW", "0", "192.0.2.1, 10.0.0.1", protocol.ReasonNone},
		{"ALLOW", "0", "10.0.0.1, 192.0.2.1", protocol.ReasonDenied},
		{"ALLOW", "1", "10.0.0.1, 192.0.2.1", protocol.ReasonNone},
		{"ALLOW", "1", "10.0.0.1, 192.0.2.2, 192.0.2.1", protocol.ReasonDenied},
		{"DENY", "0", "10.0.0.1", protocol.ReasonDenied},
		{"DENY", "0", "192.0.2.1", protocol.ReasonNone},
		{"DENY", "0", "unknown", protocol.ReasonDenied},
	} {
		x := httpRequest("GET /", "198.51.100.1:1", "X-Forwarded-For: "+test.field)
		if got, _ := serveRequest(t, rules(test.action, test.hops), x); got != test.want {
			t.Errorf("%s with %s hops of %s: %v, want %v", test.action, test.hops, test.field, got, test.want)
		}
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"unknown action":       {permissionPolicy("AUDIT", `{"any": true}`), "AUDIT"},
		"unknown condition":    {permissionPolicy("ALLOW", `{"ip": {}}`), `"ip"`},
		"no condition":         {permissionPolicy("ALLOW", `{}`), "no condition"},
		"any that is false":    {permissionPolicy("ALLOW", `{"any": false}`), "no condition"},
		"two conditions":       {permissionPolicy("ALLOW", `{"any": true, "destination_port": 1}`), "several conditions"},
		"no permissions":       {permissionPolicy("ALLOW", ``), "permissions is empty"},
		"no principals":        {principalPolicy("ALLOW", ``), "principals is empty"},
		"empty list":           {permissionPolicy("ALLOW", `{"or_rules": {"rules": []}}`), "or_rules.rules is empty"},
		"nested condition":     {principalPolicy("ALLOW", `{"and_ids": {"ids": [{"any": true}, {"not_id": {}}]}}`), `rules.policies["p"].principals[0]: and_ids.ids[1]`},
		"invalid regex":        {permissionPolicy("ALLOW", `{"url_path": {"path": {"safe_regex": {"regex": "("}}}}`), "url_path.path"},
		"invalid range":        {permissionPolicy("ALLOW", `{"destination_ip": {"address_prefix": "10.0.0.0", "prefix_len": 64}}`), "too long"},
		"range without length": {permissionPolicy("ALLOW", `{"destination_ip": {"address_prefix": "10.0.0.0"}}`), "prefix_len"},
		"empty port range":     {permissionPolicy("ALLOW", `{"destination_port_range": {"start": 8, "end": 8}}`), "destination_port_range is empty"},
		"invalid server name":  {permissionPolicy("ALLOW", `{"requested_server_name": {}}`), "requested_server_name"},
		"matcher":              {`{"matcher": {"matcher_list": {"matchers": [1]}}}`, "matcher"},
		"CEL":                  {`{"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}], "condition": {"id": 1}}}}}`, "condition"},
		"empty CEL":            {`{"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}], "condition": {"const_expr": {}}}}}}`, "CEL"},
		"empty metadata path":  {permissionPolicy("ALLOW", `{"metadata": {"filter": "f", "path": [], "value": {"present_match": true}}}`), "metadata.path"},
		"empty or_match":       {permissionPolicy("ALLOW", `{"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"or_match": {"value_matchers": []}}}}`), "value_matchers"},
		"or_match of a bool":   {permissionPolicy("ALLOW", `{"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"or_match": {"value_matchers": [{"bool_match": true}]}}}}`), "bool_match"},
		"empty list_match":     {permissionPolicy("ALLOW", `{"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"list_match": {"one_of": {}}}}}`), "list_match.one_of"},
		"empty metadata value": {permissionPolicy("ALLOW", `{"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {}}}`), "metadata.value"},
		"double metadata":      {permissionPolicy("ALLOW", `{"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"double_match": {"exact": 1}}}}`), "double_match"},
		"shadow rules":         {`{"shadow_rules": {"policies": {"p": {"permissions": [{}], "principals": [{"any": true}]}}}}`, "shadow_rules"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func newAllowedRequest(t testing.TB) (protocol.Service, *protocol.Exchange) {
	f, _ := filtertest.Build(t, Factory(), `{"xff_num_trusted_hops": 1, "rules": {"policies": {
		"admins": {"permissions": [{"url_path": {"path": {"prefix": "/admin"}}}], "principals": [{"header": {"name": "x-role", "exact_match": "admin"}}]},
		"users": {"permissions": [{"and_rules": {"rules": [{"header": {"name": ":method", "exact_match": "GET"}}, {"not_rule": {"url_path": {"path": {"prefix": "/admin"}}}}]}}],
			"principals": [{"remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}]}}}}`)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	return s, httpRequest("GET /items/1?a=b", "127.0.0.1:1", "Accept: */*", "X-Forwarded-For: 10.1.2.3, 127.0.0.1")
}

func TestAllowedRequestsDoNotAllocate(t *testing.T) {
	s, x := newAllowedRequest(t)
	filtertest.CheckNoAllocs(t, s, x)
}

func TestNamesOfCertificatesDoNotAllocate(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), principalPolicy("ALLOW", `{"authenticated": {"principal_name": {"prefix": "spiffe://example.org/"}}}`))
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	x := overTLS(&protocol.TLS{Peer: &protocol.Certificate{URISANs: []string{"spiffe://example.org/a"}}}, httpRequest("GET /", "10.0.0.1:1"))
	filtertest.CheckNoAllocs(t, s, x)
}

func BenchmarkServe(b *testing.B) {
	s, x := newAllowedRequest(b)
	filtertest.Bench(b, s, x)
}
