package coding

import (
	"io"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// panicking is a body whose Close panics, and whose Read panics if inRead is set.
type panicking struct{ inRead bool }

func (p panicking) Read([]byte) (int, error) {
	if p.inRead {
		panic("Read")
	}
	return 0, io.EOF
}

func (panicking) Buffered() int { return 0 }

func (panicking) Close() error { panic("Close") }

// TestEncodersAreGivenBackAfterPanics verifies that Close releases the encoder after the source
// panics.
func TestEncodersAreGivenBackAfterPanics(t *testing.T) {
	counter := func() *metrics.Counter { return new(metrics.Counter) }
	for _, coding := range []Coding{Gzip, Zstd} {
		for _, inRead := range []bool{false, true} {
			e, err := NewEncoders(coding, 1, Counters{counter(), counter(), counter()})
			if err != nil {
				t.Fatal(err)
			}
			b := e.Compress(panicking{inRead}, -1).(*compressed)
			if read := contained(func() { _, _ = io.ReadAll(b) }); read != inRead {
				t.Errorf("%v: Read panics: %v, want %v", coding, read, inRead)
			}
			if !contained(func() { _ = b.Close() }) {
				t.Errorf("%v: Close hides the panic", coding)
			}
			if b.work != nil {
				t.Errorf("%v: the body keeps its encoder", coding)
			}
			if err := b.Close(); err != nil { // it does not close the source again
				t.Errorf("%v: a second Close returns %v", coding, err)
			}
			if _, err := b.Read(make([]byte, 1)); err == nil {
				t.Errorf("%v: a closed body is read", coding)
			}
		}
	}
}

// contained reports whether f panics.
func contained(f func()) bool {
	var err error
	func() {
		defer protocol.RecoverPanic(&err)
		f()
	}()
	return err != nil
}
