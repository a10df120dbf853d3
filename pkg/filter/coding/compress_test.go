package coding

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func newCounters() Counters {
	return Counters{new(metrics.Counter), new(metrics.Counter), new(metrics.Counter)}
}

func newTestEncoderPool(t testing.TB, c Coding, level int) *EncoderPool {
	t.Helper()
	e, err := NewEncoderPool(c, level, newCounters())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// referenceReader returns a reader that decompresses data with a reference implementation.
func referenceReader(t testing.TB, c Coding, compressed io.Reader) io.Reader {
	t.Helper()
	if c == Gzip {
		r, err := stdgzip.NewReader(compressed)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r, err := zstd.NewReader(compressed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// chunkBody is a body that arrives in chunks and never has buffered bytes.
type chunkBody struct {
	remaining []string
	err       error  // error after the last chunk; nil: io.EOF
	closed    int    // number of calls of Close
	read      func() // called by each Read; may be nil
}

func (p *chunkBody) Read(b []byte) (int, error) {
	if p.read != nil {
		p.read()
	}
	if len(p.remaining) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		return 0, io.EOF
	}
	n := copy(b, p.remaining[0])
	if p.remaining[0] = p.remaining[0][n:]; p.remaining[0] == "" {
		p.remaining = p.remaining[1:]
	}
	return n, nil
}

func (*chunkBody) Buffered() int  { return 0 }
func (p *chunkBody) Close() error { p.closed++; return nil }

// compressibleText returns data that compresses well, and incompressibleText returns data that does
// not.
func compressibleText(size int) string { return strings.Repeat("weft and warp, ", size/15+1)[:size] }

func incompressibleText(size int) string {
	b := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(b)
	return string(b)
}

func TestCompressRoundTrip(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		for _, level := range []int{1, 3, 6, 9} {
			e := newTestEncoderPool(t, c, level)
			for name, content := range map[string]string{
				"one byte": "x", "one line": compressibleText(80), "large": compressibleText(1 << 20), "incompressible": incompressibleText(300 << 10),
			} {
				t.Run(fmt.Sprintf("%v %d %s", c, level, name), func(t *testing.T) {
					for _, length := range []int64{int64(len(content)), -1} {
						body := e.Compress(protocol.NewStringBody(content), length)
						got, err := io.ReadAll(referenceReader(t, c, body))
						if err != nil || string(got) != content {
							t.Errorf("round trip of %d bytes returned %d bytes, %v; want the same content", len(content), len(got), err)
						}
						if err := body.Close(); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	}
}

// TestStreamIsFlushed verifies that an event of a stream can be read before the
// source is read for the next one.
func TestStreamIsFlushed(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		t.Run(c.String(), func(t *testing.T) {
			reads := 0
			source := &chunkBody{remaining: []string{"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"}}
			source.read = func() { reads++ }
			body := newTestEncoderPool(t, c, 6).Compress(source, -1)
			defer body.Close()
			r := referenceReader(t, c, oneByteBody{body})
			for n := 1; n <= 3; n++ {
				event := make([]byte, len("data: 1\n\n"))
				if _, err := io.ReadFull(r, event); err != nil || string(event) != fmt.Sprintf("data: %d\n\n", n) {
					t.Fatalf("event %d is %q, %v; want %q", n, event, err, fmt.Sprintf("data: %d\n\n", n))
				}
				if reads > n {
					t.Errorf("event %d needed %d reads of the source, want %d", n, reads, n)
				}
			}
			if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
				t.Errorf("after the last event: %q, %v, want nothing", rest, err)
			}
		})
	}
}

// oneByteBody reads one byte at a time, so that the decompressor does not read ahead.
type oneByteBody struct{ protocol.Body }

func (o oneByteBody) Read(p []byte) (int, error) { return o.Body.Read(p[:1]) }
func (o oneByteBody) ReadByte() (byte, error) {
	var b [1]byte
	n, err := o.Body.Read(b[:])
	if n == 1 {
		err = nil
	}
	return b[0], err
}

// TestMemoryIsBounded verifies that the compressed body buffers little, even if the body is large.
func TestMemoryIsBounded(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		body := newTestEncoderPool(t, c, 6).Compress(protocol.NewStringBody(incompressibleText(8<<20)), 8<<20)
		maxBuffered := 0
		for p := make([]byte, 1<<10); ; {
			if _, err := body.Read(p); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			maxBuffered = max(maxBuffered, body.Buffered())
		}
		if maxBuffered > 192<<10 {
			t.Errorf("%v: the compressed body buffered %d bytes, want at most 192 KiB", c, maxBuffered)
		}
	}
}

func TestTruncatedSourceNeverLooksComplete(t *testing.T) {
	sourceErr := protocol.NewFault(protocol.UpstreamReset, errors.New("reset"))
	for _, c := range []Coding{Gzip, Zstd} {
		body := newTestEncoderPool(t, c, 6).Compress(&chunkBody{remaining: []string{compressibleText(1000)}, err: sourceErr}, -1)
		got, err := io.ReadAll(body)
		if !errors.Is(err, sourceErr) {
			t.Errorf("%v: read ended with %v, want %v", c, err, sourceErr)
		}
		if _, err := io.ReadAll(referenceReader(t, c, bytes.NewReader(got))); err == nil {
			t.Errorf("%v: the truncated content decompresses, want an error", c)
		}
		if n, err := body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, sourceErr) {
			t.Errorf("%v: Read after the error = %d, %v, want 0, %v", c, n, err, sourceErr)
		}
	}
}

func TestCloseClosesSourceOnce(t *testing.T) {
	source := &chunkBody{remaining: []string{"a"}}
	body := newTestEncoderPool(t, Gzip, 1).Compress(source, -1)
	for range 2 {
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
	if source.closed != 1 {
		t.Errorf("the source was closed %d times, want once", source.closed)
	}
	if n, err := body.Read(make([]byte, 10)); n != 0 || err == nil || body.Buffered() != 0 {
		t.Errorf("Read of a closed body = %d, %v, want an error", n, err)
	}
}

// TestCloseDuringReadDoesNotPoolEncoder verifies that a Close during a Read does not put
// the encoder, which is still in use, into the pool.
func TestCloseDuringReadDoesNotPoolEncoder(t *testing.T) {
	pool := newTestEncoderPool(t, Gzip, 1)
	source := &chunkBody{remaining: []string{"a"}}
	body := pool.Compress(source, -1)
	pooled := body.(*compressedBody).pooled //nolint:forcetypeassert // what Compress returns
	source.read = func() { _ = body.Close() }
	if _, err := body.Read(make([]byte, 100)); err != nil {
		t.Error(err)
	}
	next := pool.Compress(protocol.NewStringBody("b"), 1)
	if next.(*compressedBody).pooled == pooled { //nolint:forcetypeassert // what Compress returns
		t.Error("the next body has the encoder of a body that was closed during Read")
	}
	if source.closed != 1 {
		t.Errorf("the source was closed %d times, want once", source.closed)
	}
}

// TestReusedEncoderHasNoOldData verifies that a reused encoder writes no data of the previous
// body.
func TestReusedEncoderHasNoOldData(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		pool := newTestEncoderPool(t, c, 6)
		first := pool.Compress(&chunkBody{remaining: []string{"secret of another client", "more"}}, -1)
		_, _ = first.Read(make([]byte, 5))
		_ = first.Close()
		second := pool.Compress(protocol.NewStringBody("public"), 6)
		if got, err := io.ReadAll(referenceReader(t, c, second)); err != nil || string(got) != "public" {
			t.Errorf("%v: got %q, %v, want %q", c, got, err, "public")
		}
		_ = second.Close()
	}
}

func TestUnsupportedCodings(t *testing.T) {
	if _, err := NewEncoderPool(Gzip, 12, newCounters()); err == nil {
		t.Error("NewEncoderPool accepted level 12 for gzip")
	}
	if _, err := NewEncoderPool(Identity, 1, newCounters()); err == nil {
		t.Error("NewEncoderPool accepted identity")
	}
	if _, err := NewDecoderPool(Identity, Limits{}); err == nil {
		t.Error("NewDecoderPool accepted identity")
	}
}

func BenchmarkCompress(b *testing.B) {
	content := compressibleText(16 << 10)
	for _, c := range []Coding{Gzip, Zstd} {
		for _, level := range []int{1, 5} {
			b.Run(fmt.Sprintf("%v/%d", c, level), func(b *testing.B) {
				pool := newTestEncoderPool(b, c, level)
				p := make([]byte, 32<<10)
				b.SetBytes(int64(len(content)))
				b.ReportAllocs()
				for b.Loop() {
					body := pool.Compress(protocol.NewStringBody(content), int64(len(content)))
					for {
						if _, err := body.Read(p); err == io.EOF {
							break
						} else if err != nil {
							b.Fatal(err)
						}
					}
					_ = body.Close()
				}
			})
		}
	}
}
