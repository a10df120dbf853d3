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
		t.Errorf("the application got %q, want %q", request, want)
	}
	if want := "etag: 1, x-served-by: reviews"; response != want {
		t.Errorf("the client got %q, want %q", response, want)
	}
}

// TestRoutingHeadersOfRPCAreReplaced verifies that additions replace the routing headers of an RPC
// call, and that host is an attachment of the call.
func TestRoutingHeadersOfRPCAreReplaced(t *testing.T) {
	made, _ := filtertest.Build(t, Factory(), `{"request_headers_to_add": [
		{"header": {"key": "version", "value": "2.0.0"}}, {"header": {"key": "trace", "value": "8"}}, {"header": {"key": "host", "value": "shop.test"}}]}`)
	x := new(protocol.Exchange)
	x.Meta.Protocol, x.Request.Authority = "dubbo", "org.example.Shop"
	filtertest.AddHeaderList(&x.Request.Header, "service: org.example.Shop, method: buy, version: 1.0.0, trace: 7")
	if err := x.Serve(t.Context(), made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))); err != nil {
		t.Fatal(err)
	}
	const want = "service: org.example.Shop, method: buy, version: 2.0.0, trace: 7, trace: 8, host: shop.test"
	if got := filtertest.FormatHeaders(&x.Request.Header); got != want || x.Request.Authority != "org.example.Shop" {
		t.Errorf("the provider of %s gets %q, want %q", x.Request.Authority, got, want)
	}
}

// serveRequest serves a request with headers request, to which the application responds with
// headers response. got are the headers that the application received, back those of the response.
func serveRequest(t *testing.T, s filtertest.Settings, request, response string) (got, back string) {
	t.Helper()
	made, _ := filtertest.Build(t, Factory(), s)
	x := new(protocol.Exchange)
	x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1"}
	x.Request.Authority = "shop.test"
	filtertest.AddHeaderList(&x.Request.Header, request)
	err := x.Serve(t.Context(), made(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		got = filtertest.FormatHeaders(&x.Request.Header)
		x.Record.Cluster = namedScope("reviews")
		x.Response.Status = 200
		filtertest.AddHeaderList(&x.Response.Header, response)
		return nil
	})))
	if err != nil {
		t.Fatal(err)
	}
	return got, filtertest.FormatHeaders(&x.Response.Header)
}

type namedScope string

func (p namedScope) Name() string             { return string(p) }
func (namedScope) Observe(*protocol.Exchange) {}

