package main

import (
	"context"
	"net/netip"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// newRequest returns a request as the engine of a protocol creates it, with one x-r header for each
// value.
func newRequest(protocolName string, values []string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Conn = &protocol.ConnMeta{Remote: netip.MustParseAddrPort("10.1.2.3:50000"), RemoteIP: "10.1.2.3"}
	r := &x.Request
	switch protocolName {
	case "dubbo", "bolt":
		x.Meta.Protocol = protocolName
		r.Authority, r.Path = "org.A", "/org.A/pay"
		r.Header.Add("service", "org.A")
		r.Header.Add("method", "pay")
	default:
		x.Meta.Protocol = string(config.HTTP2)
		r.Method, r.Scheme, r.Authority, r.Path = "GET", "http", "shop.test", "/org.A/pay"
		if protocolName == "http1" {
			x.Meta.Protocol = string(config.HTTP1)
		}
		if protocolName == "grpc" {
			r.Method = "POST"
			r.Header.Add("content-type", "application/grpc")
		}
	}
	name := "x-r"
	for _, value := range values {
		r.Header.Add(name, value)
		name = "X-R"
	}
	return x
}

// TestRepeatedHeadersDoNotEvadePolicies verifies that filters act on a header value even if other
// values of the same header precede or follow it.
func TestRepeatedHeadersDoNotEvadePolicies(t *testing.T) {
	const adminMatcher = `{"name": "x-r", "string_match": {"exact": "admin"}}`
	const invertedMatcher = `{"name": "x-r", "string_match": {"exact": "admin"}, "invert_match": true, "treat_missing_header_as_empty": true}`
	rules := func(action, principal string) [2]string {
		return [2]string{"rbac", `{"rules": {"action": "` + action + `", "policies": {"p": {"permissions": [{"any": true}], "principals": [` + principal + `]}}}}`}
	}
	limit := func(action, key, value string) [2]string {
		return [2]string{"local_ratelimit", `{"rate_limits": [{"actions": [` + action + `]}],
			"descriptors": [{"entries": [{"key": "` + key + `", "value": "` + value + `"}], "token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}]}`}
	}
	metadata := func(action, principal string) [][2]string {
		return [][2]string{
			{"header_to_metadata", `{"request_rules": [{"header": "x-r", "on_header_present": {"metadata_namespace": "n", "key": "role"}}]}`},
			rules(action, principal),
		}
	}
	const roleMatcher = `{"metadata": {"filter": "n", "path": [{"key": "role"}], "value": {"string_match": {"exact": "admin"}}}}`
	for name, test := range map[string]struct {
		filters  [][2]string
		limited  bool // the filter allows the first request
		httpOnly bool
	}{
		"rbac":                              {filters: [][2]string{rules("DENY", `{"header": `+adminMatcher+`}`)}},
		"rbac, not_id":                      {filters: [][2]string{rules("ALLOW", `{"not_id": {"header": `+adminMatcher+`}}`)}},
		"rbac, not_id twice":                {filters: [][2]string{rules("DENY", `{"not_id": {"not_id": {"header": `+adminMatcher+`}}}`)}},
		"rbac, invert_match":                {filters: [][2]string{rules("ALLOW", `{"header": `+invertedMatcher+`}`)}},
		"rbac, not_id of inverted":          {filters: [][2]string{rules("DENY", `{"not_id": {"header": `+invertedMatcher+`}}`)}},
		"rbac, prefix":                      {filters: [][2]string{rules("DENY", `{"header": {"name": "x-r", "prefix_match": "adm"}}`)}},
		"rbac, suffix":                      {filters: [][2]string{rules("DENY", `{"header": {"name": "x-r", "suffix_match": "min"}}`)}},
		"rbac, regular expression":          {filters: [][2]string{rules("DENY", `{"header": {"name": "x-r", "safe_regex_match": {"regex": "ad.*n"}}}`)}},
		"rbac, metadata":                    {filters: metadata("DENY", roleMatcher)},
		"rbac, not_id of metadata":          {filters: metadata("ALLOW", `{"not_id": `+roleMatcher+`}`)},
		"fault":                             {filters: [][2]string{{"fault", `{"abort": {"percentage": 100}, "headers": [` + adminMatcher + `]}`}}},
		"fault, by value":                   {filters: [][2]string{{"fault", `{"abort": {"percentage": 100}, "headers": [{"name": "x-r", "value": "admin"}]}`}}},
		"fault, by regular expression":      {filters: [][2]string{{"fault", `{"abort": {"percentage": 100}, "headers": [{"name": "x-r", "value": "a.*n", "regex": true}]}`}}},
		"healthcheck":                       {filters: [][2]string{{"healthcheck", `{"endpoint": "/org.A/pay", "headers": [` + adminMatcher + `]}`}}, httpOnly: true},
		"local_ratelimit":                   {filters: [][2]string{limit(`{"request_headers": {"header_name": "x-r", "descriptor_key": "role"}}`, "role", "admin")}, limited: true},
		"local_ratelimit, bucket per value": {filters: [][2]string{limit(`{"request_headers": {"header_name": "x-r", "descriptor_key": "role"}}`, "role", "")}, limited: true},
		"local_ratelimit, by match":         {filters: [][2]string{limit(`{"header_value_match": {"descriptor_key": "k", "descriptor_value": "v", "headers": [`+adminMatcher+`]}}`, "k", "v")}, limited: true},
	} {
		for _, p := range []string{"http1", "http2", "grpc", "dubbo", "bolt"} {
			if test.httpOnly && p != "http1" && p != "http2" {
				continue
			}
			for _, values := range [][]string{{"admin"}, {"user", "admin"}, {"admin", "user"}, {"", "admin", "guest"}, {"admin", "admin"}} {
				t.Run(name+"/"+p, func(t *testing.T) {
					s := filterChain(t, test.filters)
					if test.limited {
						if x := newRequest(p, []string{"admin"}); !isAllowed(t, s, x) {
							t.Fatalf("the first request is rejected: %d, want it allowed", x.Response.Status)
						}
					}
					if isAllowed(t, s, newRequest(p, values)) {
						t.Errorf("a request with the values %q is allowed, want it rejected", values)
					}
				})
			}
			t.Run(name+"/"+p+"/joined", func(t *testing.T) {
				if s := filterChain(t, test.filters); !isAllowed(t, s, newRequest(p, []string{"user", "guest"})) {
					t.Error("a request with other values is rejected, want it allowed")
				}
			})
		}
	}
}

// isAllowed reports whether the filters of s let x pass to the service.
func isAllowed(t *testing.T, s protocol.Service, x *protocol.Exchange) bool {
	t.Helper()
	err := x.Serve(context.Background(), s)
	return err == nil && x.Response.Status == 0
}

// TestRepeatedHeaderCombinationsAreLimited verifies that the rate limit rejects a request with more
// combinations of values than it evaluates.
func TestRepeatedHeaderCombinationsAreLimited(t *testing.T) {
	s := filterChain(t, [][2]string{{"local_ratelimit", `{
		"rate_limits": [{"actions": [{"request_headers": {"header_name": "x-r", "descriptor_key": "r"}}, {"request_headers": {"header_name": "x-r", "descriptor_key": "s"}}]}],
		"descriptors": [{"entries": [{"key": "r"}, {"key": "s"}], "token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}]}`}})
	if !isAllowed(t, s, newRequest("http1", []string{"a", "b", "c", "d"})) {
		t.Error("a request with 16 combinations is rejected, want it allowed")
	}
	if isAllowed(t, s, newRequest("http1", []string{"e", "f", "g", "h", "i"})) {
		t.Error("a request with 25 combinations is allowed, want it rejected")
	}
}
