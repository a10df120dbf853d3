package service

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestClientDetection verifies the client address, whether the request is internal, and
// X-Forwarded-For, as Envoy 1.40 determines them.
func TestClientDetection(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("9.0.0.0/8")}
	header := config.ClientDetection{Header: "x-real"}
	trusted := config.ClientDetection{Header: "x-real", Internal: true, RejectStatus: 401}
	ranges := config.ClientDetection{TrustedRanges: proxies}
	for _, test := range []struct {
		name    string
		list    []config.ClientDetection
		headers []string
		want    string // client address, "internal" and X-Forwarded-For
	}{
		{"header", []config.ClientDetection{header}, []string{"x-real: 10.1.1.1", "x-forwarded-for: 1.1.1.1"}, "10.1.1.1 1.1.1.1"},
		{"trusted header", []config.ClientDetection{trusted}, []string{"x-real: 10.1.1.1"}, "10.1.1.1 internal"},
		{"trusted header, external address", []config.ClientDetection{trusted}, []string{"x-real: 8.8.8.8"}, "8.8.8.8"},
		{"missing header", []config.ClientDetection{header}, []string{"x-forwarded-for: 10.1.1.1"}, "127.0.0.1 10.1.1.1"},
		{"missing header, rejected", []config.ClientDetection{trusted}, []string{"x-forwarded-for: 10.1.1.1"}, "401"},
		{"invalid header, rejected", []config.ClientDetection{trusted}, []string{"x-real: a"}, "401"},
		{"second detection", []config.ClientDetection{header, {TrustedHops: 1}}, []string{"x-real: bad", "x-forwarded-for: 10.1.1.1, 10.2.2.2"}, "10.1.1.1 10.1.1.1, 10.2.2.2"},
		{"too few hops", []config.ClientDetection{{TrustedHops: 1}}, []string{"x-forwarded-for: 10.1.1.1"}, "127.0.0.1 10.1.1.1"},
		{"single address", []config.ClientDetection{{}}, []string{"x-forwarded-for: 10.1.1.1"}, "10.1.1.1 internal 10.1.1.1"},
		{"address is appended", []config.ClientDetection{{Append: true}}, []string{"x-forwarded-for: 10.1.1.1"}, "10.1.1.1 internal 10.1.1.1,127.0.0.1"},
		{"nothing detected, address is appended", []config.ClientDetection{{Append: true}}, nil, "127.0.0.1 127.0.0.1"},
		{"address with a port", []config.ClientDetection{{}}, []string{"x-forwarded-for: 10.1.1.1:80"}, "127.0.0.1 10.1.1.1:80"},
		{"last address outside the ranges", []config.ClientDetection{ranges}, []string{"x-forwarded-for: 8.8.8.8,10.1.1.1,9.1.1.1"}, "10.1.1.1 8.8.8.8,10.1.1.1,9.1.1.1"},
		{"several fields", []config.ClientDetection{ranges}, []string{"x-forwarded-for: 8.8.8.8,10.1.1.1", "x-forwarded-for: 9.1.1.1"}, "10.1.1.1 8.8.8.8,10.1.1.1,9.1.1.1"},
		{"all addresses in the ranges", []config.ClientDetection{ranges}, []string{"x-forwarded-for: 9.1.1.2,9.1.1.1"}, "9.1.1.2 9.1.1.2,9.1.1.1"},
		{"invalid address", []config.ClientDetection{ranges}, []string{"x-forwarded-for: 10.1.1.1,bad"}, "127.0.0.1 10.1.1.1,bad"},
		{"single address outside the ranges", []config.ClientDetection{ranges}, []string{"x-forwarded-for: 10.1.1.1"}, "10.1.1.1 internal 10.1.1.1"},
		{"peer outside the ranges", []config.ClientDetection{{TrustedRanges: proxies[1:]}}, []string{"x-forwarded-for: 10.1.1.1"}, "127.0.0.1 10.1.1.1,127.0.0.1"},
	} {
		rules := &config.EnvoyHeaders{Detection: test.list, InternalRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		p := &config.Proxy{HTTP1: config.HTTP1Options{XFFClientIndex: 1}, ClientHeaders: config.ClientHeaders{Envoy: rules}}
		_, x := sanitizedHeaders(t, p, connFrom("127.0.0.1"), test.headers...)
		got := x.Meta.ClientIP()
		if x.Request.Header.Get("x-envoy-internal") == "true" {
			got += " internal"
		}
		if xff := x.Request.Header.Get("x-forwarded-for"); xff != "" {
			got += " " + xff
		}
		if x.Response.Status != 0 {
			got = "401"
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestEarlyMutations(t *testing.T) {
	list := []config.HeaderMutation{
		{Add: []config.HeaderValue{{Name: "x-request-id", Value: "early", If: config.AddIfAbsent}}},
		{Add: []config.HeaderValue{{Name: "x-copy", Value: "%request_header_x-k%"}}},
		{Remove: []string{"x-k"}},
		{Add: []config.HeaderValue{{Name: "x-k", Value: "again"}}},
	}
	got := ""
	s, err := EarlyMutations(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		got = strings.TrimPrefix(headerLines(&x.Request.Header), "Authorization: secret-token\nCookie: secret-cookie\n")
		return nil
	}), list)
	if err != nil {
		t.Fatal(err)
	}
	if err := newTestExchange("x-k: v").Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if want := "x-request-id: early\nx-copy: v\nx-k: again\n"; got != want {
		t.Errorf("headers %q, want %q", got, want)
	}
	if _, err := EarlyMutations(s, []config.HeaderMutation{{Add: []config.HeaderValue{{Name: "a", Value: "%nope%"}}}}); err == nil {
		t.Error("a mutation with an unknown variable: no error, want one")
	}
}
