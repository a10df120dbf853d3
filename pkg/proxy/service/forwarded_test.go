package service

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// serveForwarded serves x with an upstream that responds with 200. It returns the headers that the
// upstream received, without those of every test exchange. served is false and got is empty if the
// upstream received no request.
func serveForwarded(t *testing.T, o config.HTTP1Options, x *protocol.Exchange) (got string, served bool) {
	t.Helper()
	s := Forwarded(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		served = true
		got = strings.TrimPrefix(headerLines(&x.Request.Header), "Authorization: secret-token\nCookie: secret-cookie\n")
		x.Record.Attempts = append(x.Record.Attempts, protocol.Attempt{})
		x.Response.Status, x.Response.Version, x.Response.Source = 200, "HTTP/1.0", protocol.UpstreamResponse
		x.Response.Header.Add("Server", "app")
		return nil
	}), &config.Proxy{HTTP1: o})
	if err := x.Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return got, served
}

func TestXForwardedHeaders(t *testing.T) {
	for _, test := range []struct {
		name    string
		mode    config.ForwardedMode
		headers []string
		remote  string
		want    string
	}{
		{"keep forwards", config.ForwardedKeep, []string{"X-Forwarded-For: 1", "x-forwarded-proto: https"}, "192.0.2.1",
			"X-Forwarded-For: 1\nx-forwarded-proto: https\n"},
		{"keep adds nothing", config.ForwardedKeep, nil, "192.0.2.1", ""},
		{"append without received headers", config.ForwardedAppend, nil, "192.0.2.1",
			"X-Forwarded-For: 192.0.2.1\nX-Forwarded-Proto: http\nX-Forwarded-Host: shop.test\n"},
		{"append to received headers", config.ForwardedAppend, []string{"X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https", "X-Forwarded-Host: front.test"}, "192.0.2.1",
			"X-Forwarded-For: 203.0.113.9, 192.0.2.1\nX-Forwarded-Proto: https\nX-Forwarded-Host: front.test\n"},
		{"append joins repeated headers", config.ForwardedAppend, []string{"x-forwarded-for: 1", "a: b", "X-Forwarded-For: 2, 3", "X-Forwarded-For: "}, "192.0.2.1",
			"x-forwarded-for: 1, 2, 3, 192.0.2.1\na: b\nX-Forwarded-Proto: http\nX-Forwarded-Host: shop.test\n"},
		{"set ignores received headers", config.ForwardedSet, []string{"X-Forwarded-For: 1", "X-Forwarded-For: 2", "x-forwarded-host: forged", "X-Forwarded-Proto: https"}, "192.0.2.1",
			"X-Forwarded-For: 192.0.2.1\nX-Forwarded-Proto: http\nX-Forwarded-Host: shop.test\n"},
		{"strip removes", config.ForwardedStrip, []string{"X-Forwarded-For: 1", "x-forwarded-host: a", "X-Forwarded-Proto: https", "a: b"}, "192.0.2.1", "a: b\n"},
		{"a unix socket has no address", config.ForwardedSet, nil, "",
			"X-Forwarded-For: unknown\nX-Forwarded-Proto: http\nX-Forwarded-Host: shop.test\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newTestExchange(test.headers...)
			x.Meta.Conn = &protocol.ConnMeta{RemoteIP: test.remote}
			got, _ := serveForwarded(t, config.HTTP1Options{XForwarded: test.mode, XForwardedHost: true}, x)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("upstream headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientAddressFromTrustedHops(t *testing.T) {
	for _, test := range []struct {
		name    string
		hop     int
		headers []string
		want    string // "": the direct peer
	}{
		{"no trusted hop", 0, []string{"X-Forwarded-For: 203.0.113.9"}, ""},
		{"one trusted hop", 1, []string{"X-Forwarded-For: 203.0.113.8, 203.0.113.9"}, "203.0.113.9"},
		{"two trusted hops", 2, []string{"X-Forwarded-For: 203.0.113.8, 203.0.113.9"}, "203.0.113.8"},
		{"more trusted hops than addresses", 3, []string{"X-Forwarded-For: 203.0.113.8, 203.0.113.9"}, ""},
		{"no header", 1, nil, ""},
		{"invalid address", 1, []string{"X-Forwarded-For: 203.0.113.8, unknown"}, ""},
		{"address of the direct peer", 1, []string{"X-Forwarded-For: 192.0.2.1"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newTestExchange(test.headers...)
			x.Meta.Conn = &protocol.ConnMeta{Remote: netip.MustParseAddrPort("192.0.2.1:1234"), RemoteIP: "192.0.2.1"}
			serveForwarded(t, config.HTTP1Options{XFFClientIndex: test.hop, XForwarded: config.ForwardedAppend}, x)
			want, ip := netip.Addr{}, "192.0.2.1"
			if test.want != "" {
				want, ip = netip.MustParseAddr(test.want), test.want
			}
			if x.Meta.Client != want || x.Meta.ClientIP() != ip {
				t.Errorf("client %v, IP %s; want %v, %s", x.Meta.Client, x.Meta.ClientIP(), want, ip)
			}
			x.Reset()
			if x.Meta.Client.IsValid() {
				t.Errorf("client of the next request: %v, want none", x.Meta.Client)
			}
		})
	}
}

func TestXForwardedProtoModes(t *testing.T) {
	for _, test := range []struct {
		mode   config.ForwardedMode
		proto  config.ForwardedProtoMode
		header string // "": no header
		want   string
	}{
		{config.ForwardedKeep, config.ForwardedProtoAdd, "", "http"},
		{config.ForwardedKeep, config.ForwardedProtoAdd, "https", "https"},
		{config.ForwardedKeep, config.ForwardedProtoSet, "https", "http"},
		{config.ForwardedAppend, config.ForwardedProtoSet, "https", "http"},
		{config.ForwardedAppend, config.ForwardedProtoAdd, "https", "https"},
	} {
		x := newTestExchange()
		if test.header != "" {
			x = newTestExchange("X-Forwarded-Proto: " + test.header)
		}
		x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1"}
		serveForwarded(t, config.HTTP1Options{XForwarded: test.mode, XForwardedProto: test.proto}, x)
		if got := joinValues(&x.Request.Header, forwardedProto, ", "); got != test.want {
			t.Errorf("%q, %q: %s for a client that sends %q is %q, want %q", test.mode, test.proto, forwardedProto, test.header, got, test.want)
		}
	}
}

func TestXForwardedProtoIgnoresClientScheme(t *testing.T) {
	for _, mode := range []config.ForwardedMode{config.ForwardedAppend, config.ForwardedSet} {
		for want, secure := range map[string]bool{"http": false, "https": true} {
			for _, scheme := range []string{"http", "https"} {
				x := newTestExchange()
				x.Request.Scheme = scheme
				x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1", Secure: secure}
				serveForwarded(t, config.HTTP1Options{XForwarded: mode}, x)
				if got := x.Request.Header.Get(forwardedProto); got != want {
					t.Errorf("%q: %s for a client that sends scheme %s, want %s", mode, got, scheme, want)
				}
			}
		}
	}
}

func TestRPCPassesUntouched(t *testing.T) {
	for _, mode := range []config.ForwardedMode{config.ForwardedKeep, config.ForwardedAppend, config.ForwardedSet, config.ForwardedStrip} {
		x := newTestExchange("X-Forwarded-For: 1", "Max-Forwards: 0")
		x.Request.Method, x.Meta.Protocol, x.Meta.Version = "", "dubbo", "dubbo/2"
		x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1"}
		got, served := serveForwarded(t, config.HTTP1Options{XForwarded: mode, Via: "weft"}, x)
		if want := "X-Forwarded-For: 1\nMax-Forwards: 0\n"; !served || got != want {
			t.Errorf("%q: upstream headers %q, want %q", mode, got, want)
		}
		if got, want := headerLines(&x.Response.Header), "Server: app\n"; got != want {
			t.Errorf("%q: client headers %q, want %q", mode, got, want)
		}
	}
}

func TestViaInRequestAndResponse(t *testing.T) {
	for version, want := range map[string]string{"HTTP/1.1": "Via: 1.0 far\nVia: 1.1 weft\n", "HTTP/1.0": "Via: 1.0 far\nVia: 1.0 weft\n", "HTTP/2": "Via: 1.0 far\nVia: 2 weft\n"} {
		x := newTestExchange("Via: 1.0 far")
		x.Meta.Version = version
		if got, _ := serveForwarded(t, config.HTTP1Options{Via: "weft"}, x); got != want {
			t.Errorf("%s: upstream headers %q, want %q", version, got, want)
		}
		if got, want := headerLines(&x.Response.Header), "Server: app\nVia: 1.0 weft\n"; got != want {
			t.Errorf("%s: client headers %q, want %q", version, got, want)
		}
	}
	x := newTestExchange()
	if got, _ := serveForwarded(t, config.HTTP1Options{}, x); got != "" || headerLines(&x.Response.Header) != "Server: app\n" {
		t.Errorf("without via: upstream headers %q, client headers %q; want %q, %q", got, headerLines(&x.Response.Header), "", "Server: app\n")
	}
}

// TestLocalReplyHasNoVia verifies that local replies have no Via header: Weft has not received them
// from a server (RFC 9110 7.6.3), even if a host was tried before.
func TestLocalReplyHasNoVia(t *testing.T) {
	for name, serve := range map[string]serviceFunc{
		"no attempt": func(_ context.Context, x *protocol.Exchange) error {
			x.LocalReply(200, "", "")
			return nil
		},
		"failure after an attempt": func(_ context.Context, x *protocol.Exchange) error {
			x.Record.Attempts = append(x.Record.Attempts, protocol.Attempt{})
			x.LocalReplyError(protocol.NewFault(protocol.BodyTooLarge, nil))
			return nil
		},
	} {
		x := newTestExchange()
		if err := x.Serve(t.Context(), Forwarded(protocol.BlockingFunc(serve), &config.Proxy{HTTP1: config.HTTP1Options{Via: "weft"}})); err != nil {
			t.Fatal(err)
		}
		if via, ok := x.Response.Header.Lookup("Via"); ok {
			t.Errorf("%s: Via: %s, want none", name, via)
		}
	}
}

// TestMaxForwards verifies the handling of Max-Forwards (RFC 9110 7.6.2).
func TestMaxForwards(t *testing.T) {
	for _, test := range []struct {
		name, method, value string
		status              int
		want                string // headers that the upstream receives; "-": not forwarded
	}{
		{"OPTIONS decrements", "OPTIONS", "5", 200, "Max-Forwards: 4\n"},
		{"TRACE decrements", "TRACE", "1", 200, "Max-Forwards: 0\n"},
		{"OPTIONS ends at 0", "OPTIONS", "0", 204, "-"},
		{"TRACE ends at 0", "TRACE", "0", 405, "-"},
		{"other methods are unchanged", "GET", "0", 200, "Max-Forwards: 0\n"},
		{"invalid number is unchanged", "OPTIONS", "many", 200, "Max-Forwards: many\n"},
		{"signed number is unchanged", "OPTIONS", "-1", 200, "Max-Forwards: -1\n"},
		{"number out of range", "OPTIONS", "99999999999", 200, "Max-Forwards: 4294967294\n"},
		{"leading zeros", "OPTIONS", "007", 200, "Max-Forwards: 6\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newTestExchange("Max-Forwards: " + test.value)
			x.Request.Method = test.method
			got, served := serveForwarded(t, config.HTTP1Options{}, x)
			if !served {
				got = "-"
			}
			if got != test.want || x.Response.Status != test.status {
				t.Errorf("upstream headers %q, status %d; want %q, %d", got, x.Response.Status, test.want, test.status)
			}
			if !served {
				if allow := x.Response.Header.Get("Allow"); !strings.Contains(allow, "GET, HEAD") {
					t.Errorf("Allow: %q, want GET, HEAD and others", allow)
				}
				if text := headerLines(&x.Response.Header) + bodyOf(t, x); strings.Contains(text, "secret") {
					t.Errorf("response %q, want no secret", text)
				}
			}
		})
	}
	x := newTestExchange()
	x.Request.Method = "TRACE"
	if _, served := serveForwarded(t, config.HTTP1Options{}, x); !served {
		t.Error("TRACE without Max-Forwards was not forwarded")
	}
}

func TestConnectIsRejectedUnlessAllowed(t *testing.T) {
	x := newTestExchange()
	x.Request.Method, x.Request.Path = "CONNECT", ""
	if _, served := serveForwarded(t, config.HTTP1Options{}, x); served || x.Response.Status != 405 || x.Record.Reason != protocol.ReasonDenied {
		t.Errorf("forwarded %t, status %d, reason %v; want false, 405, %v", served, x.Response.Status, x.Record.Reason, protocol.ReasonDenied)
	}
	if text := headerLines(&x.Response.Header) + bodyOf(t, x); strings.Contains(text, "secret") || !strings.Contains(text, "Allow: GET") {
		t.Errorf("response %q, want Allow: GET and no secret", text)
	}
	x = newTestExchange()
	x.Request.Method, x.Request.Path = "CONNECT", ""
	if _, served := serveForwarded(t, config.HTTP1Options{AllowConnect: true}, x); !served || x.Response.Status != 200 {
		t.Errorf("CONNECT allowed: forwarded %t, status %d; want true, 200", served, x.Response.Status)
	}
}

// TestXForwardedHostOption verifies that Weft adds X-Forwarded-Host only with the option, and that
// the mode decides about a received header.
func TestXForwardedHostOption(t *testing.T) {
	for _, test := range []struct {
		mode    config.ForwardedMode
		host    bool
		headers []string
		want    string
	}{
		{config.ForwardedAppend, false, nil, ""},
		{config.ForwardedAppend, true, nil, "shop.test"},
		{config.ForwardedAppend, false, []string{"X-Forwarded-Host: front.test"}, "front.test"},
		{config.ForwardedAppend, true, []string{"X-Forwarded-Host: front.test"}, "front.test"},
		{config.ForwardedSet, false, []string{"X-Forwarded-Host: front.test"}, ""},
		{config.ForwardedSet, true, []string{"X-Forwarded-Host: front.test"}, "shop.test"},
		{config.ForwardedKeep, true, nil, ""},
		{config.ForwardedStrip, true, []string{"X-Forwarded-Host: front.test"}, ""},
	} {
		x := newTestExchange(test.headers...)
		x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1"}
		serveForwarded(t, config.HTTP1Options{XForwarded: test.mode, XForwardedHost: test.host}, x)
		if got := x.Request.Header.Get(forwardedHost); got != test.want {
			t.Errorf("%q, %v, %q: upstream headers %q, want %q", test.mode, test.host, test.headers, got, test.want)
		}
	}
}
