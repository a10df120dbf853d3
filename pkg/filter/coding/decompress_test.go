package coding

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

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
			"a line":         {referenceCompress(t, c, line), line},
			"large":          {referenceCompress(t, c, compressibleText(1<<20)), compressibleText(1 << 20)},
			"incompressible": {referenceCompress(t, c, incompressibleText(200_000)), incompressibleText(200_000)},
			"two in a row":   {referenceCompress(t, c, "one, ") + referenceCompress(t, c, "two"), "one, two"},
			"none":           {"", ""},
			"of nothing":     {referenceCompress(t, c, ""), ""},
		} {
			t.Run(c.String()+" "+name, func(t *testing.T) {
				body := d.Decompress(protocol.NewStringBody(test.sent))
				for range 2 {
					if got, err := io.ReadAll(body); err != nil || string(got) != test.want {
						t.Errorf("%d bytes, %v; want %d", len(got), err, len(test.want))
					}
					if r, ok := body.(protocol.Rewinder); !ok || !r.Rewind() {
						t.Fatal("the content cannot be read again")
					}
				}
			})
		}
	}
}

func TestCorruptContentIsMalformed(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		good := referenceCompress(t, c, compressibleText(1000))
		damaged := []byte(good)
		damaged[len(damaged)-1] ^= 1 // corrupts the checksum or the length
		for name, sent := range map[string]string{
			"plain text": "hello, this is no compressed content", "cut": good[:len(good)-3],
			"damaged": string(damaged), "with something behind": good + "garbage garbage",
		} {
			t.Run(c.String()+" "+name, func(t *testing.T) {
				body := newTestDecoderPool(t, c, Limits{}).Decompress(protocol.NewStringBody(sent))
				_, err := io.ReadAll(body)
				if protocol.ReasonOf(err) != protocol.MalformedRequest {
					t.Errorf("it ends in %v, want %v", err, protocol.MalformedRequest)
				}
				if _, again := body.Read(make([]byte, 10)); again != err {
					t.Errorf("and then in %v", again)
				}
			})
		}
	}
}

func TestDecompressionLimits(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		bomb := referenceCompress(t, c, string(make([]byte, 32<<20)))
		for _, test := range []struct {
			name   string
			limits Limits
			sent   string
			most   int64 // maximum that may be read; -1: all, without an error
		}{
			{"by size", Limits{MaxSize: 1 << 20}, bomb, 1 << 20},
			{"by ratio", Limits{MaxRatio: 100}, bomb, RatioMinSize + 1<<20},
			{"by ratio, with a size that allows it", Limits{MaxRatio: 10, MaxSize: 1 << 30}, bomb, RatioMinSize + 1<<20},
			{"little content of any ratio", Limits{MaxRatio: 2}, referenceCompress(t, c, compressibleText(RatioMinSize)), -1},
			{"as large as the limit", Limits{MaxSize: 1000}, referenceCompress(t, c, compressibleText(1000)), -1},
			{"larger by a byte", Limits{MaxSize: 1000}, referenceCompress(t, c, compressibleText(1001)), 1000},
			{"content of a usual ratio", Limits{MaxRatio: 100}, referenceCompress(t, c, incompressibleText(300<<10)), -1},
			{"without limits", Limits{}, bomb, -1},
		} {
			t.Run(fmt.Sprintf("%v %s", c, test.name), func(t *testing.T) {
				n, err := io.Copy(io.Discard, newTestDecoderPool(t, c, test.limits).Decompress(protocol.NewStringBody(test.sent)))
				if test.most < 0 {
					if err != nil {
						t.Errorf("rejected after %d bytes: %v", n, err)
					}
					return
				}
				if protocol.ReasonOf(err) != protocol.BodyTooLarge || !errors.Is(err, ErrTooLarge) || n > test.most {
					t.Errorf("%d bytes, %v; want at most %d and %v", n, err, test.most, protocol.BodyTooLarge)
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
		t.Errorf("it ends in %v", err)
	}
}

func TestSourceErrorsAreReturned(t *testing.T) {
	slow := protocol.NewFault(protocol.RequestTimeout, errors.New("slow"))
	for _, c := range []Coding{Gzip, Zstd} {
		for name, sent := range map[string][]string{"at once": nil, "in the middle": {referenceCompress(t, c, compressibleText(1000))[:20]}} {
			body := newTestDecoderPool(t, c, Limits{}).Decompress(&chunkBody{remaining: sent, err: slow})
			if _, err := io.ReadAll(body); !errors.Is(err, slow) {
				t.Errorf("%v, %s: it ends in %v, want %v", c, name, err, slow)
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
			t.Errorf("%d bytes were unpacked", n)
		}
		if reason := protocol.ReasonOf(err); err != nil && reason != protocol.MalformedRequest && reason != protocol.BodyTooLarge {
			t.Errorf("it ends in %v", err)
		}
	})
}
