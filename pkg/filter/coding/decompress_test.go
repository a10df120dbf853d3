package coding

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func newTestDecoderPool(t testing.TB, c Coding, l Limits) *DecoderPool {
	t.Helper()
	d, err := NewDecoderPool(c, l)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// referenceCompress compresses content with a reference implementation.
func referenceCompress(t testing.TB, c Coding, content string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	if c == Gzip {
		w = stdgzip.NewWriter(&b)
	} else {
		var err error
		if w, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestContentIsDecompressed(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		d := newTestDecoderPool(t, c, Limits{})
		line := compressibleText(80)
		for name, test := range map[string]struct{ sent, want string }{
			"one line":       {referenceCompress(t, c, line), line},
			"large":          {referenceCompress(t, c, compressibleText(1<<20)), compressibleText(1 << 20)},
			"incompressible": {referenceCompress(t, c, incompressibleText(200_000)), incompressibleText(200_000)},
			"two members":    {referenceCompress(t, c, "one, ") + referenceCompress(t, c, "two"), "one, two"},
			"empty source":   {"", ""},
			"empty content":  {referenceCompress(t, c, ""), ""},
		} {
			t.Run(c.String()+" "+name, func(t *testing.T) {
				body := d.Decompress(protocol.NewStringBody(test.sent))
				for range 2 {
					if got, err := io.ReadAll(body); err != nil || string(got) != test.want {
						t.Errorf("decompressed to %d bytes, %v; want %d", len(got), err, len(test.want))
					}
					if r, ok := body.(protocol.Rewinder); !ok || !r.Rewind() {
						t.Fatal("Rewind = false, want true")
					}
				}
			})
		}
	}
}

func TestCorruptContentIsMalformed(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		valid := referenceCompress(t, c, compressibleText(1000))
		corrupt := []byte(valid)
		corrupt[len(corrupt)-1] ^= 1 // corrupts the checksum or the length
		for name, sent := range map[string]string{
			"plain text": "hello, this content is not compressed", "truncated": valid[:len(valid)-3],
			"corrupt checksum": string(corrupt), "trailing garbage": valid + "garbage garbage",
		} {
			t.Run(c.String()+" "+name, func(t *testing.T) {
				body := newTestDecoderPool(t, c, Limits{}).Decompress(protocol.NewStringBody(sent))
				_, err := io.ReadAll(body)
				if protocol.ReasonOf(err) != protocol.MalformedRequest {
					t.Errorf("read ended with %v, want %v", err, protocol.MalformedRequest)
				}
				if _, repeated := body.Read(make([]byte, 10)); repeated != err {
					t.Errorf("the next Read returned %v, want the same error", repeated)
				}
			})
		}
	}
}

func TestDecompressionLimits(t *testing.T) {
	if invariants.Enabled {
		t.Skip("decompresses 100 MiB: runs only without the race detector")
	}
	for _, c := range []Coding{Gzip, Zstd} {
		bomb := referenceCompress(t, c, string(make([]byte, 32<<20)))
		for _, test := range []struct {
			name     string
			limits   Limits
			sent     string
			maxBytes int64 // maximum number of bytes before the error; -1: no error
		}{
			{"above the size limit", Limits{MaxSize: 1 << 20}, bomb, 1 << 20},
			{"above the ratio limit", Limits{MaxRatio: 100}, bomb, RatioMinSize + 1<<20},
			{"above the ratio limit, within the size limit", Limits{MaxRatio: 10, MaxSize: 1 << 30}, bomb, RatioMinSize + 1<<20},
			{"small body with a high ratio", Limits{MaxRatio: 2}, referenceCompress(t, c, compressibleText(RatioMinSize)), -1},
			{"exactly the size limit", Limits{MaxSize: 1000}, referenceCompress(t, c, compressibleText(1000)), -1},
			{"one byte above the size limit", Limits{MaxSize: 1000}, referenceCompress(t, c, compressibleText(1001)), 1000},
			{"low ratio", Limits{MaxRatio: 100}, referenceCompress(t, c, incompressibleText(300<<10)), -1},
			{"no limits", Limits{}, bomb, -1},
		} {
			t.Run(fmt.Sprintf("%v %s", c, test.name), func(t *testing.T) {
				n, err := io.Copy(io.Discard, newTestDecoderPool(t, c, test.limits).Decompress(protocol.NewStringBody(test.sent)))
				if test.maxBytes < 0 {
					if err != nil {
						t.Errorf("rejected after %d bytes: %v", n, err)
					}
					return
				}
				if protocol.ReasonOf(err) != protocol.BodyTooLarge || !errors.Is(err, ErrTooLarge) || n > test.maxBytes {
					t.Errorf("read %d bytes, %v; want at most %d and %v", n, err, test.maxBytes, protocol.BodyTooLarge)
				}
			})
		}
	}
}

// TestWindowsAreBounded verifies that the decoder rejects a frame that declares a window of 64 MB.
func TestWindowsAreBounded(t *testing.T) {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 16 << 3, 0x01, 0x00, 0x00} // window descriptor: 2^(10+16)
	_, err := io.ReadAll(newTestDecoderPool(t, Zstd, Limits{}).Decompress(protocol.NewStringBody(string(frame))))
	if protocol.ReasonOf(err) != protocol.MalformedRequest {
		t.Errorf("read ended with %v, want %v", err, protocol.MalformedRequest)
	}
}

func TestSourceErrorsAreReturned(t *testing.T) {
	sourceErr := protocol.NewFault(protocol.RequestTimeout, errors.New("timeout"))
	for _, c := range []Coding{Gzip, Zstd} {
		for name, sent := range map[string][]string{"first read": nil, "after some bytes": {referenceCompress(t, c, compressibleText(1000))[:20]}} {
			body := newTestDecoderPool(t, c, Limits{}).Decompress(&chunkBody{remaining: sent, err: sourceErr})
			if _, err := io.ReadAll(body); !errors.Is(err, sourceErr) {
				t.Errorf("%v, %s: read ended with %v, want %v", c, name, err, sourceErr)
			}
		}
	}
}

func FuzzDecompress(f *testing.F) {
	for _, c := range []Coding{Gzip, Zstd} {
		f.Add(c == Gzip, []byte(referenceCompress(f, c, compressibleText(300))))
	}
	f.Add(false, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x80, 1, 0, 0})
	gzip, zstd := newTestDecoderPool(f, Gzip, Limits{MaxSize: 1 << 20, MaxRatio: 100}), newTestDecoderPool(f, Zstd, Limits{MaxSize: 1 << 20, MaxRatio: 100})
	f.Fuzz(func(t *testing.T, isGzip bool, sent []byte) {
		d := zstd
		if isGzip {
			d = gzip
		}
		n, err := io.Copy(io.Discard, d.Decompress(protocol.NewStringBody(string(sent))))
		if n > 1<<20 {
			t.Errorf("read %d bytes, want at most 1 MiB", n)
		}
		if reason := protocol.ReasonOf(err); err != nil && reason != protocol.MalformedRequest && reason != protocol.BodyTooLarge {
			t.Errorf("read ended with %v, want %v or %v", err, protocol.MalformedRequest, protocol.BodyTooLarge)
		}
	})
}
