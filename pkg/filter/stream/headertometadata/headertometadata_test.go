package headertometadata

import (
	"context"
	"flag"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	for _, test := range []struct{ fields, lb, shop, want string }{
		{"x-version: v2, a: b", "version=v2", "tenant=blue", "a: b"},
		{"a: b", "version=stable", "tenant=blue", "a: b"},
	} {
		x := serveRequest(t, examples[0], "/blue/items", test.fields)
		if got := metadataText(x, protocol.BalancerNamespace); got != test.lb {
			t.Errorf("%s: labels %q, want %q", test.fields, got, test.lb)
		}
		if got := metadataText(x, "shop"); got != test.shop {
			t.Errorf("%s: metadata of shop = %q, want %q", test.fields, got, test.shop)
		}
		if got := headerText(&x.Request.Header); got != test.want {
			t.Errorf("%s: the application received %q, want %q", test.fields, got, test.want)
		}
	}
}

// serveRequest passes a request through the filter and returns it.
func serveRequest(t *testing.T, s filtertest.Settings, path, fields string) *protocol.Exchange {
	t.Helper()
	f, _ := filtertest.Build(t, Factory(), s)
	x := new(protocol.Exchange)
	x.Request.Method, x.Request.Path = "GET", path
	for field := range strings.SplitSeq(fields, ", ") {
		if name, value, ok := strings.Cut(field, ": "); ok {
			x.Request.Header.Add(name, value)
		}
	}
	if err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))); err != nil {
		t.Fatal(err)
	}
	return x
}

func metadataText(x *protocol.Exchange, namespace string) string {
	var values []string
	for key, value := range x.Metadata.All(namespace) {
		values = append(values, key+"="+value)
	}
	return strings.Join(values, " ")
}

func headerText(h *protocol.Header) string {
	var fields []string
	for name, value := range h.All() {
		fields = append(fields, name+": "+value)
	}
	return strings.Join(fields, ", ")
}

func TestRules(t *testing.T) {
	for _, test := range []struct {
		name, rule, fields, want string
	}{
		{"header value", `"on_header_present": {"key": "k"}`, "X-A: 1", "k=1"},
		{"configured value", `"on_header_present": {"key": "k", "value": "v"}`, "x-a: 1", "k=v"},
		{"header missing", `"on_header_present": {"key": "k"}`, "x-b: 1", ""},
		{"empty header", `"on_header_present": {"key": "k", "value": "v"}`, "x-a: ", ""},
		{"on_header_missing, header missing", `"on_header_missing": {"key": "k", "value": "v"}`, "x-b: 1", "k=v"},
		{"on_header_missing, header present", `"on_header_missing": {"key": "k", "value": "v"}`, "x-a: 1", ""},
		{"repeated header", `"on_header_present": {"key": "k"}`, "x-a: 1, x-a: 2", "k=1 k=2"},
		{"number", `"on_header_present": {"key": "k", "type": "NUMBER"}`, "x-a: 01.50", "k=1.5"},
		{"configured number", `"on_header_missing": {"key": "k", "type": "NUMBER", "value": "2.0"}`, "", "k=2"},
		{"number with an exponent", `"on_header_present": {"key": "k", "type": "NUMBER"}`, "x-a: 1e3", "k=1000"},
		{"invalid number", `"on_header_present": {"key": "k", "type": "NUMBER"}`, "x-a: 1a", ""},
		{"infinity", `"on_header_present": {"key": "k", "type": "NUMBER"}`, "x-a: inf", ""},
		{"NaN", `"on_header_present": {"key": "k", "type": "NUMBER"}`, "x-a: NaN", ""},
		{"hexadecimal number", `"on_header_present": {"key": "k", "type": "NUMBER"}`, "x-a: 0x1p4", ""},
		{"base64", `"on_header_present": {"key": "k", "encode": "BASE64"}`, "x-a: djI=", "k=v2"},
		{"invalid base64", `"on_header_present": {"key": "k", "encode": "BASE64"}`, "x-a: d*I=", ""},
		{"too long", `"on_header_present": {"key": "k"}`, "x-a: " + strings.Repeat("x", maxValueBytes+1), ""},
		{"rewrite with groups", `"on_header_present": {"key": "k", "regex_value_rewrite": {"pattern": {"regex": "^(v[0-9]+)-(.*)$"}, "substitution": "\\2.\\1"}}`, "x-a: v2-b", "k=b.v2"},
		{"rewrite of several matches", `"on_header_present": {"key": "k", "regex_value_rewrite": {"pattern": {"regex": "-"}, "substitution": "$1\\\\"}}`, "x-a: a-b-c", `k=a$1\b$1\c`},
		{"rewrite without a match", `"on_header_present": {"key": "k", "regex_value_rewrite": {"pattern": {"regex": "^x"}, "substitution": ""}}`, "x-a: a", "k=a"},
		{"rewrite to an empty value", `"on_header_present": {"key": "k", "regex_value_rewrite": {"pattern": {"regex": ".*"}, "substitution": ""}}`, "x-a: a", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := filtertest.Settings(`{"request_rules": [{"header": "x-a", ` + test.rule + `}]}`)
			x := serveRequest(t, settings, "/", test.fields)
			if got := metadataText(x, protocol.BalancerNamespace); got != test.want {
				t.Errorf("metadata %q, want %q", got, test.want)
			}
			if got := headerText(&x.Request.Header); got != test.fields {
				t.Errorf("the application received %q, want %q", got, test.fields)
			}
		})
	}
}

