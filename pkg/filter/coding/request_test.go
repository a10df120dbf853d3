package coding

import (
	"context"
	"io"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// recordingApp is an application that records the request that it receives.
type recordingApp struct {
	body, encoding string
	length         int64
	err            error
}

func (r *recordingApp) Start(_ context.Context, x *protocol.Exchange) error {
	body, err := io.ReadAll(x.Request.Body)
	r.body, r.err = string(body), err
	r.encoding, r.length = x.Request.Header.Get("Content-Encoding"), x.Request.ContentLength
	return err
}

func TestRequestsAreDecompressed(t *testing.T) {
	gzipBody, zstdBody := referenceCompress(t, Gzip, compressibleText(500)), referenceCompress(t, Zstd, compressibleText(500))
	for _, test := range []struct {
		name     string
		fields   [][2]string
		sent     string
		want     string // body; "": as sent
		reason   protocol.Reason
		rejected bool
	}{
		{name: "gzip", fields: [][2]string{{"Content-Encoding", "gzip"}}, sent: gzipBody, want: compressibleText(500)},
		{name: "x-gzip in upper case", fields: [][2]string{{"content-encoding", "X-GZIP"}}, sent: gzipBody, want: compressibleText(500)},
		{name: "zstd", fields: [][2]string{{"Content-Encoding", "zstd"}}, sent: zstdBody, want: compressibleText(500)},
		{name: "no Content-Encoding", sent: gzipBody},
		{name: "identity", fields: [][2]string{{"Content-Encoding", "identity"}}, sent: "plain"},
		{name: "unsupported coding", fields: [][2]string{{"Content-Encoding", "br"}}, sent: "..."},
		{name: "two codings in one header", fields: [][2]string{{"Content-Encoding", "gzip, zstd"}}, sent: "..."},
		{name: "two headers", fields: [][2]string{{"Content-Encoding", "gzip"}, {"Content-Encoding", "gzip"}}, sent: "..."},
		{name: "digest of the compressed body", fields: [][2]string{{"Content-Digest", "sha-256=:AA==:"}, {"Content-Encoding", "gzip"}}, sent: gzipBody},
		{name: "digest of the representation", fields: [][2]string{{"repr-digest", "sha-256=:AA==:"}, {"Content-Encoding", "gzip"}}, sent: gzipBody},
		{name: "digest of RFC 3230", fields: [][2]string{{"Content-Encoding", "gzip"}, {"Digest", "sha-256=AA=="}}, sent: gzipBody},
		{name: "no-transform", fields: [][2]string{{"Cache-Control", "no-transform"}, {"Content-Encoding", "gzip"}}, sent: gzipBody},
		{name: "wrong coding", fields: [][2]string{{"Content-Encoding", "zstd"}}, sent: gzipBody, reason: protocol.MalformedRequest, rejected: true},
		{name: "too large", fields: [][2]string{{"Content-Encoding", "zstd"}}, sent: referenceCompress(t, Zstd, compressibleText(1001)), reason: protocol.BodyTooLarge, rejected: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := new(protocol.Exchange)
			x.Reset()
			x.Request.Method = "POST"
			for _, f := range test.fields {
				x.Request.Header.Add(f[0], f[1])
			}
			sentEncoding := x.Request.Header.Get("Content-Encoding")
			x.Request.Body, x.Request.ContentLength = protocol.NewStringBody(test.sent), int64(len(test.sent))
			var decompressed, rejected metrics.Counter
			app := new(recordingApp)
			limits := Limits{MaxSize: 1000}
			s := Decompress(Decompression{
				Decoders: []*DecoderPool{newTestDecoderPool(t, Gzip, limits), newTestDecoderPool(t, Zstd, limits)},
				Requests: Direction{Enabled: true, Decompressed: &decompressed}, Rejected: &rejected,
			})(app)
			err := x.Serve(t.Context(), s)
			if got := protocol.ReasonOf(err); got != test.reason || (rejected.Value() == 1) != test.rejected {
				t.Fatalf("Serve = %v, %d rejected; want %v", err, rejected.Value(), test.reason)
			}
			switch {
			case test.reason != protocol.ReasonNone:
			case test.want == "":
				if app.body != test.sent || app.encoding != sentEncoding || app.length != int64(len(test.sent)) || decompressed.Value() != 0 {
					t.Errorf("the application received %+v, want the unchanged request", *app)
				}
			default:
				if app.body != test.want || app.encoding != "" || app.length != -1 || decompressed.Value() != 1 {
					t.Errorf("the application received %+v, want the body %q", *app, test.want)
				}
			}
		})
	}
}

