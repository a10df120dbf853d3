package protocol

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

type closeCounter struct {
	StringBody
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

func lines(h *Header) string {
	var out strings.Builder
	for name, value := range h.All() {
		out.WriteString(name + "=" + value + " ")
	}
	return out.String()
}

func TestHeaderKeepsOrderCaseAndRepetition(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(h *Header)
		want   string
	}{
		{"as added", func(*Header) {}, "A=1 b=2 a=3 C=4 "},
		{"Set replaces the first and removes the others", func(h *Header) { h.Set("a", "x") }, "A=x b=2 C=4 "},
		{"Set appends a missing field", func(h *Header) { h.Set("D", "x") }, "A=1 b=2 a=3 C=4 D=x "},
		{"Del removes all fields of a name", func(h *Header) { h.Del("a") }, "b=2 C=4 "},
		{"Del of a missing field", func(h *Header) { h.Del("d") }, "A=1 b=2 a=3 C=4 "},
		{"At changes in place", func(h *Header) { h.At(1).Value = "x" }, "A=1 b=x a=3 C=4 "},
		{"Reset", (*Header).Reset, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h Header
			for _, f := range []Field{{"A", "1"}, {"b", "2"}, {"a", "3"}, {"C", "4"}} {
				h.Add(f.Name, f.Value)
			}
			tt.change(&h)
			if got := lines(&h); got != tt.want {
				t.Errorf("the fields are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLookupsIgnoreASCIICaseOnly(t *testing.T) { // RFC 9110 5.1
	var h Header
	h.Add("X-One", "")
	if v, ok := h.Lookup("x-oNE"); v != "" || !ok {
		t.Errorf("Lookup = %q, %v; want an empty value, true", v, ok)
	}
	if _, ok := h.Lookup("X-On"); ok {
		t.Error("Lookup of a prefix of a name returned true")
	}
	for _, pair := range [][2]string{{"k", "\u212a"}, {"@", "`"}, {"[", "{"}, {"a", "ab"}} {
		if EqualFold(pair[0], pair[1]) {
			t.Errorf("EqualFold(%q, %q) = true, want false", pair[0], pair[1])
		}
	}
}

func TestLocalReplyReplacesResponse(t *testing.T) {
	var x Exchange
	x.Reset()
	x.Request.Header.Add("Authorization", "secret")
	body := &closeCounter{}
	x.Response.Status, x.Response.Body, x.Response.ContentLength = 200, body, 100
	x.Response.Header.Add("Set-Cookie", "secret")
	x.Response.Trailer.Add("X-Sum", "secret")
	x.LocalReplyError(Faultf(UpstreamTimeout, "host %s: %w", "h", io.EOF))
	text, err := io.ReadAll(x.Response.Body)
	if err != nil || x.Response.Status != 504 || string(text) != "upstream timed out\n" || x.Response.ContentLength != int64(len(text)) {
		t.Errorf("local reply %d with %q, ContentLength %d, %v; want 504 with the text of the reason", x.Response.Status, text, x.Response.ContentLength, err)
	}
	if got := lines(&x.Response.Header) + lines(&x.Response.Trailer); got != "Content-Type=text/plain; charset=utf-8 " {
		t.Errorf("headers and trailers of the local reply: %q, want only the content type", got)
	}
	if body.closed != 1 {
		t.Errorf("the body of the replaced response was closed %d times, want once", body.closed)
	}
	if x.Record.Reason != UpstreamTimeout || x.Record.Detail != "upstream timed out: host h: EOF" {
		t.Errorf("recorded %v, %q; want UpstreamTimeout with the error text", x.Record.Reason, x.Record.Detail)
	}
}

func TestResetClearsExchange(t *testing.T) {
	conn := &ConnMeta{ID: 7}
	var x Exchange
	x.Meta.Conn = conn
	x.Request.Method, x.Request.Upgrade, x.Request.ExpectContinue = "GET", "x", true
	x.Request.Header.Add("A", "1")
	x.Response.Status = 200
	x.Record.Attempts = append(x.Record.Attempts, Attempt{Reason: ConnectFailure})
	x.Record.Detail = "d"
	x.Reset()
	if x.Meta.Conn != conn {
		t.Error("Reset cleared Meta.Conn")
	}
	if x.Request.Method+x.Request.Upgrade+x.Record.Detail != "" || x.Request.ExpectContinue || x.Request.Header.Len() != 0 ||
		x.Response.Status != 0 || len(x.Record.Attempts) != 0 || x.Request.ContentLength != -1 || x.Response.ContentLength != -1 {
		t.Errorf("after Reset: %+v, want an empty exchange", x)
	}
	if x.Record.Host() != nil || x.Record.Tried(nil) {
		t.Error("an exchange without attempts has a host")
	}
}

func TestReasonOf(t *testing.T) {
	fault := NewFault(ReasonNoRoute, nil)
	for _, tt := range []struct {
		name string
		err  error
		want Reason
		text string
	}{
		{"no error", nil, ReasonNone, ""},
		{"fault", fault, ReasonNoRoute, "no route matched"},
		{"fault with an error", NewFault(ReasonNoRoute, io.EOF), ReasonNoRoute, "no route matched: EOF"},
		{"fault in a fault", NewFault(ReasonPerTryTimeout, NewFault(UpstreamTimeout, nil)), ReasonPerTryTimeout, "upstream attempt timed out: upstream timed out"},
		{"wrapped fault", fmt.Errorf("router: %w", fault), ReasonNoRoute, "router: no route matched"},
		{"other error", io.EOF, Internal, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ReasonOf(tt.err); got != tt.want {
				t.Errorf("ReasonOf = %v, want %v", got, tt.want)
			}
			if tt.err != nil && tt.err.Error() != tt.text {
				t.Errorf("Error() = %q, want %q", tt.err, tt.text)
			}
		})
	}
	if !errors.Is(NewFault(ReasonNoRoute, io.EOF), io.EOF) {
		t.Error("a fault does not wrap its error")
	}
}

// TestReasonsStopsEarly verifies that a loop over Reasons may end before the last reason.
func TestReasonsStopsEarly(*testing.T) {
	for range Reasons() {
		break // panics if the iterator goes on
	}
}

func TestStringBodyRewinds(t *testing.T) {
	b := NewStringBody("hello")
	for range 2 {
		if b.Buffered() != 5 {
			t.Errorf("Buffered = %d, want 5", b.Buffered())
		}
		if got, err := io.ReadAll(b); string(got) != "hello" || err != nil {
			t.Errorf("read %q, %v; want \"hello\"", got, err)
		}
		if !b.Rewind() {
			t.Error("Rewind = false, want true")
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
