package coding

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// exchanged serves a GET that accepts gzip with a response of 1 KiB of HTML. ask changes the
// request, and change changes the exchange inside the application.
func exchanged(t *testing.T, p Policy, ask func(*protocol.Exchange), change func(*protocol.Exchange)) *protocol.Exchange {
	t.Helper()
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	x.Request.Header.Add("Accept-Encoding", "gzip")
	if ask != nil {
		ask(x)
	}
	p.Encoders = []*EncoderPool{encodersOf(t, Gzip, 1)}
	app := protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/html; charset=utf-8", text(1<<10))
		if change != nil {
			change(x)
		}
		return nil
	})
	if err := Compress(p)(app).Serve(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	return x
}

func html() Policy { return Policy{MinLength: 100, Types: []string{"text/html"}} }

func TestAnswersAreCompressed(t *testing.T) {
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
		{"a page", html(), nil, nil, compressed},
		{"of unknown length", html(), nil, func(x *protocol.Exchange) { x.Response.ContentLength = -1 }, compressed},
		{"of an error", html(), nil, status(404), compressed},
		{"of the least length", Policy{MinLength: 1 << 10, Types: []string{"text/html"}}, nil, nil, compressed},
		{"shorter by a byte", Policy{MinLength: 1<<10 + 1, Types: []string{"text/html"}}, nil, nil, untouched},
		{"empty", html(), nil, func(x *protocol.Exchange) { x.Response.ContentLength = 0 }, untouched},
		{"of a type in another case", Policy{Types: []string{"TEXT/HTML"}}, nil, nil, compressed},
		{"of a kind of types", Policy{Types: []string{"text/*"}}, nil, nil, compressed},
		{"of another kind", Policy{Types: []string{"image/*", "text/htm"}}, nil, nil, untouched},
		{"of no type", html(), nil, func(x *protocol.Exchange) { x.Response.Header.Del("Content-Type") }, untouched},
		{"for a caller that does not accept it", html(), func(x *protocol.Exchange) { x.Request.Header.Set("Accept-Encoding", "br") }, nil, varies},
		{"for a caller that says nothing", html(), func(x *protocol.Exchange) { x.Request.Header.Del("Accept-Encoding") }, nil, varies},
		{"for a caller that wants no change", html(), func(x *protocol.Exchange) { x.Request.Header.Add("Cache-Control", "max-age=0, No-Transform") }, nil, untouched},
		{"to HEAD", html(), func(x *protocol.Exchange) { x.Request.Method = "HEAD" }, nil, varies},
		{"with a coding", html(), nil, add("Content-Encoding", "br"), "br, "},
		{"a part, by its status", html(), nil, status(206), untouched},
		{"a part, by its range", html(), nil, add("Content-Range", "bytes 0-9/10"), untouched},
		{"without content", html(), nil, status(204), untouched},
		{"that nothing has changed", html(), nil, status(304), untouched},
		{"to be left alone", html(), nil, add("Cache-Control", "public,no-transform"), untouched},
		{"with a digest", html(), nil, add("content-digest", "sha-256=:AA==:"), untouched},
		{"that varies already", html(), nil, add("Vary", "accept-encoding, Cookie"), "gzip, accept-encoding, Cookie"},
		{"that varies by everything", html(), nil, add("Vary", "*"), "gzip, *"},
		{"with a strong tag that is to be kept", Policy{Types: []string{"text/html"}, KeepStrongTags: true}, nil, add("ETag", `"1"`), untouched},
		{"with a weak tag", Policy{Types: []string{"text/html"}, KeepStrongTags: true}, nil, add("ETag", `W/"1"`), compressed},
		{"of a call", html(), func(x *protocol.Exchange) { x.Request.Method = "" }, nil, untouched},
		{"of gRPC", Policy{Types: []string{"*/*", "application/*"}}, func(x *protocol.Exchange) { x.Request.Header.Add("Content-Type", "application/grpc") },
			add("Content-Type", "application/grpc"), untouched},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := exchanged(t, test.policy, test.ask, test.change)
			h := &x.Response.Header
			if got := h.Get("Content-Encoding") + ", " + h.Get("Vary"); got != test.want {
				t.Errorf("Content-Encoding, Vary = %q, want %q", got, test.want)
			}
			length := x.Response.ContentLength
			var content io.Reader = x.Response.Body
			if strings.HasPrefix(test.want, "gzip") {
				content = plain(t, Gzip, content)
				if length >= 0 {
					t.Errorf("the length of compressed content is said to be %d", length)
				}
			}
			if got, err := io.ReadAll(content); err != nil || string(got) != text(1<<10) {
				t.Errorf("the content is %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestAnswersToHEADSayNothingFalse verifies that a response to HEAD declares no length if the body
// of a GET would be compressed.
func TestAnswersToHEADSayNothingFalse(t *testing.T) {
	head := func(accept string) int64 {
		return exchanged(t, html(), func(x *protocol.Exchange) {
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

func TestWhatStoodForTheBytesIsChanged(t *testing.T) {
	x := exchanged(t, html(), nil, func(x *protocol.Exchange) {
		x.Response.Header.Add("ETag", `"tag"`)
		x.Response.Header.Add("Accept-Ranges", "bytes")
	})
	h := &x.Response.Header
	if h.Get("ETag") != `W/"tag"` || h.Get("Accept-Ranges") != "" {
		t.Errorf("ETag: %s, Accept-Ranges: %s; want a weak tag and no ranges", h.Get("ETag"), h.Get("Accept-Ranges"))
	}
	x = exchanged(t, html(), nil, func(x *protocol.Exchange) { x.Response.Header.Add("ETag", `W/"tag"`) })
	if got := x.Response.Header.Get("ETag"); got != `W/"tag"` {
		t.Errorf("ETag: %s", got)
	}
}

func TestOriginsDoNotSeeWhatIsHidden(t *testing.T) {
	p := html()
	p.HideRequest = true
	x := exchanged(t, p, nil, func(x *protocol.Exchange) {
		if got, ok := x.Request.Header.Lookup("Accept-Encoding"); ok {
			t.Errorf("the origin sees Accept-Encoding: %s", got)
		}
	})
	if got := x.Response.Header.Get("Content-Encoding"); got != "gzip" {
		t.Errorf("Content-Encoding: %q", got)
	}
}

func TestFailuresAreLeftAlone(t *testing.T) {
	broken := errors.New("broken")
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	s := Compress(html())(protocol.ServiceFunc(func(context.Context, *protocol.Exchange) error { return broken }))
	if err := s.Serve(t.Context(), x); !errors.Is(err, broken) || x.Response.Header.Len() != 0 {
		t.Errorf("Serve = %v with %d fields", err, x.Response.Header.Len())
	}
}

func TestAnswersThatAreLeftAloneCostNothing(t *testing.T) {
	p := html()
	p.Encoders = []*EncoderPool{encodersOf(t, Gzip, 1)}
	s := Compress(p)(protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "image/png", "picture")
		return nil
	}))
	x := new(protocol.Exchange)
	x.Request.Method = "GET"
	x.Request.Header.Add("Accept-Encoding", "gzip, deflate, br, zstd")
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = s.Serve(ctx, x) }); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}