func TestMutations(t *testing.T) {
	for _, test := range []struct {
		name, list, before, want string // list follows "request_" or "response_"
	}{
		{"added to existing values by default",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}}]`, "a: 1", "a: 1, a: 2"},
		{"added where there is nothing",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}}]`, "b: 1", "b: 1, a: 2"},
		{"appended",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append": true}]`, "a: 1", "a: 1, a: 2"},
		{"replaced when append is false",
			`headers_to_add": [{"header": {"key": "a", "value": "3"}, "append": false}]`, "A: 1, b: 1, a: 2", "A: 3, b: 1"},
		{"as Envoy says it: appended",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append": false, "append_action": "APPEND_IF_EXISTS_OR_ADD"}]`, "a: 1", "a: 1, a: 2"},
		{"as Envoy says it: replaced",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}, {"header": {"key": "b", "value": "3"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]`, "a: 1", "a: 2, b: 3"},
		{"as Envoy says it: if there is none",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append_action": "ADD_IF_ABSENT"}, {"header": {"key": "b", "value": "3"}, "append_action": "ADD_IF_ABSENT"}]`, "a: 1", "a: 1, b: 3"},
		{"as Envoy says it: only in the place of one",
			`headers_to_add": [{"header": {"key": "a", "value": "2"}, "append_action": "OVERWRITE_IF_EXISTS"}, {"header": {"key": "b", "value": "3"}, "append_action": "OVERWRITE_IF_EXISTS"}]`, "a: 1", "a: 2"},
		{"removed, all of the name, in any case",
			`headers_to_remove": ["A"]`, "a: 1, b: 1, A: 2", "b: 1"},
		{"with variables",
			`headers_to_add": [{"header": {"key": "a", "value": "from %downstream_remote_ip% for %authority%"}}]`, "", "a: from 192.0.2.1 for shop.test"},
		{"not added for want of a value",
			`headers_to_add": [{"header": {"key": "a", "value": "%request_header_missing%"}}]`, "b: 1", "b: 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := serveRequest(t, filtertest.Settings(`{"request_`+test.list+`}`), test.before, "")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("of a request (-want +got):\n%s", diff)
			}
			_, got = serveRequest(t, filtertest.Settings(`{"response_`+test.list+`}`), "", test.before)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("of a response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInherit(t *testing.T) {
	kind := Factory()
	listener := filtertest.Decode(t, kind, `{"request_headers_to_add": [{"header": {"key": "a", "value": "listener"}}, {"header": {"key": "b", "value": "listener"}}],
		"response_headers_to_add": [{"header": {"key": "c", "value": "listener"}}]}`)
	for settings, want := range map[filtertest.Settings][2]string{
		`{"request_headers_to_remove": ["a"], "response_headers_to_add": [{"header": {"key": "c", "value": "route"}}]}`:                  {"", "c: route"},
		`{"inherit": true, "request_headers_to_remove": ["a"], "response_headers_to_add": [{"header": {"key": "c", "value": "route"}}]}`: {"b: listener", "c: listener, c: route"},
		`{"inherit": true, "request_headers_to_add": [{"header": {"key": "b", "value": "route"}, "append": false}]}`:                     {"a: listener, b: route", "c: listener"},
	} {
		made, err := kind.New(kind.Inherit(listener, filtertest.Decode(t, kind, settings)), filter.Env{})
		if err != nil {
			t.Fatal(err)
		}
		x := new(protocol.Exchange)
		var got string
		err = x.Serve(t.Context(), made(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			got = filtertest.FormatHeaders(&x.Request.Header)
			x.Response.Status = 200
			return nil
		})))
		if back := filtertest.FormatHeaders(&x.Response.Header); err != nil || got != want[0] || back != want[1] {
			t.Errorf("%s: %q and %q, %v, want %q", settings, got, back, err, want)
		}
	}
}

func TestRemovalsComeFirst(t *testing.T) {
	got, back := serveRequest(t, `{
		"request_headers_to_add": [{"header": {"key": "a", "value": "new"}}], "request_headers_to_remove": ["a"],
		"response_headers_to_add": [{"header": {"key": "b", "value": "new"}}], "response_headers_to_remove": ["b"]
	}`, "a: old", "b: old")
	if got != "a: new" || back != "b: new" {
		t.Errorf("the application got %q and the client %q", got, back)
	}
}

func TestErrorResponsesAreUnchanged(t *testing.T) {
	made, _ := filtertest.Build(t, Factory(), `{"response_headers_to_add": [{"header": {"key": "a", "value": "1"}}]}`)
	broken := errors.New("broken")
	x := new(protocol.Exchange)
	err := x.Serve(t.Context(), made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return broken })))
	if !errors.Is(err, broken) || x.Response.Header.Len() != 0 {
		t.Errorf("Serve = %v with %d fields, want %v and none", err, x.Response.Header.Len(), broken)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"a field of the connection": {`{"request_headers_to_remove": ["Connection"]}`, "Connection"},
		"a field of the framing":    {`{"response_headers_to_add": [{"header": {"key": "content-length", "value": "0"}}]}`, "content-length"},
		"invalid name":              {`{"request_headers_to_add": [{"header": {"key": "a b", "value": "0"}}]}`, "a b"},
		"an unknown variable":       {`{"request_headers_to_add": [{"header": {"key": "a", "value": "%upstream_hosts%"}}]}`, "upstream_host"},
		"a line break":              {`{"request_headers_to_add": [{"header": {"key": "a", "value": "b\r\nc: d"}}]}`, "control character"},
		"an addition of nothing":    {`{"request_headers_to_add": [{"append": false}]}`, "header"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func TestConstantFieldsDoNotAllocate(t *testing.T) {
	made, _ := filtertest.Build(t, Factory(), `{
		"request_headers_to_add": [{"header": {"key": "a", "value": "1"}, "append": false}],
		"response_headers_to_remove": ["server"]}`)
	s := made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	x := new(protocol.Exchange)
	filtertest.AddHeaderList(&x.Request.Header, "a: 0")
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = x.Serve(ctx, s) }); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}
