package router

import (
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// call returns an RPC request for org.A with unchanged headers: service, method, and then headers.
func call(headers ...string) *protocol.Exchange {
	x := request("", "org.A", "/org.A/pay", append([]string{"service", "org.A", "method", "pay"}, headers...)...)
	x.Meta.Protocol = string(config.Dubbo)
	x.Request.Header.MarkUnchanged()
	return x
}

func TestRPCPathRewriteSetsServiceAndMethod(t *testing.T) {
	prefix := func(p, replacement string) config.Route {
		return config.Route{Match: config.RouteMatch{PathKind: config.PathPrefix, Path: p}, Forward: &config.Forward{Cluster: "c", PrefixRewrite: replacement}}
	}
	regex := func(pattern, replacement string) config.Route {
		return config.Route{Forward: &config.Forward{Cluster: "c", RegexRewrite: &config.RegexRewrite{Pattern: pattern, Substitution: replacement}}}
	}
	tests := []struct {
		name            string
		route           config.Route
		path            string // "": the request does not change
		service, method string
	}{
		{"the service", prefix("/org.A/", "/org.B/"), "/org.B/pay", "org.B", "pay"},
		{"a package", prefix("/org.", "/net."), "/net.A/pay", "net.A", "pay"},
		{"prefix removed", prefix("/org.", "/"), "/A/pay", "A", "pay"},
		{"the method", regex("/pay$", "/buy"), "/org.A/buy", "org.A", "buy"},
		{"service and method", config.Route{Match: config.RouteMatch{PathKind: config.PathExact, Path: "/org.A/pay"}, Forward: &config.Forward{Cluster: "c", PrefixRewrite: "/org.B/buy"}}, "/org.B/buy", "org.B", "buy"},
		{"a service with a slash", prefix("/", "/ctx/"), "/ctx/org.A/pay", "ctx/org.A", "pay"},
		{"unchanged", prefix("/org.A/", "/org.A/"), "", "", ""},
		{"no match", regex("zzz", "/x/y"), "", "", ""},
		{"result without a method", regex(".*", "/org.B/"), "", "", ""},
		{"result without a service", regex(".*", "/pay"), "", "", ""},
		{"empty result", regex(".*", ""), "", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			x := call("version", "1.0", "k", "v")
			compileAndMatch(t, &test.route, x).RewriteRequest(x)
			path, original, changed := test.path, "/org.A/pay", true
			if test.path == "" {
				path, original, changed = "/org.A/pay", "", false
				test.service, test.method = "org.A", "pay"
			}
			want := []string{"service: " + test.service, "method: " + test.method, "version: 1.0", "k: v"}
			if got := headerLines(&x.Request.Header); !slices.Equal(got, want) {
				t.Errorf("headers %q, want %q", got, want)
			}
			if x.Request.Path != path || x.Record.OriginalPath != original || x.Request.Authority != "org.A" {
				t.Errorf("path %q, original path %q, authority %q; want %q, %q and org.A", x.Request.Path, x.Record.OriginalPath, x.Request.Authority, path, original)
			}
			if x.Request.Header.Changed() != changed {
				t.Errorf("Changed = %t, want %t", !changed, changed)
			}
		})
	}
}

func TestRPCAuthorityIsNotRewritten(t *testing.T) {
	for name, f := range map[string]config.Forward{
		"host_rewrite":             {HostRewrite: "b.test"},
		"auto_host_rewrite_header": {AutoHostRewriteHeader: "k"},
		"auto_host_rewrite":        {AutoHostRewrite: true},
	} {
		f.Cluster = "c"
		x := call("k", "c.test")
		r := compileAndMatch(t, &config.Route{Forward: &f}, x)
		r.RewriteRequest(x)
		r.RewriteHost(x, "origin.test")
		if x.Request.Authority != "org.A" || x.Request.Header.Changed() {
			t.Errorf("%s: authority %q, headers %q; want both unchanged", name, x.Request.Authority, headerLines(&x.Request.Header))
		}
	}
}

func TestRPCRoutingHeadersAreNotRepeated(t *testing.T) {
	add := func(name, value string) config.HeaderMutation {
		return config.HeaderMutation{Add: []config.HeaderValue{{Name: name, Value: value, Append: true}}}
	}
	tests := []struct {
		name     string
		m        config.HeaderMutation
		headers  []string
		want     []string // after service and method
		wantHTTP []string // for an HTTP request with the same headers
	}{
		{"version", add("version", "2"), []string{"version", "1"}, []string{"version: 2"}, []string{"version: 1", "version: 2"}},
		{"in another case", add("Group", "b"), []string{"group", "a"}, []string{"group: b"}, []string{"group: a", "Group: b"}},
		{"missing header", add("group", "b"), nil, []string{"group: b"}, []string{"group: b"}},
		{"missing variable", add("version", "%request_header_none%"), []string{"version", "1"}, []string{"version: 1"}, []string{"version: 1"}},
		{"an attachment", add("k", "2"), []string{"k", "1"}, []string{"k: 1", "k: 2"}, []string{"k: 1", "k: 2"}},
		{"an attachment called host", add("host", "b.test"), nil, []string{"host: b.test"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			route := config.Route{Forward: &config.Forward{Cluster: "c", Request: test.m}}
			rpc, http := call(test.headers...), request("GET", "org.A", "/", test.headers...)
			compileAndMatch(t, &route, rpc).RewriteRequest(rpc)
			compileAndMatch(t, &route, http).RewriteRequest(http)
			if got := headerLines(&rpc.Request.Header)[2:]; !slices.Equal(got, test.want) {
				t.Errorf("headers of a call: %q, want %q", got, test.want)
			}
			if got := headerLines(&http.Request.Header); !slices.Equal(got, test.wantHTTP) {
				t.Errorf("headers of an HTTP request: %q, want %q", got, test.wantHTTP)
			}
		})
	}
	for name, want := range map[string]string{"service": "org.B", "method": "buy"} {
		x := call()
		compileAndMatch(t, &config.Route{Forward: &config.Forward{Cluster: "c", Request: add(name, want)}}, x).RewriteRequest(x)
		if got := x.Request.Header.Get(name); got != want || x.Request.Header.Len() != 2 {
			t.Errorf("%s: headers %q, want a single %q", name, headerLines(&x.Request.Header), want)
		}
	}
	x := call()
	x.Response.Header.Add("version", "1")
	compileAndMatch(t, &config.Route{Forward: &config.Forward{Cluster: "c", Response: add("version", "2")}}, x).MutateResponse(x)
	if got := headerLines(&x.Response.Header); len(got) != 2 {
		t.Errorf("response headers %q, want two: a response has no routing headers", got)
	}
}
