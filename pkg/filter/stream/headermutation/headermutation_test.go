package headermutation

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	request, response := serveRequest(t, examples[0],
		"x-caller: forged, x-passed: other, x-debug: 1, accept: */*", "server: app, etag: 1")
	if want := "x-caller: 192.0.2.1, x-passed: other, accept: */*, x-passed: weft"; request != want {
		t.Errorf("the application received %q, want %q", request, want)
	}
	if want := "etag: 1, x-served-by: reviews"; response != want {
		t.Errorf("the client received %q, want %q", response, want)
	}
}

// TestRoutingHeadersOfRPCAreReplaced verifies that additions replace the routing headers of an RPC
// call, and that host is an attachment of the call.
func TestRoutingHeadersOfRPCAreReplaced(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"request_headers_to_add": [
		{"header": {"key": "version", "value": "2.0.0"}}, {"header": {"key": "trace", "value": "8"}}, {"header": {"key": "host", "value": "shop.test"}}]}`)
	x := new(protocol.Exchange)
	x.Meta.Protocol, x.Request.Authority = "dubbo", "org.example.Shop"
	filtertest.AddHeaderList(&x.Request.Header, "service: org.example.Shop, method: buy, version: 1.0.0, trace: 7")
	if err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))); err != nil {
		t.Fatal(err)
	}
	const want = "service: org.example.Shop, method: buy, version: 2.0.0, trace: 7, trace: 8, host: shop.test"
	if got := filtertest.FormatHeaders(&x.Request.Header); got != want || x.Request.Authority != "org.example.Shop" {
		t.Errorf("the provider of %s received %q, want %q", x.Request.Authority, got, want)
	}
}

// serveRequest serves a request that has requestHeaders. The application responds with
// responseHeaders. serveRequest returns the headers that the application and the client received.
func serveRequest(t *testing.T, s filtertest.Settings, requestHeaders, responseHeaders string) (appHeaders, clientHeaders string) {
	t.Helper()
	f, _ := filtertest.Build(t, Factory(), s)
	x := new(protocol.Exchange)
	x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1"}
	x.Request.Authority = "shop.test"
	filtertest.AddHeaderList(&x.Request.Header, requestHeaders)
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		appHeaders = filtertest.FormatHeaders(&x.Request.Header)
		x.Record.Cluster = namedScope("reviews")
		x.Response.Status = 200
		filtertest.AddHeaderList(&x.Response.Header, responseHeaders)
		return nil
	})))
	if err != nil {
		t.Fatal(err)
	}
	return appHeaders, filtertest.FormatHeaders(&x.Response.Header)
}

type namedScope string

func (p namedScope) Name() string             { return string(p) }
func (namedScope) Observe(*protocol.Exchange) {}

func TestMutations(t *testing.T) {
	for _, test := range []struct {
		name, list, before, want string // list follows "request_" or "response_"
	}{
		{"default appends",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}}]`, "a: 1", "a: 1, a: 2"},
		{"default adds an absent header",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}}]`, "b: 1", "b: 1, a: 2"},
		{"append true",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append": true}]`, "a: 1", "a: 1, a: 2"},
		{"append false replaces",
			`headers_to_add": [{"header": {"key": "a", "value": "3"}, "append": false}]`, "A: 1, b: 1, a: 2", "A: 3, b: 1"},
		{"APPEND_IF_EXISTS_OR_ADD",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append": false, "append_action": "APPEND_IF_EXISTS_OR_ADD"}]`, "a: 1", "a: 1, a: 2"},
		{"OVERWRITE_IF_EXISTS_OR_ADD",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}, {"header": {"key": "b", "value": "3"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]`, "a: 1", "a: 2, b: 3"},
		{"ADD_IF_ABSENT",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append_action": "ADD_IF_ABSENT"}, {"header": {"key": "b", "value": "3"}, "append_action": "ADD_IF_ABSENT"}]`, "a: 1", "a: 1, b: 3"},
		{"OVERWRITE_IF_EXISTS",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append_action": "OVERWRITE_IF_EXISTS"}, {"header": {"key": "b", "value": "3"}, "append_action": "OVERWRITE_IF_EXISTS"}]`, "a: 1", "a: 2"},
		{"removal ignores case",
			`headers_to_remove": ["A"]`, "a: 1, b: 1, A: 2", "b: 1"},
		{"variables",
			`headers_to_add": [{"header": {"key": "a", "value": "from %downstream_remote_ip% for %authority%"}}]`, "", "a: from 192.0.2.1 for shop.test"},
		{"variable without a value",
			`headers_to_add": [{"header": {"key": "a", "value": "%request_header_missing%"}}]`, "b: 1", "b: 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := serveRequest(t, filtertest.Settings(`{"request_`+test.list+`}`), test.before, "")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("request headers (-want +got):\n%s", diff)
			}
			_, got = serveRequest(t, filtertest.Settings(`{"response_`+test.list+`}`), "", test.before)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("response headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInherit(t *testing.T) {
	factory := Factory()
	listener := filtertest.Decode(t, factory, `{"request_headers_to_add": [{"header": {"key": "a", "value": "listener"}}, {"header": {"key": "b", "value": "listener"}}],
		"response_headers_to_add": [{"header": {"key": "c", "value": "listener"}}]}`)
	for settings, want := range map[filtertest.Settings][2]string{
		`{"request_headers_to_remove": ["a"], "response_headers_to_add": [{"header": {"key": "c", "value": "route"}}]}`:                  {"", "c: route"},
		`{"inherit": true, "request_headers_to_remove": ["a"], "response_headers_to_add": [{"header": {"key": "c", "value": "route"}}]}`: {"b: listener", "c: listener, c: route"},
		`{"inherit": true, "request_headers_to_add": [{"header": {"key": "b", "value": "route"}, "append": false}]}`:                     {"a: listener, b: route", "c: listener"},
	} {
		f, err := factory.New(factory.Inherit(listener, filtertest.Decode(t, factory, settings)), filter.Env{})
		if err != nil {
			t.Fatal(err)
		}
		x := new(protocol.Exchange)
		var appHeaders string
		err = x.Serve(t.Context(), f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			appHeaders = filtertest.FormatHeaders(&x.Request.Header)
			x.Response.Status = 200
			return nil
		})))
		if clientHeaders := filtertest.FormatHeaders(&x.Response.Header); err != nil || appHeaders != want[0] || clientHeaders != want[1] {
			t.Errorf("%s: request headers %q, response headers %q, %v, want %q", settings, appHeaders, clientHeaders, err, want)
		}
	}
}

