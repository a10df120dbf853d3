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

// referenceReader decompresses data with a reference implementation.
func referenceReader(t testing.TB, c Coding, from io.Reader) io.Reader {
	t.Helper()
	if c == Gzip {
		r, err := stdgzip.NewReader(from)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// chunkBody is a body that arrives piece by piece and never has buffered bytes.
type chunkBody struct {
	remaining []string
	err       error // after the last piece; nil: io.EOF
	closed    int
	read      func() // nil, or called by each Read
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
				"a byte": "x", "a line": compressibleText(80), "large": compressibleText(1 << 20), "incompressible": incompressibleText(300 << 10),
			} {
				t.Run(fmt.Sprintf("%v %d %s", c, level, name), func(t *testing.T) {
					for _, length := range []int64{int64(len(content)), -1} {
						body := e.Compress(protocol.NewStringBody(content), length)
						got, err := io.ReadAll(referenceReader(t, c, body))
						if err != nil || string(got) != content {
							t.Errorf("%d bytes came back as %d, %v", len(content), len(got), err)
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
			sent := 0
			source := &chunkBody{remaining: []string{"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"}}
			source.read = func() { sent++ }
			body := newTestEncoderPool(t, c, 6).Compress(source, -1)
			defer body.Close()
			r := referenceReader(t, c, oneByteBody{body})
			for n := 1; n <= 3; n++ {
				event := make([]byte, len("data: 1\n\n"))
				if _, err := io.ReadFull(r, event); err != nil || string(event) != fmt.Sprintf("data: %d\n\n", n) {
					t.Fatalf("event %d is %q, %v", n, event, err)
				}
				if sent > n {
					t.Errorf("event %d was received when the origin was asked for event %d", n, sent)
				}
			}
			if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
				t.Errorf("behind the last event is %q, %v", rest, err)
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

// TestMemoryIsBounded verifies that a large body does not make the compressed body buffer much.
func TestMemoryIsBounded(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		body := newTestEncoderPool(t, c, 6).Compress(protocol.NewStringBody(incompressibleText(8<<20)), 8<<20)
		most := 0
		for p := make([]byte, 1<<10); ; {
			if _, err := body.Read(p); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			most = max(most, body.Buffered())
		}
		if most > 192<<10 {
			t.Errorf("%v: %d bytes of compressed content were held", c, most)
		}
	}
}

func TestTruncatedSourceNeverLooksComplete(t *testing.T) {
	broken := protocol.NewFault(protocol.UpstreamReset, errors.New("broken"))
	for _, c := range []Coding{Gzip, Zstd} {
		body := newTestEncoderPool(t, c, 6).Compress(&chunkBody{remaining: []string{compressibleText(1000)}, err: broken}, -1)
		got, err := io.ReadAll(body)
		if !errors.Is(err, broken) {
			t.Errorf("%v: the end is %v, want %v", c, err, broken)
		}
		if _, err := io.ReadAll(referenceReader(t, c, bytes.NewReader(got))); err == nil {
			t.Errorf("%v: what was read is whole to its reader", c)
		}
		if n, err := body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, broken) {
			t.Errorf("%v: behind the end are %d bytes, %v", c, n, err)
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
		t.Errorf("a closed body gives %d bytes, %v", n, err)
	}
}

// TestCloseDuringReadDoesNotPoolEncoder verifies that a Close during a Read does not put
// the encoder, which is still in use, into the pool.
func TestCloseDuringReadDoesNotPoolEncoder(t *testing.T) {
	e := newTestEncoderPool(t, Gzip, 1)
	source := &chunkBody{remaining: []string{"a"}}
	body := e.Compress(source, -1)
	held := body.(*compressedBody).enc //nolint:forcetypeassert // what Compress returns
	source.read = func() { _ = body.Close() }
	if _, err := body.Read(make([]byte, 100)); err != nil {
		t.Error(err)
	}
	other := e.Compress(protocol.NewStringBody("b"), 1)
	if other.(*compressedBody).enc == held { //nolint:forcetypeassert // what Compress returns
		t.Error("another body has the encoder of the one that was closed while it was read")
	}
	if source.closed != 1 {
		t.Errorf("the source was closed %d times", source.closed)
	}
}

// TestReusedEncoderHasNoOldData verifies that a reused encoder writes no data of the previous
// body.
func TestReusedEncoderHasNoOldData(t *testing.T) {
	for _, c := range []Coding{Gzip, Zstd} {
		e := newTestEncoderPool(t, c, 6)
		first := e.Compress(&chunkBody{remaining: []string{"secret of another caller", "more"}}, -1)
		_, _ = first.Read(make([]byte, 5))
		_ = first.Close()
		second := e.Compress(protocol.NewStringBody("mine"), 4)
		if got, err := io.ReadAll(referenceReader(t, c, second)); err != nil || string(got) != "mine" {
			t.Errorf("%v: %q, %v", c, got, err)
		}
		_ = second.Close()
	}
}

func TestUnsupportedCodings(t *testing.T) {
	if _, err := NewEncoderPool(Gzip, 12, newCounters()); err == nil {
		t.Error("gzip has a level of 12")
	}
	if _, err := NewEncoderPool(Identity, 1, newCounters()); err == nil {
		t.Error("identity has an encoder")
	}
	if _, err := NewDecoderPool(Identity, Limits{}); err == nil {
		t.Error("identity has a decoder")
	}
}

func BenchmarkCompress(b *testing.B) {
	content := compressibleText(16 << 10)
	for _, c := range []Coding{Gzip, Zstd} {
		for _, level := range []int{1, 5} {
			b.Run(fmt.Sprintf("%v/%d", c, level), func(b *testing.B) {
				e := newTestEncoderPool(b, c, level)
				p := make([]byte, 32<<10)
				b.SetBytes(int64(len(content)))
				b.ReportAllocs()
				for b.Loop() {
					body := e.Compress(protocol.NewStringBody(content), int64(len(content)))
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
