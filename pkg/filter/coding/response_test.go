package coding

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// serveCompressed serves a GET that accepts gzip with a response of 1 KiB of HTML. editRequest
// changes the request, and editResponse changes the exchange inside the application.
func serveCompressed(t *testing.T, p Policy, editRequest func(*protocol.Exchange), editResponse func(*protocol.Exchange)) *protocol.Exchange {
	t.Helper()
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	x.Request.Header.Add("Accept-Encoding", "gzip")
	if editRequest != nil {
		editRequest(x)
	}
	p.Encoders = []*EncoderPool{newTestEncoderPool(t, Gzip, 1)}
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/html; charset=utf-8", compressibleText(1<<10))
		if editResponse != nil {
			editResponse(x)
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
	setHeader := func(name, value string) func(*protocol.Exchange) {
		return func(x *protocol.Exchange) { x.Response.Header.Set(name, value) }
	}
	status := func(n int) func(*protocol.Exchange) {
		return func(x *protocol.Exchange) { x.Response.Status = n }
	}
	const (
		compressed = "gzip, Accept-Encoding"
		varies     = ", Accept-Encoding"
		unchanged  = ", "
	)
	for _, test := range []struct {
		name        string
		policy      Policy
		ask, change func(*protocol.Exchange)
		want        string // Content-Encoding, Vary
	}{
		{"HTML page", htmlPolicy(), nil, nil, compressed},
		{"unknown length", htmlPolicy(), nil, func(x *protocol.Exchange) { x.Response.ContentLength = -1 }, compressed},
		{"error status", htmlPolicy(), nil, status(404), compressed},
		{"minimum length", Policy{MinLength: 1 << 10, Types: []string{"text/html"}}, nil, nil, compressed},
		{"one byte below the minimum length", Policy{MinLength: 1<<10 + 1, Types: []string{"text/html"}}, nil, nil, unchanged},
		{"empty", htmlPolicy(), nil, func(x *protocol.Exchange) { x.Response.ContentLength = 0 }, unchanged},
		{"media type in upper case", Policy{Types: []string{"TEXT/HTML"}}, nil, nil, compressed},
		{"media type by wildcard", Policy{Types: []string{"text/*"}}, nil, nil, compressed},
		{"other media type", Policy{Types: []string{"image/*", "text/htm"}}, nil, nil, unchanged},
		{"no Content-Type", htmlPolicy(), nil, func(x *protocol.Exchange) { x.Response.Header.Del("Content-Type") }, unchanged},
		{"client does not accept gzip", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Header.Set("Accept-Encoding", "br") }, nil, varies},
		{"no Accept-Encoding", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Header.Del("Accept-Encoding") }, nil, varies},
		{"no-transform in the request", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Header.Add("Cache-Control", "max-age=0, No-Transform") }, nil, unchanged},
		{"response to HEAD", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Method = "HEAD" }, nil, varies},
		{"response already has a coding", htmlPolicy(), nil, setHeader("Content-Encoding", "br"), "br, "},
		{"partial by status", htmlPolicy(), nil, status(206), unchanged},
		{"partial by Content-Range", htmlPolicy(), nil, setHeader("Content-Range", "bytes 0-9/10"), unchanged},
		{"no content", htmlPolicy(), nil, status(204), unchanged},
		{"not modified", htmlPolicy(), nil, status(304), unchanged},
		{"no-transform in the response", htmlPolicy(), nil, setHeader("Cache-Control", "public,no-transform"), unchanged},
		{"response with a digest", htmlPolicy(), nil, setHeader("content-digest", "sha-256=:AA==:"), unchanged},
		{"Vary has Accept-Encoding", htmlPolicy(), nil, setHeader("Vary", "accept-encoding, Cookie"), "gzip, accept-encoding, Cookie"},
		{"Vary has another name", htmlPolicy(), nil, setHeader("Vary", "Cookie"), "gzip, Cookie, Accept-Encoding"},
		{"two Vary fields", htmlPolicy(), nil, func(x *protocol.Exchange) {
			x.Response.Header.Add("Vary", "Cookie")
			x.Response.Header.Add("Vary", "Origin")
		}, "gzip, Cookie, Origin, Accept-Encoding"},
		{"no Content-Type with MissingType", Policy{MissingType: true}, nil, func(x *protocol.Exchange) { x.Response.Header.Del("Content-Type") }, compressed},
		{"excluded status", Policy{Types: []string{"text/html"}, ExcludedStatuses: []int{404}}, nil, status(404), unchanged},
		{"other status", Policy{Types: []string{"text/html"}, ExcludedStatuses: []int{404}}, nil, status(403), compressed},
		{"weak ETag with KeepWeakTags", Policy{Types: []string{"text/html"}, KeepWeakTags: true}, nil, setHeader("ETag", `W/"1"`), unchanged},
		{"strong ETag with KeepWeakTags", Policy{Types: []string{"text/html"}, KeepWeakTags: true}, nil, setHeader("ETag", `"1"`), compressed},
		{"Vary is *", htmlPolicy(), nil, setHeader("Vary", "*"), "gzip, *"},
		{"strong ETag with KeepStrongTags", Policy{Types: []string{"text/html"}, KeepStrongTags: true}, nil, setHeader("ETag", `"1"`), unchanged},
		{"weak ETag with KeepStrongTags", Policy{Types: []string{"text/html"}, KeepStrongTags: true}, nil, setHeader("ETag", `W/"1"`), compressed},
		{"RPC", htmlPolicy(), func(x *protocol.Exchange) { x.Request.Method = "" }, nil, unchanged},
		{"gRPC", Policy{Types: []string{"*/*", "application/*"}}, func(x *protocol.Exchange) { x.Request.Header.Add("Content-Type", "application/grpc") },
			setHeader("Content-Type", "application/grpc"), unchanged},
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
					t.Errorf("declared length of the compressed body = %d, want -1", length)
				}
			}
			if got, err := io.ReadAll(content); err != nil || string(got) != compressibleText(1<<10) {
				t.Errorf("body has %d bytes, %v, want 1024 bytes of text", len(got), err)
			}
		})
	}
}

