package cdnloop

import (
	"context"
	"flag"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// send sends a request with values of CDN-Loop. It returns the value that the application received,
// the status, and the reason of a rejection.
func send(t *testing.T, s filtertest.Settings, values ...string) (got string, status int, reason protocol.Reason) {
	t.Helper()
	f, _ := filtertest.Build(t, Factory(), s)
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	for _, v := range values {
		x.Request.Header.Add("cdn-loop", v)
	}
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		var all []string
		for name, value := range x.Request.Header.All() {
			if protocol.EqualFold(name, "CDN-Loop") {
				all = append(all, value)
			}
		}
		got = strings.Join(all, "|")
		x.LocalReply(200, "", "")
		return nil
	})))
	if err != nil {
		return got, 0, protocol.ReasonOf(err)
	}
	return got, x.Response.Status, x.Record.Reason
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	if got, status, _ := send(t, examples[0], "other.test"); status != 200 || got != "other.test,cdn.shop.test" {
		t.Errorf("status %d, CDN-Loop: %s; want the name appended", status, got)
	}
	if _, status, reason := send(t, examples[0], "other.test, cdn.shop.test"); status != 502 || reason != protocol.ReasonDenied {
		t.Errorf("a second pass: status %d, %v; want 502", status, reason)
	}
}

func TestLoops(t *testing.T) {
	for _, test := range []struct {
		values []string
		max    string
		want   string // "": rejected
		status int
	}{
		{nil, "0", "me.test", 200},
		{[]string{""}, "0", "me.test", 200},
		{[]string{"other.test"}, "0", "other.test,me.test", 200},
		{[]string{"a.test", "b.test;v=1"}, "0", "a.test,b.test;v=1,me.test", 200},
		{[]string{"me.test"}, "0", "", 502},
		{[]string{"ME.test"}, "0", "", 502},
		{[]string{"me.test"}, "1", "me.test,me.test", 200},
		{[]string{"me.test", "a.test, me.test;x=\"y\""}, "1", "", 502},
		{[]string{"me.test:80, me.test.x"}, "0", "me.test:80, me.test.x,me.test", 200},
	} {
		got, status, _ := send(t, filtertest.Settings(`{"cdn_id": "me.test", "max_allowed_occurrences": `+test.max+`}`), test.values...)
		if got != test.want || status != test.status {
			t.Errorf("%q: CDN-Loop: %q, status %d; want %q, %d", test.values, got, status, test.want, test.status)
		}
	}
	if _, status, reason := send(t, `{"cdn_id": "me.test"}`, "me.test, a b"); status != 400 || reason != protocol.ReasonDenied {
		t.Errorf("malformed: status %d, %v, want 400, %v", status, reason, protocol.ReasonDenied)
	}
}

func TestRPCRequestsPass(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"cdn_id": "me.test"}`)
	x := new(protocol.Exchange)
	x.Reset()
	if err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))); err != nil || x.Request.Header.Len() > 0 {
		t.Errorf("Serve = %v with %d fields, want none", err, x.Request.Header.Len())
	}
}

func TestCount(t *testing.T) {
	for value, want := range map[string]int{
		"":                               0,
		"a":                              1,
		"a, A;p=q ,b":                    2,
		",,a,":                           1,
		`b;p="a, a", a`:                  1,
		`b;p="\"", a;x=y;z=w`:            1,
		"[::1]:80, a":                    1,
		"a:80":                           0,
		"a ; p=q":                        1,
		"a b":                            -1,
		`"a"`:                            -1,
		"a;":                             -1,
		"a;p":                            -1,
		"a; p= q":                        -1,
		`a;p="q`:                         -1,
		"[]":                             -1,
		"[x]":                            -1,
		"a/b":                            -1,
		"a;p=q;":                         -1,
		"a,b c":                          -1,
		strings.Repeat("a,", 1000) + "a": 1001,
	} {
		n, ok := count(value, "a")
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("count(%.40q) = %d, want %d; -1 if malformed", value, n, want)
		}
	}
}

// FuzzCount verifies that appending an identifier to an accepted value adds one occurrence.
func FuzzCount(f *testing.F) {
	for _, value := range []string{"", "a", `b;p="a, a", a`, "[::1]:80", "a b", ",,", `a;p="q`, "a;p=q;"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		n, ok := count(value, "a")
		if !ok {
			return
		}
		if after, ok := count(value+", a", "a"); !ok || after != n+1 {
			t.Errorf("count(%q) = %d, and with another element %d, %t", value, n, after, ok)
		}
	})
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"no name":         {`{}`, "cdn_id"},
		"empty name":      {`{"cdn_id": ""}`, "cdn_id is not a valid identifier"},
		"two names":       {`{"cdn_id": "a, b"}`, "cdn_id is not a valid identifier"},
		"with parameters": {`{"cdn_id": "a;b=c"}`, "cdn_id is not a valid identifier"},
		"negative":        {`{"cdn_id": "a", "max_allowed_occurrences": -1}`, "max_allowed_occurrences"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func TestGRPCStatus(t *testing.T) {
	for value, want := range map[string]string{"me.test": "14", "a b": "13"} {
		f, _ := filtertest.Build(t, Factory(), `{"cdn_id": "me.test"}`)
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Method = "POST"
		filtertest.AddHeaders(&x.Request.Header, "content-type: application/grpc", "cdn-loop: "+value)
		app := protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
		if err := x.Serve(t.Context(), f(app)); err != nil || x.Response.Header.Get("grpc-status") != want {
			t.Errorf("%s: %v, grpc-status %q, want %s", value, err, x.Response.Header.Get("grpc-status"), want)
		}
	}
}
