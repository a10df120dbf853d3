package payloadlimit

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

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	for _, test := range []struct {
		settings filtertest.Settings
		size     int
		want     int
	}{
		{examples[0], 1 << 20, 200},
		{examples[0], 1<<20 + 1, 413},
		{examples[1], 10 << 20, 200},
		{examples[1], 10<<20 + 1, 507},
	} {
		x := newPOST(test.size, declared)
		if err := x.Serve(t.Context(), newService(t, test.settings)); err != nil || x.Response.Status != test.want {
			t.Errorf("%d bytes: %v, status %d, want %d", test.size, err, x.Response.Status, test.want)
		}
	}
}

// framing is how a request delimits its body: by a declared length, or in chunks.
type framing bool

const (
	declared framing = true
	chunked  framing = false
)

func newPOST(size int, kind framing) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = "POST", "/secret-path"
	x.Request.Header.Add("Authorization", "secret-token")
	x.Request.Body = protocol.NewStringBody(strings.Repeat("x", size))
	if kind == declared {
		x.Request.ContentLength = int64(size)
	}
	return x
}

// application reads and keeps the request body, and responds with 200.
type application struct{ got []byte }

func (a *application) Start(_ context.Context, x *protocol.Exchange) error {
	var err error
	if x.Request.Body != nil {
		if a.got, err = io.ReadAll(x.Request.Body); err != nil {
			return err
		}
	}
	x.LocalReply(200, "text/plain", "from the application")
	return nil
}

func newService(t testing.TB, s filtertest.Settings) protocol.Service {
	t.Helper()
	f, _ := filtertest.Build(t, Factory(), s)
	return f(new(application))
}

func TestBodyAboveLimitIsRejected(t *testing.T) {
	for _, test := range []struct {
		name, settings string
		size           int
		want           int
	}{
		{"empty", `{"max_entity_size": 100}`, 0, 200},
		{"at the limit", `{"max_entity_size": 100}`, 100, 200},
		{"one byte above the limit", `{"max_entity_size": 100}`, 101, 413},
		{"far above the limit", `{"max_entity_size": 100}`, 1 << 20, 413},
		{"configured status", `{"max_entity_size": 100, "http_status": 509}`, 101, 509},
		{"size with a unit", `{"max_entity_size": "1KB"}`, 1024, 200},
		{"no limit by default", `{}`, 1 << 20, 200},
		{"no limit at 0", `{"max_entity_size": 0}`, 1 << 20, 200},
	} {
		for _, kind := range []framing{declared, chunked} {
			name := test.name + ", declared"
			if kind == chunked {
				name = test.name + ", chunked"
			}
			t.Run(name, func(t *testing.T) {
				x := newPOST(test.size, kind)
				if err := x.Serve(t.Context(), newService(t, filtertest.Settings(test.settings))); err != nil {
					t.Fatal(err)
				}
				if x.Response.Status != test.want {
					t.Errorf("%d bytes: status %d, want %d", test.size, x.Response.Status, test.want)
				}
				if rejected := test.want != 200; rejected != (x.Record.Reason == protocol.BodyTooLarge) {
					t.Errorf("%d bytes: reason %v, want %v exactly if the status is 413", test.size, x.Record.Reason, protocol.BodyTooLarge)
				}
			})
		}
	}
}

// TestDeclaredBodyIsRejectedUnread verifies that the filter rejects a request by its declared
// length without reading the body. A client that waits for a 100 never sends it (RFC 9110 10.1.1).
func TestDeclaredBodyIsRejectedUnread(t *testing.T) {
	x := newPOST(101, declared)
	body := &unreadableBody{t: t}
	x.Request.Body = body
	if err := x.Serve(t.Context(), newService(t, `{"max_entity_size": 100}`)); err != nil || x.Response.Status != 413 {
		t.Errorf("Serve = %v, status %d, want 413", err, x.Response.Status)
	}
}

type unreadableBody struct{ t *testing.T }