// TestHEADResponseLength verifies that a response to HEAD declares no length if the body
// of a GET would be compressed.
func TestHEADResponseLength(t *testing.T) {
	headLength := func(accept string) int64 {
		return serveCompressed(t, htmlPolicy(), func(x *protocol.Exchange) {
			x.Request.Method = "HEAD"
			x.Request.Header.Set("Accept-Encoding", accept)
		}, nil).Response.ContentLength
	}
	if got := headLength("gzip"); got != -1 {
		t.Errorf("declared length = %d, want -1 because the response to GET would be compressed", got)
	}
	if got := headLength("br"); got != 1<<10 {
		t.Errorf("declared length = %d, want 1024 as for GET", got)
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
		t.Errorf("ETag: %s, want the weak tag unchanged", got)
	}
}

func TestStrongETagIsRemoved(t *testing.T) {
	p := htmlPolicy()
	p.RemoveStrongTags = true
	for tag, want := range map[string]string{`"tag"`: "", `W/"tag"`: `W/"tag"`} {
		x := serveCompressed(t, p, nil, func(x *protocol.Exchange) { x.Response.Header.Add("ETag", tag) })
		if got := x.Response.Header.Get("ETag"); got != want {
			t.Errorf("ETag %s becomes %q, want %q", tag, got, want)
		}
	}
}

func TestRemoveAcceptEncoding(t *testing.T) {
	p := htmlPolicy()
	p.RemoveAcceptEncoding = true
	x := serveCompressed(t, p, nil, func(x *protocol.Exchange) {
		if got, ok := x.Request.Header.Lookup("Accept-Encoding"); ok {
			t.Errorf("the application received Accept-Encoding: %s, want no such header", got)
		}
	})
	if got := x.Response.Header.Get("Content-Encoding"); got != "gzip" {
		t.Errorf("Content-Encoding: %q, want gzip", got)
	}
}

func TestErrorsAreReturnedUnchanged(t *testing.T) {
	appErr := errors.New("failure")
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	s := Compress(htmlPolicy())(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return appErr }))
	if err := x.Serve(t.Context(), s); !errors.Is(err, appErr) || x.Response.Header.Len() != 0 {
		t.Errorf("Serve = %v with %d headers, want %v with none", err, x.Response.Header.Len(), appErr)
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
