package coding

import (
	"io"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// panickingBody is a body whose Close panics, and whose Read panics if panicsInRead is set.
type panickingBody struct{ panicsInRead bool }

func (p panickingBody) Read([]byte) (int, error) {
	if p.panicsInRead {
		panic("Read")
	}
	return 0, io.EOF
}

func (panickingBody) Buffered() int { return 0 }

func (panickingBody) Close() error { panic("Close") }

// TestPanicReleasesEncoder verifies that Close releases the encoder after the source
// panics.
func TestPanicReleasesEncoder(t *testing.T) {
	counter := func() *metrics.Counter { return new(metrics.Counter) }
	for _, coding := range []Coding{Gzip, Zstd} {
		for _, inRead := range []bool{false, true} {
			e, err := NewEncoderPool(coding, 1, Counters{counter(), counter(), counter()})
			if err != nil {
				t.Fatal(err)
			}
			b := e.Compress(panickingBody{inRead}, -1).(*compressedBody)
			if read := panics(func() { _, _ = io.ReadAll(b) }); read != inRead {
				t.Errorf("%v: Read panics: %v, want %v", coding, read, inRead)
			}
			if !panics(func() { _ = b.Close() }) {
				t.Errorf("%v: Close does not panic", coding)
			}
			if b.pooled != nil {
				t.Errorf("%v: the body still has its encoder after Close", coding)
			}
			if err := b.Close(); err != nil { // it does not close the source again
				t.Errorf("%v: second Close = %v, want nil", coding, err)
			}
			if _, err := b.Read(make([]byte, 1)); err == nil {
				t.Errorf("%v: Read of a closed body = nil, want an error", coding)
			}
		}
	}
}

// panics reports whether f panics.
func panics(f func()) bool {
	var err error
	func() {
		defer protocol.RecoverPanic(&err)
		f()
	}()
	return err != nil
}
