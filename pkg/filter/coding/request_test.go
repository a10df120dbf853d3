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
			s := Decompress([]*DecoderPool{newTestDecoderPool(t, Gzip, limits), newTestDecoderPool(t, Zstd, limits)}, &decompressed, &rejected)(app)
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
