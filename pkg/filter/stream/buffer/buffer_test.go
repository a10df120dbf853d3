package buffer

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func newPOST(body protocol.Body, length int64) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path, x.Request.Body, x.Request.ContentLength = "POST", "/", body, length
	return x
}

// send sends a request, and returns the error and the body and the declared length at the
// application.
func send(t *testing.T, s filtertest.Settings, x *protocol.Exchange) (got string, length int64, err error) {
	t.Helper()
	f, _ := filtertest.Build(t, Factory(), s)
	err = x.Serve(t.Context(), f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		length = x.Request.ContentLength
		content, err := io.ReadAll(x.Request.Body)
		got = string(content)
		return err
	})))
	return got, length, err
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	for _, test := range []struct {
		settings filtertest.Settings
		size     int
		want     protocol.Reason
	}{
		{examples[0], 1 << 20, protocol.ReasonNone},
		{examples[0], 1<<20 + 1, protocol.BodyTooLarge},
		{examples[1], 10 << 20, protocol.ReasonNone},
		{examples[2], 20 << 20, protocol.ReasonNone},
	} {
		x := newPOST(protocol.NewStringBody(strings.Repeat("x", test.size)), -1)
		if _, _, err := send(t, test.settings, x); protocol.ReasonOf(err) != test.want {
			t.Errorf("%d bytes: %v, want %v", test.size, err, test.want)
		}
	}
}

// chunkBody returns one byte for each Read, and then an error.
type chunkBody struct {
	remaining string
	err       error // nil: io.EOF
	trailer   func()
	closed    bool
}

func (c *chunkBody) Read(p []byte) (int, error) {
	if c.remaining == "" {
		if c.trailer != nil {
			c.trailer()
		}
		if c.err != nil {
			return 0, c.err
		}
		return 0, io.EOF
	}
	n := copy(p, c.remaining[:1])
	c.remaining = c.remaining[n:]
	return n, nil
}

func (*chunkBody) Buffered() int  { return 0 }
func (c *chunkBody) Close() error { c.closed = true; return nil }

func TestBodyIsReadFirst(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	for _, test := range []struct {
		name, settings, body string
		length               int64
		want                 protocol.Reason
	}{
		{"chunked", `{}`, "hello", -1, protocol.ReasonNone},
		{"declared", `{}`, "hello", 5, protocol.ReasonNone},
		{"empty and chunked", `{}`, "", -1, protocol.ReasonNone},
		{"long", `{}`, long, -1, protocol.ReasonNone},
		{"at the limit", `{"max_request_bytes": 5}`, "hello", -1, protocol.ReasonNone},
		{"above the limit", `{"max_request_bytes": 4}`, "hello", -1, protocol.BodyTooLarge},
		{"declared above the limit", `{"max_request_bytes": 4}`, "hello", 5, protocol.BodyTooLarge},
		{"far above the limit", `{"max_request_bytes": 5000}`, long, -1, protocol.BodyTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := &chunkBody{remaining: test.body}
			x := newPOST(body, test.length)
			got, length, err := send(t, filtertest.Settings(test.settings), x)
			if protocol.ReasonOf(err) != test.want {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			if test.want == protocol.ReasonNone && (got != test.body || length != int64(len(test.body))) {
				t.Errorf("the application received %d bytes with the length %d, want %d", len(got), length, len(test.body))
			}
			if _ = x.Request.Body.Close(); !body.closed {
				t.Error("Close did not close the body of the client")
			}
		})
	}
}

func TestBodyWithTrailerHasNoLength(t *testing.T) {
	x := newPOST(nil, -1)
	x.Request.Body = &chunkBody{remaining: "hello", trailer: func() { x.Request.Trailer.Add("x-t", "1") }}
	if got, length, err := send(t, `{}`, x); err != nil || got != "hello" || length != -1 {
		t.Errorf("the application received %q with the length %d, %v; want no length", got, length, err)
	}
}

func TestErrorsOfBodyAreReturned(t *testing.T) {
	bodyErr := protocol.NewFault(protocol.RequestTimeout, errors.New("slow"))
	f, counts := filtertest.Build(t, Factory(), `{}`)
	x := newPOST(&chunkBody{remaining: "hel", err: bodyErr}, 5)
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
		t.Error("the request was forwarded")
		return nil
	})))
	if !errors.Is(err, bodyErr) || counts.Value(rejectedMetric()) != 0 {
		t.Errorf("Serve = %v, want %v", err, bodyErr)
	}
}

func TestBodyIsReadAgain(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{}`)
	s := f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		for range 2 {
			if content, err := io.ReadAll(x.Request.Body); err != nil || string(content) != "hello" {
				t.Errorf("body %q, %v", content, err)
			}
			if !protocol.RewindBody(x.Request.Body) {
				t.Error("Rewind failed")
			}
		}
		return nil
	}))
	if err := newPOST(&chunkBody{remaining: "hello"}, -1).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// completeBody is a body that has arrived.
type completeBody struct{ protocol.StringBody }

func (c *completeBody) Complete() (complete, empty bool) { return true, c.Buffered() == 0 }

// TestCompleteBodyNeedsNoGoroutine verifies that Start itself reads a body that has arrived.
func TestCompleteBodyNeedsNoGoroutine(t *testing.T) {
	for _, text := range []string{"", "hello"} {
		f, _ := filtertest.Build(t, Factory(), `{}`)
		served := false
		x := newPOST(&completeBody{*protocol.NewStringBody(text)}, -1)
		err := f(protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
			served = true
			if content, err := io.ReadAll(x.Request.Body); err != nil || string(content) != text {
				t.Errorf("body %q, %v, want %q", content, err, text)
			}
			return nil
		})).Start(t.Context(), x)
		if err != nil || !served {
			t.Errorf("Start = %v, served %t", err, served)
		}
	}
}

func TestOtherRequestsPass(t *testing.T) {
	for name, change := range map[string]func(x *protocol.Exchange){
		"no body": func(x *protocol.Exchange) { x.Request.Body = nil },
		"RPC":     func(x *protocol.Exchange) { x.Request.Method = "" },
		"CONNECT": func(x *protocol.Exchange) { x.Request.Method = "CONNECT" },
		"upgrade": func(x *protocol.Exchange) { x.Request.Upgrade = "websocket" },
	} {
		f, _ := filtertest.Build(t, Factory(), `{"max_request_bytes": 1}`)
		x := newPOST(&chunkBody{remaining: "hello"}, -1)
		change(x)
		body := x.Request.Body
		err := f(protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
			if x.Request.Body != body {
				t.Errorf("%s: the body was replaced", name)
			}
			return nil
		})).Start(t.Context(), x)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"no limit":    {`{"max_request_bytes": 0}`, "max_request_bytes"},
		"unknown key": {`{"max_request_byte": 1}`, "max_request_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}