func (u *unreadableBody) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}
func (*unreadableBody) Buffered() int { return 0 }
func (*unreadableBody) Close() error  { return nil }

// TestOversizedBodyNeverLooksComplete verifies that reading a body that is too large ends in
// an error, also in later calls, and returns no bytes beyond the limit.
func TestOversizedBodyNeverLooksComplete(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"max_entity_size": 100}`)
	s := f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		buf, total := make([]byte, 64), 0
		for range 5 {
			n, err := x.Request.Body.Read(buf)
			total += n
			if err == io.EOF {
				t.Errorf("the body ended after %d bytes, want an error instead of io.EOF", total)
			}
			if err == nil && total > 100 {
				t.Errorf("%d bytes were read, want at most 100", total)
			}
		}
		_, err := x.Request.Body.Read(buf)
		return err
	}))
	x := newPOST(150, chunked)
	if err := x.Serve(t.Context(), s); err != nil || x.Response.Status != 413 {
		t.Errorf("Serve = %v, status %d, want 413", err, x.Response.Status)
	}
}

// TestRetriesRewindBody verifies that retries can rewind the body, and that the limit
// applies to each attempt separately.
func TestRetriesRewindBody(t *testing.T) {
	app := new(application)
	f, _ := filtertest.Build(t, Factory(), `{"max_entity_size": 100}`)
	s := f(protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		for range 3 {
			if err := app.Start(ctx, x); err != nil || len(app.got) != 80 {
				t.Fatalf("the application received %d bytes, Serve = %v; want 80, nil", len(app.got), err)
			}
			if r, ok := x.Request.Body.(protocol.Rewinder); !ok || !r.Rewind() {
				t.Fatal("Rewind failed")
			}
		}
		return nil
	}))
	if err := newPOST(80, chunked).Serve(t.Context(), s); err != nil {
		t.Error(err)
	}
	x := newPOST(0, chunked)
	x.Request.Body = &unreadableBody{t: t}
	s = f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if r, ok := x.Request.Body.(protocol.Rewinder); ok && r.Rewind() {
			t.Error("Rewind of a consumed body succeeded")
		}
		return nil
	}))
	if err := x.Serve(t.Context(), s); err != nil {
		t.Error(err)
	}
}

func TestOtherErrorsAreReturned(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"max_entity_size": 100}`)
	appErr := protocol.NewFault(protocol.UpstreamReset, errors.New("broken"))
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return appErr }))
	if err := newPOST(10, chunked).Serve(t.Context(), s); !errors.Is(err, appErr) {
		t.Errorf("Serve = %v, want %v", err, appErr)
	}
}

func TestRejectionContainsNothingOfRequest(t *testing.T) {
	for _, kind := range []framing{declared, chunked} {
		x := newPOST(101, kind)
		f, counts := filtertest.Build(t, Factory(), `{"max_entity_size": 100}`)
		if err := x.Serve(t.Context(), f(new(application))); err != nil {
			t.Fatal(err)
		}
		for name, value := range x.Response.Header.All() {
			if name != "Content-Type" {
				t.Errorf("the response has %s: %s, want only Content-Type", name, value)
			}
		}
		body, err := io.ReadAll(x.Response.Body)
		if err != nil || string(body) != "request body too large\n" {
			t.Errorf("the response is %q, %v; want %q", body, err, "request body too large\n")
		}
		if got := counts.Value(rejectedMetric()); got != 1 {
			t.Errorf("%s = %v, want 1", rejectedMetric().Name, got)
		}
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"status is not an error": {`{"http_status": 200}`, "http_status"},
		"negative limit":         {`{"max_entity_size": -1}`, "max_entity_size"},
		"unknown key":            {`{"max_entity_size ": 1}`, "max_entity_size"}, // the key ends with a space
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func TestRequestsWithLengthDoNotAllocate(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"max_entity_size": 100}`)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	x := newPOST(10, declared)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = x.Serve(ctx, s) }); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}