func TestRemovalsPrecedeAdditions(t *testing.T) {
	appHeaders, clientHeaders := serveRequest(t, `{
		"request_headers_to_add": [{"header": {"key": "a", "value": "new"}}], "request_headers_to_remove": ["a"],
		"response_headers_to_add": [{"header": {"key": "b", "value": "new"}}], "response_headers_to_remove": ["b"]
	}`, "a: old", "b: old")
	if appHeaders != "a: new" || clientHeaders != "b: new" {
		t.Errorf("the application received %q and the client %q, want only the new values", appHeaders, clientHeaders)
	}
}

func TestErrorResponsesAreUnchanged(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"response_headers_to_add": [{"header": {"key": "a", "value": "1"}}]}`)
	appErr := errors.New("failure")
	x := new(protocol.Exchange)
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return appErr })))
	if !errors.Is(err, appErr) || x.Response.Header.Len() != 0 {
		t.Errorf("Serve = %v with %d headers, want %v and none", err, x.Response.Header.Len(), appErr)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"connection header": {`{"request_headers_to_remove": ["Connection"]}`, "Connection"},
		"framing header":    {`{"response_headers_to_add": [{"header": {"key": "content-length", "value": "0"}}]}`, "content-length"},
		"invalid name":      {`{"request_headers_to_add": [{"header": {"key": "a b", "value": "0"}}]}`, "a b"},
		"unknown variable":  {`{"request_headers_to_add": [{"header": {"key": "a", "value": "%upstream_hosts%"}}]}`, "upstream_host"},
		"line break":        {`{"request_headers_to_add": [{"header": {"key": "a", "value": "b\r\nc: d"}}]}`, "control character"},
		"no header":         {`{"request_headers_to_add": [{"append": false}]}`, "header"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func TestConstantFieldsDoNotAllocate(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{
		"request_headers_to_add": [{"header": {"key": "a", "value": "1"}, "append": false}],
		"response_headers_to_remove": ["server"]}`)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	x := new(protocol.Exchange)
	filtertest.AddHeaderList(&x.Request.Header, "a: 0")
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = x.Serve(ctx, s) }); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}

func TestStepsApplyInOrder(t *testing.T) {
	app, client := serveRequest(t, `{
		"request_headers_to_add": [{"header": {"key": "x-a", "value": "1"}}],
		"request_steps": [{"headers_to_remove": ["x-a"], "headers_to_add": [{"header": {"key": "x-b", "value": "2"}}]}, {"headers_to_add": [{"header": {"key": "x-a", "value": "3"}}]}],
		"response_steps": [{"headers_to_add": [{"header": {"key": "x-r", "value": "4"}}]}]}`, "x-a: 0", "")
	if app != "x-b: 2, x-a: 3" || client != "x-r: 4" {
		t.Errorf("the application received %q, the client %q; want x-a removed and then added", app, client)
	}
}
