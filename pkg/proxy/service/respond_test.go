package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// serviceFunc is the function of a service.
type serviceFunc = func(context.Context, *protocol.Exchange) error

// newTestExchange returns a GET exchange with these headers. It contains secrets that no response
// may contain.
func newTestExchange(headers ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1"}
	x.Meta.Version = "HTTP/1.1"
	x.Request.Method, x.Request.Scheme = "GET", "http"
	x.Request.Authority, x.Request.Path = "shop.test", "/secret-path?secret-query"
	x.Request.Header.Add("Authorization", "secret-token")
	x.Request.Header.Add("Cookie", "secret-cookie")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		x.Request.Header.Add(name, value)
	}
	return x
}

// headerLines returns the headers in h, one per line.
func headerLines(h *protocol.Header) string {
	var b strings.Builder
	for name, value := range h.All() {
		fmt.Fprintf(&b, "%s: %s\n", name, value)
	}
	return b.String()
}

// bodyOf reads the response body.
func bodyOf(t *testing.T, x *protocol.Exchange) string {
	t.Helper()
	if x.Response.Body == nil {
		return ""
	}
	text, err := io.ReadAll(x.Response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRespondUsesReasonTable(t *testing.T) {
	for reason := range protocol.Reasons() {
		t.Run(reason.String(), func(t *testing.T) {
			fault := protocol.Faultf(reason, "secret-detail of %s", "secret-path")
			x := newTestExchange()
			s := Respond(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				x.Response.Header.Add("Set-Cookie", "secret-of-an-upstream") // a partial response before the failure
				return fmt.Errorf("on the way: %w", fault)
			}), new(metrics.Counter), slog.New(slog.DiscardHandler))
			if err := x.Serve(t.Context(), s); err != nil {
				t.Fatalf("Serve = %v, want nil: Respond returns no error", err)
			}
			spec := reason.Spec()
			if x.Response.Status != spec.HTTP || x.Record.Reason != reason {
				t.Errorf("status %d, reason %v; want %d, %v", x.Response.Status, x.Record.Reason, spec.HTTP, reason)
			}
			if !strings.Contains(x.Record.Detail, "secret-detail") {
				t.Errorf("detail for the log: %q, want secret-detail in it", x.Record.Detail)
			}
			want := "Content-Type: text/plain; charset=utf-8\n"
			if reason == protocol.Overflow {
				want += "x-envoy-overloaded: true\n"
			}
			if got := headerLines(&x.Response.Header); got != want {
				t.Errorf("headers %q, want %q", got, want)
			}
			if got, want := bodyOf(t, x), spec.Text+"\n"; got != want {
				t.Errorf("body %q, want %q", got, want)
			}
		})
	}
}

func TestErrorWithoutReasonIsInternal(t *testing.T) {
	x := newTestExchange()
	s := Respond(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return errors.New("anything") }),
		new(metrics.Counter), slog.New(slog.DiscardHandler))
	if err := x.Serve(t.Context(), s); err != nil || x.Response.Status != 500 || x.Record.Reason != protocol.Internal {
		t.Errorf("Serve = %v, status %d, reason %v; want nil, 500, %v", err, x.Response.Status, x.Record.Reason, protocol.Internal)
	}
}

func TestRespondKeepsResponses(t *testing.T) {
	x := newTestExchange()
	s := Respond(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Response.Status = 503
		x.Response.Header.Add("Server", "app")
		return nil
	}), new(metrics.Counter), slog.New(slog.DiscardHandler))
	if err := x.Serve(t.Context(), s); err != nil || x.Response.Status != 503 || x.Record.Reason != protocol.ReasonNone {
		t.Errorf("Serve = %v, status %d, reason %v; want nil, 503, %v", err, x.Response.Status, x.Record.Reason, protocol.ReasonNone)
	}
	if got := headerLines(&x.Response.Header); got != "Server: app\n" {
		t.Errorf("headers %q, want %q", got, "Server: app\n")
	}
}

func TestPanicFailsOneExchange(t *testing.T) {
	panics, log := new(metrics.Counter), new(bytes.Buffer)
	s := Respond(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if x.Request.Method == "GET" {
			x.Response.Header.Add("X-Half", "secret")
			panic("secret-cause")
		}
		x.LocalReply(200, "", "")
		return nil
	}), panics, slog.New(slog.NewTextHandler(log, nil)))
	x := newTestExchange()
	if err := x.Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if x.Response.Status != 500 || x.Record.Reason != protocol.Internal {
		t.Errorf("status %d, reason %v; want 500, %v", x.Response.Status, x.Record.Reason, protocol.Internal)
	}
	if got, want := headerLines(&x.Response.Header)+bodyOf(t, x), "Content-Type: text/plain; charset=utf-8\ninternal error\n"; got != want {
		t.Errorf("response %q, want %q", got, want)
	}
	if panics.Value() != 1 {
		t.Errorf("%d panics were counted, want 1", panics.Value())
	}
	for _, want := range []string{"level=ERROR", "panic=secret-cause", "TestPanicFailsOneExchange"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not contain %q:\n%s", want, log)
		}
	}
	x = newTestExchange()
	x.Request.Method = "POST"
	if err := x.Serve(t.Context(), s); err != nil || x.Response.Status != 200 {
		t.Errorf("next exchange: %v, status %d; want nil, 200", err, x.Response.Status)
	}
}
