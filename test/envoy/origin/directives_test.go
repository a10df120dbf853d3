package origin

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

func TestParseDirectives(t *testing.T) {
	base := func(change func(*directives)) directives {
		d := directives{outcome: respond, status: 200, bodyDelay: -time.Millisecond, body: []byte("from o1"), cut: -1}
		change(&d)
		return d
	}
	for _, test := range []struct {
		name    string
		fields  []string // alternating names and values
		attempt int
		want    directives
	}{
		{"no directive", nil, 0, base(func(*directives) {})},
		{"status and delay", []string{"X-O-Status", "404", "x-o-delay", "20"}, 0,
			base(func(d *directives) { d.status, d.delay = 404, 20*time.Millisecond })},
		{"a body of some length", []string{"x-o-len", "3"}, 0, base(func(d *directives) { d.body = []byte("xxx") })},
		{"a text", []string{"x-o-body", "hi"}, 0, base(func(d *directives) { d.body = []byte("hi") })},
		{"fields", []string{"x-o-h", "A: b | C:d: e|no colon"}, 0,
			base(func(d *directives) { d.fields = []wire.Field{{Name: "A", Value: "b"}, {Name: "C", Value: "d: e"}} })},
		{"trailers imply chunks", []string{"x-o-trailers", "a=b,c=d"}, 0, base(func(d *directives) {
			d.chunked, d.trailers = true, []wire.Field{{Name: "a", Value: "b"}, {Name: "c", Value: "d"}}
		})},
		{"the first step", []string{"x-o-seq", "503,reset,200"}, 0, base(func(d *directives) { d.status = 503 })},
		{"the second step", []string{"x-o-seq", "503, reset ,200"}, 1, base(func(d *directives) { d.outcome = resetConn })},
		{"the last step is repeated", []string{"x-o-seq", "503,reset,204"}, 9, base(func(d *directives) { d.status = 204 })},
		{"a delayed step", []string{"x-o-seq", "delay50:500"}, 0,
			base(func(d *directives) { d.status, d.delay = 500, 50*time.Millisecond })},
		{"a step of this origin", []string{"x-o-at", "o2=hang, o1=close"}, 0, base(func(d *directives) { d.outcome = closeConn })},
		{"a step of another origin", []string{"x-o-at", "o2=hang"}, 0, base(func(*directives) {})},
		{"a step before the body", []string{"x-o-seq", "reset0"}, 0, base(func(d *directives) { d.outcome = resetImmediately })},
		{"until close", []string{"x-o-untilclose", "1"}, 0, base(func(d *directives) { d.closing, d.untilClose = true, true })},
		{"cut", []string{"x-o-cut", "10", "x-o-bodydelay", "5"}, 0,
			base(func(d *directives) { d.cut, d.bodyDelay = 10, 5*time.Millisecond })},
	} {
		var fields []wire.Field
		for pair := range slices.Chunk(test.fields, 2) {
			fields = append(fields, wire.Field{Name: pair[0], Value: pair[1]})
		}
		got, err := parseDirectives(fields, "o1", test.attempt)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: parseDirectives = %+v, %v, want %+v", test.name, got, err, test.want)
		}
	}
}

func TestMalformedDirectives(t *testing.T) {
	for _, f := range []wire.Field{
		{Name: "x-o-status", Value: "ok"}, {Name: "x-o-delay", Value: "1s"}, {Name: "x-o-seq", Value: "explode"},
		{Name: "x-o-seq", Value: "delayx:200"}, {Name: "x-o-seq", Value: "delay5"},
	} {
		if d, err := parseDirectives([]wire.Field{f}, "o1", 0); err == nil {
			t.Errorf("parseDirectives(%v) = %+v, want an error", f, d)
		}
	}
}

func TestAppendHead(t *testing.T) {
	for want, fields := range map[string][]wire.Field{
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\n":                          nil,
		"HTTP/1.1 204 Status\r\nContent-Type: text/plain\r\n\r\n":                                           {{Name: "x-o-status", Value: "204"}},
		"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 7\r\n\r\n":                                 {{Name: "x-o-h", Value: "Content-Type: a/b"}},
		"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n":                                                      {{Name: "x-o-noct", Value: "1"}},
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 7\r\n\r\n":     {{Name: "x-o-close", Value: "1"}},
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n":                                               {{Name: "x-o-untilclose", Value: "1"}},
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nTrailer: a,b\r\n\r\n": {{Name: "x-o-trailers", Value: "a=1,b=2"}},
		"HTTP/1.1 503 Status\r\nA: b\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n": {
			{Name: "x-o-status", Value: "503"}, {Name: "x-o-chunked", Value: "1"}, {Name: "x-o-h", Value: "A: b"}},
	} {
		d, err := parseDirectives(fields, "o1", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(d.appendHead(nil)); got != want {
			t.Errorf("%v: appendHead = %q, want %q", fields, got, want)
		}
	}
}
