package coding

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// serveCompressed serves a GET that accepts gzip with a response of 1 KiB of HTML. ask changes the
// request, and change changes the exchange inside the application.
func serveCompressed(t *testing.T, p Policy, ask func(*protocol.Exchange), change func(*protocol.Exchange)) *protocol.Exchange {
	t.Helper()
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	x.Request.Header.Add("Accept-Encoding", "gzip")
	if ask != nil {
		ask(x)
	}
	p.Encoders = []*EncoderPool{newTestEncoderPool(t, Gzip, 1)}
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/html; charset=utf-8", compressibleText(1<<10))
		if change != nil {
			change(x)
		}
		return nil
	})
	if err := x.Serve(t.Context(), Compress(p)(app)); err != nil {
		t.Fatal(err)
	}
	return x
}

func htmlPolicy() Policy { return Policy{MinLength: 100, Types: []string{"text/html"}} }

func TestCompressedResponses(t *testing.T) {
	add := func(name, value string) func(*protocol.Exchange) {
		return func(x *protocol.Exchange) { x.Response.Header.Set(name, value) }
	}
	status := func(n int) func(*protocol.Exchange) {
		return func(x *protocol.Exchange) { x.Response.Status = n }
	}
	const (
		compressed = "gzip, Accept-Encoding"
		varies     = ", Accept-Encoding"
		untouched  = ", "
	)
	for _, test := range []struct {
		name        string
		policy      Policy
		ask, change func(*protocol.Exchange)
		want        string // Content-Encoding, Vary
	}{
		{"a page", htmlPolicy(), nil, nil, compressed},
		{"of unknown length", htmlPolicy(), nil, func(x *protocol.Exchange) { x.Response.ContentLength = -1 }, compressed},
		{"of an error", htmlPolicy(), nil, status(404), compressed},
		{"of the least length", Policy{MinLength: 1 << 10, Types: []string{"text/html"}}, nil, nil, compressed},
		{"shorter by a byte", Policy{MinLength: 1<<10 + 1, Types: []string{"text/html"}}, nil, nil, untouched},
		{"empty", htmlPolicy(), nil, func(x *protocol.Exchange) { x.Response.ContentLength = 0 }, untouched},
		{"of a type in another case", Policy{Types: []string{"TEXT/HTML"}}, nil, nil, compressed},
		{"of a kind of types", Policy{Types: []string{"text/*"}}, nil, nil, compressed},
		{"of another kind", Policy{Types: []string{"image/*", "text/htm"}}, nil, nil, untouched},
		{"of no type", htmlPolicy(), nil, func(x *protocol.Exchange) { x.Response.Header.Del("Content-Type") }, untouched},
		{"for a caller that does not accept it", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Header.Set("Accept-Encoding", "br") }, nil, varies},
		{"no Accept-Encoding", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Header.Del("Accept-Encoding") }, nil, varies},
		{"for a caller that wants no change", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Header.Add("Cache-Control", "max-age=0, No-Transform") }, nil, untouched},
		{"to HEAD", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Method = "HEAD" }, nil, varies},
		{"with a coding", htmlPolicy(), nil, add("Content-Encoding", "br"), "br, "},
		{"a part, by its status", htmlPolicy(), nil, status(206), untouched},
		{"a part, by its range", htmlPolicy(), nil, add("Content-Range", "bytes 0-9/10"), untouched},
		{"without content", htmlPolicy(), nil, status(204), untouched},
		{"that nothing has changed", htmlPolicy(), nil, status(304), untouched},
		{"to be left alone", htmlPolicy(), nil, add("Cache-Control", "public,no-transform"), untouched},
		{"with a digest", htmlPolicy(), nil, add("content-digest", "sha-256=:AA==:"), untouched},
		{"that varies already", htmlPolicy(), nil, add("Vary", "accept-encoding, Cookie"), "gzip, accept-encoding, Cookie"},
		{"that varies by everything", htmlPolicy(), nil, add("Vary", "*"), "gzip, *"},
		{"with a strong tag that is to be kept", Policy{Types: []string{"text/html"}, KeepStrongTags: true}, nil, add("ETag", `"1"`), untouched},
		{"with a weak tag", Policy{Types: []string{"text/html"}, KeepStrongTags: true}, nil, add("ETag", `W/"1"`), compressed},
		{"of a call", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Method = "" }, nil, untouched},
		{"of gRPC", Policy{Types: []string{"*/*", "application/*"}}, func(x *protocol.Exchange) { x.Request.Header.Add("Content-Type", "application/grpc") },
			add("Content-Type", "application/grpc"), untouched},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := serveCompressed(t, test.policy, test.ask, test.change)
			h := &x.Response.Header
			if got := h.Get("Content-Encoding") + ", " + h.Get("Vary"); got != test.want {
				t.Errorf("Content-Encoding, Vary = %q, want %q", got, test.want)
			}
			length := x.Response.ContentLength
			var content io.Reader = x.Response.Body
			if strings.HasPrefix(test.want, "gzip") {
				content = referenceReader(t, Gzip, content)
				if length >= 0 {
					t.Errorf("the length of compressed content is said to be %d", length)
				}
			}
			if got, err := io.ReadAll(content); err != nil || string(got) != compressibleText(1<<10) {
				t.Errorf("the content is %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestHEADResponseLength verifies that a response to HEAD declares no length if the body
// of a GET would be compressed.
func TestHEADResponseLength(t *testing.T) {
	head := func(accept string) int64 {
		return serveCompressed(t, htmlPolicy(), func(x *protocol.Exchange) {
			x.Request.Method = "HEAD"
			x.Request.Header.Set("Accept-Encoding", accept)
		}, nil).Response.ContentLength
	}
	if got := head("gzip"); got != -1 {
		t.Errorf("the length is said to be %d, where GET's would be compressed", got)
	}
	if got := head("br"); got != 1<<10 {
		t.Errorf("the length is said to be %d, where GET's would be 1024", got)
	}
}

func TestETagAndAcceptRanges(t *testing.T) {
	x := serveCompressed(t, htmlPolicy(), nil, func(x *protocol.Exchange) {
		x.Response.Header.Add("ETag", `"tag"`)
		x.Response.Header.Add("Accept-Ranges", "bytes")
	})
	h := &x.Response.Header
	if h.Get("ETag") != `W/"tag"` || h.Get("Accept-Ranges") != "" {
		t.Errorf("ETag: %s, Accept-Ranges: %s; want a weak tag and no ranges", h.Get("ETag"), h.Get("Accept-Ranges"))
	}
	x = serveCompressed(t, htmlPolicy(), nil, func(x *protocol.Exchange) { x.Response.Header.Add("ETag", `W/"tag"`) })
	if got := x.Response.Header.Get("ETag"); got != `W/"tag"` {
		t.Errorf("ETag: %s", got)
	}
}

func TestHideRequest(t *testing.T) {
	p := htmlPolicy()
	p.HideRequest = true
	x := serveCompressed(t, p, nil, func(x *protocol.Exchange) {
		if got, ok := x.Request.Header.Lookup("Accept-Encoding"); ok {
			t.Errorf("the origin sees Accept-Encoding: %s", got)
		}
	})
	if got := x.Response.Header.Get("Content-Encoding"); got != "gzip" {
		t.Errorf("Content-Encoding: %q", got)
	}
}

func TestErrorsAreReturnedUnchanged(t *testing.T) {
	broken := errors.New("broken")
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	s := Compress(htmlPolicy())(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return broken }))
	if err := x.Serve(t.Context(), s); !errors.Is(err, broken) || x.Response.Header.Len() != 0 {
		t.Errorf("Serve = %v with %d fields", err, x.Response.Header.Len())
	}
}

func TestSkippedResponsesDoNotAllocate(t *testing.T) {
	p := htmlPolicy()
	p.Encoders = []*EncoderPool{newTestEncoderPool(t, Gzip, 1)}
	s := Compress(p)(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "image/png", "picture")
		return nil
	}))
	x := new(protocol.Exchange)
	x.Request.Method = "GET"
	x.Request.Header.Add("Accept-Encoding", "gzip, deflate, br, zstd")
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = x.Serve(ctx, s) }); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}