func TestLastRuleWins(t *testing.T) {
	x := serveRequest(t, `{"request_rules": [
		{"header": "a", "on_header_present": {"key": "k"}},
		{"cookie": "c", "on_header_present": {"metadata_namespace": "envoy.lb", "key": "k"}},
		{"header": "b", "remove": true, "on_header_present": {"metadata_namespace": "mosn.lb", "key": "k"}}
	]}`, "/", "a: 1, b: 2, Cookie: x=y; c=3, B: 4")
	if got := metadataText(x, protocol.BalancerNamespace); got != "k=2 k=4" {
		t.Errorf("metadata %q, want the values of the last rule", got)
	}
	if got := headerText(&x.Request.Header); got != "a: 1, Cookie: x=y; c=3" {
		t.Errorf("the application received %q, want the headers without b", got)
	}
	if x = serveRequest(t, `{"request_rules": [{"cookie": "c", "on_header_present": {"key": "k"}}]}`, "/", "Cookie: x=y; c=3"); metadataText(x, "mosn.lb") != "k=3" {
		t.Errorf("metadata of a cookie = %q, want k=3", metadataText(x, "mosn.lb"))
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ rule, want string }{
		"neither header nor cookie":         {`"on_header_present": {"key": "k"}`, "one of header and cookie"},
		"header and cookie":                 {`"header": "a", "cookie": "b", "on_header_present": {"key": "k"}`, "one of header and cookie"},
		"no metadata":                       {`"header": "a", "remove": true`, "neither on_header_present"},
		"no key":                            {`"header": "a", "on_header_present": {}`, "key"},
		"empty key":                         {`"header": "a", "on_header_present": {"key": ""}`, "key is empty"},
		"on_header_missing without a value": {`"header": "a", "on_header_missing": {"key": "k"}`, "on_header_missing"},
		"value and rewrite":                 {`"header": "a", "on_header_present": {"key": "k", "value": "v", "regex_value_rewrite": {"pattern": {"regex": "a"}}}`, "mutually exclusive"},
		"invalid regex":                     {`"header": "a", "on_header_present": {"key": "k", "regex_value_rewrite": {"pattern": {"regex": "("}}}`, "regex_value_rewrite.pattern"},
		"missing group":                     {`"header": "a", "on_header_present": {"key": "k", "regex_value_rewrite": {"pattern": {"regex": "(a)"}, "substitution": "\\2"}}`, "1 groups"},
		"incomplete escape":                 {`"header": "a", "on_header_present": {"key": "k", "regex_value_rewrite": {"pattern": {"regex": "a"}, "substitution": "\\"}}`, "ends in"},
		"invalid number":                    {`"header": "a", "on_header_missing": {"key": "k", "type": "NUMBER", "value": "x"}`, "not a number"},
		"unsupported type":                  {`"header": "a", "on_header_present": {"key": "k", "type": "PROTOBUF_VALUE"}`, "PROTOBUF_VALUE"},
		"removal of the path":               {`"header": ":path", "remove": true, "on_header_present": {"key": "k"}`, "cannot be removed"},
		"removal of a cookie":               {`"cookie": "a", "remove": true, "on_header_present": {"key": "k"}`, "cannot be removed"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := filtertest.Settings(`{"request_rules": [{` + test.rule + `}]}`)
			if got := filtertest.DecodeErrors(t, Factory(), settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
	if got := filtertest.DecodeErrors(t, Factory(), `{"response_rules": [{"header": "a"}]}`); !strings.Contains(got, "response_rules") {
		t.Errorf("rejected with %q, want an error with response_rules", got)
	}
}

func newService(t testing.TB) (protocol.Service, *protocol.Exchange) {
	f, _ := filtertest.Build(t, Factory(), `{"request_rules": [
		{"header": "x-version", "on_header_present": {"key": "version"}, "on_header_missing": {"key": "version", "value": "v1"}},
		{"header": "x-zone", "on_header_missing": {"key": "zone", "value": "a"}}]}`)
	x := new(protocol.Exchange)
	x.Request.Method = "GET"
	x.Request.Header.Add("Accept", "*/*")
	x.Request.Header.Add("X-Version", "v2")
	return f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })), x
}

func TestPassingDoesNotAllocate(t *testing.T) {
	s, x := newService(t)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if err := x.Serve(ctx, s); err != nil || x.Metadata.Len() != 2 {
			t.Fatalf("Serve = %v with %d values; want nil, 2", err, x.Metadata.Len())
		}
	}); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}

func BenchmarkServe(b *testing.B) {
	s, x := newService(b)
	filtertest.Bench(b, s, x)
}
