package service

import (
	"context"
	"net/netip"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestTargetsAreNormalizedBeforeFilters(t *testing.T) {
	allRules := config.TargetNormalization{NormalizePath: true, MergeSlashes: true, EscapedSlashes: config.ForwardPlainSlashes, StripPort: config.StripAnyPort}
	slashes := func(action config.EscapedSlashes) config.TargetNormalization {
		return config.TargetNormalization{EscapedSlashes: action, NormalizePath: true}
	}
	for _, test := range []struct {
		name         string
		rules        config.TargetNormalization
		method       string
		host, path   string
		seen         string // host and path that next receives; "": next is not called
		status       int
		reason       protocol.Reason
		wantLocation string
	}{
		{name: "normal target", rules: allRules, host: "a.test", path: "/a?b=//", seen: "a.test/a?b=//"},
		{name: "all rules", rules: allRules, host: "a.test:8080", path: "/a%2f%2e%2e//b?c=%2f", seen: "a.test/b?c=%2f"},
		{name: "dot segments only", rules: config.TargetNormalization{NormalizePath: true}, host: "a.test:80", path: "/x//../%61", seen: "a.test:80/x/a"},
		{name: "slashes only", rules: config.TargetNormalization{MergeSlashes: true}, host: "a.test", path: "//a//../b", seen: "a.test/a/../b"},
		{name: "invalid encoding", rules: allRules, host: "a.test", path: "/%zz", seen: "a.test/%zz"},
		{name: "encoded NUL", rules: config.TargetNormalization{NormalizePath: true}, host: "a.test", path: "/a%00b", reason: protocol.MalformedRequest},
		{name: "encoded NUL without path normalization", rules: config.TargetNormalization{MergeSlashes: true}, host: "a.test", path: "/a%00b", seen: "a.test/a%00b"},
		{name: "encoded slash rejected", rules: slashes(config.RejectEscapedSlashes), host: "a.test", path: "/a%5Cb", reason: protocol.MalformedRequest},
		{name: "encoded slash in the query", rules: slashes(config.RejectEscapedSlashes), host: "a.test", path: "/a?b=%2f", seen: "a.test/a?b=%2f"},
		{name: "encoded slash redirected", rules: slashes(config.RedirectEscapedSlashes), host: "a.test", path: "/a%2f../b?c", status: 307, wantLocation: "/b?c"},
		{name: "redirect stays at the host", rules: slashes(config.RedirectEscapedSlashes), host: "a.test", path: "/%2fevil.test/%5c", status: 307, wantLocation: "/evil.test//"},
		{name: "encoded slash kept", rules: slashes(config.KeepEscapedSlashes), host: "a.test", path: "/a%2fb", seen: "a.test/a%2fb"},
		{name: "matching port", rules: config.TargetNormalization{StripPort: config.StripMatchingPort}, host: "a.test:8080", path: "/", seen: "a.test/"},
		{name: "other port", rules: config.TargetNormalization{StripPort: config.StripMatchingPort}, host: "a.test:80", path: "/", seen: "a.test:80/"},
		{name: "port of an IPv6 address", rules: config.TargetNormalization{StripPort: config.StripAnyPort}, host: "[::1]:80", path: "/", seen: "[::1]/"},
		{name: "IPv6 address without a port", rules: config.TargetNormalization{StripPort: config.StripAnyPort}, host: "[::80]", path: "/", seen: "[::80]/"},
		{name: "invalid port", rules: config.TargetNormalization{StripPort: config.StripAnyPort}, host: "a.test:x", path: "/", seen: "a.test:x/"},
		{name: "trailing dot", rules: config.TargetNormalization{StripTrailingDot: true}, host: "a.test.", path: "/", seen: "a.test/"},
		{name: "trailing dot before a port", rules: config.TargetNormalization{StripTrailingDot: true}, host: "a.test.:80", path: "/", seen: "a.test:80/"},
		{name: "trailing dot and port", rules: config.TargetNormalization{StripTrailingDot: true, StripPort: config.StripAnyPort}, host: "a.test.:80", path: "/", seen: "a.test/"},
		{name: "one of two dots", rules: config.TargetNormalization{StripTrailingDot: true}, host: "a.test..", path: "/", seen: "a.test./"},
		{name: "no trailing dot", rules: config.TargetNormalization{StripTrailingDot: true}, host: "a.test:8.0", path: "/", seen: "a.test:8.0/"},
		{name: "CONNECT", rules: allRules, method: "CONNECT", host: "a.test:443", seen: "a.test:443"},
		{name: "OPTIONS for the server", rules: allRules, method: "OPTIONS", host: "a.test", path: "*", seen: "a.test*"},
		{name: "RPC request", rules: allRules, method: "-", host: "org.Shop:1", path: "/org.Shop/../buy", seen: "org.Shop:1/org.Shop/../buy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := ""
			s := NormalizeTargets(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				seen = x.Request.Authority + x.Request.Path
				return nil
			}), test.rules)
			x := new(protocol.Exchange)
			x.Reset()
			x.Meta.Conn = &protocol.ConnMeta{Local: netip.MustParseAddrPort("127.0.0.1:8080")}
			x.Request.Method, x.Request.Authority, x.Request.Path = "GET", test.host, test.path
			if test.method != "" {
				x.Request.Method = test.method
			}
			if test.method == "-" {
				x.Request.Method = ""
			}
			err := x.Serve(t.Context(), s)
			if got := protocol.ReasonOf(err); got != test.reason {
				t.Fatalf("Serve = %v, want the reason %v", err, test.reason)
			}
			if seen != test.seen || x.Response.Status != test.status || x.Response.Header.Get("location") != test.wantLocation {
				t.Errorf("next received %q, status %d, Location %q; want %q, %d, %q", seen, x.Response.Status, x.Response.Header.Get("location"), test.seen, test.status, test.wantLocation)
			}
		})
	}
}