func TestResponsesAreDecompressed(t *testing.T) {
	content := compressibleText(500)
	gzipBody := referenceCompress(t, Gzip, content)
	for _, test := range []struct {
		name, method, coding, cacheControl string
		direction                          Direction
		want                               string // "": unchanged
	}{
		{name: "gzip", method: "GET", coding: "gzip", direction: Direction{Enabled: true}, want: content},
		{name: "disabled", method: "GET", coding: "gzip"},
		{name: "other coding", method: "GET", coding: "br", direction: Direction{Enabled: true}},
		{name: "HEAD", method: "HEAD", coding: "gzip", direction: Direction{Enabled: true}},
		{name: "RPC", coding: "gzip", direction: Direction{Enabled: true}},
		{name: "no-transform", method: "GET", coding: "gzip", cacheControl: "no-transform", direction: Direction{Enabled: true}},
		{name: "no-transform ignored", method: "GET", coding: "gzip", cacheControl: "no-transform", direction: Direction{Enabled: true, IgnoreNoTransform: true}, want: content},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := new(protocol.Exchange)
			x.Reset()
			x.Request.Method = test.method
			var decompressed metrics.Counter
			test.direction.Decompressed = &decompressed
			app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				x.LocalReply(200, "text/plain", gzipBody)
				x.Response.Header.Add("Content-Encoding", test.coding)
				if test.cacheControl != "" {
					x.Response.Header.Add("Cache-Control", test.cacheControl)
				}
				return nil
			})
			d := Decompression{Decoders: []*DecoderPool{newTestDecoderPool(t, Gzip, Limits{})}, Responses: test.direction, Rejected: new(metrics.Counter)}
			if err := x.Serve(t.Context(), Decompress(d)(app)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(x.Response.Body)
			if err != nil {
				t.Fatal(err)
			}
			wantBody, wantCoding, wantLength := gzipBody, test.coding, int64(len(gzipBody))
			if test.want != "" {
				wantBody, wantCoding, wantLength = test.want, "", -1
			}
			if string(got) != wantBody || x.Response.Header.Get("Content-Encoding") != wantCoding || x.Response.ContentLength != wantLength {
				t.Errorf("response %q of %d bytes with the coding %q; want %q of %d bytes with %q", got, x.Response.ContentLength, x.Response.Header.Get("Content-Encoding"), wantBody, wantLength, wantCoding)
			}
			if counted := decompressed.Value() == 1; counted != (test.want != "") {
				t.Errorf("%d responses counted, want 1 exactly if the response is decompressed", decompressed.Value())
			}
		})
	}
}

func TestAdvertisedCodings(t *testing.T) {
	for accept, want := range map[string]string{
		"":                      "gzip",
		"gzip":                  "gzip",
		"br;q=1, gzip;q=0":      "br;q=1,gzip",
		"X-GZIP, , deflate":     "deflate,gzip",
		"zstd;q=0.5, identity ": "zstd;q=0.5,identity,gzip",
	} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Method = "GET"
		if accept != "" {
			x.Request.Header.Add("Accept-Encoding", accept)
		}
		app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			if got := x.Request.Header.Get("Accept-Encoding"); got != want {
				t.Errorf("Accept-Encoding %q becomes %q, want %q", accept, got, want)
			}
			return nil
		})
		d := Decompression{Decoders: []*DecoderPool{newTestDecoderPool(t, Gzip, Limits{})}, Advertise: true, Rejected: new(metrics.Counter)}
		if err := x.Serve(t.Context(), Decompress(d)(app)); err != nil {
			t.Fatal(err)
		}
	}
}
