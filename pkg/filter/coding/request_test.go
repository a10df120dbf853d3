package coding

import (
	"context"
	"io"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// recordingApp records the request that an application gets.
type recordingApp struct {
	content, encoding string
	length            int64
	err               error
}

func (r *recordingApp) Start(_ context.Context, x *protocol.Exchange) error {
	content, err := io.ReadAll(x.Request.Body)
	r.content, r.err = string(content), err
	r.encoding, r.length = x.Request.Header.Get("Content-Encoding"), x.Request.ContentLength
	return err
}

func TestRequestsAreDecompressed(t *testing.T) {
	gzipped, zstdd := referenceCompress(t, Gzip, compressibleText(500)), referenceCompress(t, Zstd, compressibleText(500))
	for _, test := range []struct {
		name     string
		fields   [][2]string
		sent     string
		want     string // body; "": as sent
		reason   protocol.Reason
		rejected bool
	}{
		{name: "gzip", fields: [][2]string{{"Content-Encoding", "gzip"}}, sent: gzipped, want: compressibleText(500)},
		{name: "gzip in another case", fields: [][2]string{{"content-encoding", "X-GZIP"}}, sent: gzipped, want: compressibleText(500)},
		{name: "zstd", fields: [][2]string{{"Content-Encoding", "zstd"}}, sent: zstdd, want: compressibleText(500)},
		{name: "none", sent: gzipped},
		{name: "identity", fields: [][2]string{{"Content-Encoding", "identity"}}, sent: "plain"},
		{name: "one that is not built", fields: [][2]string{{"Content-Encoding", "br"}}, sent: "..."},
		{name: "two in a field", fields: [][2]string{{"Content-Encoding", "gzip, zstd"}}, sent: "..."},
		{name: "two in two fields", fields: [][2]string{{"Content-Encoding", "gzip"}, {"Content-Encoding", "gzip"}}, sent: "..."},
		{name: "with a digest of what was sent", fields: [][2]string{{"Content-Digest", "sha-256=:AA==:"}, {"Content-Encoding", "gzip"}}, sent: gzipped},
		{name: "to be left alone", fields: [][2]string{{"Cache-Control", "no-transform"}, {"Content-Encoding", "gzip"}}, sent: gzipped},
		{name: "wrong coding", fields: [][2]string{{"Content-Encoding", "zstd"}}, sent: gzipped, reason: protocol.MalformedRequest, rejected: true},
		{name: "too large", fields: [][2]string{{"Content-Encoding", "zstd"}}, sent: referenceCompress(t, Zstd, compressibleText(1001)), reason: protocol.BodyTooLarge, rejected: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := new(protocol.Exchange)
			x.Reset()
			x.Request.Method = "POST"
			for _, f := range test.fields {
				x.Request.Header.Add(f[0], f[1])
			}
			sent := x.Request.Header.Get("Content-Encoding")
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
				if app.content != test.sent || app.encoding != sent || app.length != int64(len(test.sent)) || decompressed.Value() != 0 {
					t.Errorf("the application got %+v, want what was sent", *app)
				}
			default:
				if app.content != test.want || app.encoding != "" || app.length != -1 || decompressed.Value() != 1 {
					t.Errorf("the application got %+v, want %q", *app, test.want)
				}
			}
		})
	}
}
