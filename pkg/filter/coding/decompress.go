package coding

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Limits bound the decompressed size of a body.
type Limits struct {
	Size int64 // bytes, decompressed; 0: no limit
	// Ratio is the maximum ratio of the decompressed to the compressed size, checked once the
	// decompressed size exceeds RatioFrom; 0: no limit.
	Ratio int64
}

// RatioFrom is the decompressed size, in bytes, up to which a body may have any ratio: small bodies
// can compress very well, and do no harm.
const RatioFrom = 64 << 10

// maxWindow is the maximum zstd window in bytes (RFC 9659). It bounds the memory that a frame can
// make the decoder allocate.
const maxWindow = 8 << 20

// ErrTooLarge is in the chain of the Fault of a body that exceeds its Limits.
var ErrTooLarge = errors.New("the decompressed body is too large")

// errCorrupt is in the chain of the Fault of a body that the decoder rejects.
var errCorrupt = errors.New("the body cannot be decompressed")

// decoder is implemented by gzip and zstd readers, which start no goroutine.
type decoder interface {
	io.Reader
	Reset(from io.Reader) error
}

// DecoderPool decompresses bodies in one coding and reuses the decoders. It is safe for concurrent
// use.
type DecoderPool struct {
	coding Coding // immutable
	limits Limits // immutable
	idle   sync.Pool
}

// NewDecoders returns the decoders of c, which is Gzip or Zstd.
func NewDecoders(c Coding, limits Limits) (*DecoderPool, error) {
	d := &DecoderPool{coding: c, limits: limits}
	made, err := d.make()
	if err != nil {
		return nil, err
	}
	d.idle.Put(made)
	return d, nil
}

// Coding returns the coding that the pool decodes.
func (d *DecoderPool) Coding() Coding { return d.coding }

func (d *DecoderPool) make() (decoder, error) {
	switch d.coding {
	case Gzip:
		return new(gzip.Reader), nil
	case Zstd:
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	case Identity, codings:
	}
	return nil, fmt.Errorf("no decoder for %v", d.coding)
}

func (d *DecoderPool) take() decoder {
	if r, ok := d.idle.Get().(decoder); ok {
		return r
	}
	made, err := d.make()
	if err != nil {
		panic(fmt.Sprintf("coding: creating another decoder failed: %v", err))
	}
	return made
}

// Decompress returns source decompressed. If it exceeds the limits, it ends in a Fault of
// BodyTooLarge with ErrTooLarge in its chain, before it returns a byte beyond them. If it is
// corrupt, it ends in a Fault of MalformedRequest. An empty source stays empty. Rewind works if
// source is a protocol.Rewinder.
func (d *DecoderPool) Decompress(source protocol.Body) protocol.Body {
	return &decompressed{Body: source, from: d}
}

// decompressed is a body that Read decompresses. Buffered is 0, because the number of bytes that
// are available without waiting is not known before they are decompressed.
type decompressed struct {
	protocol.Body // compressed

	from    *DecoderPool // immutable
	decoder decoder      // nil before the first Read and after the last
	err     error        // what Read returns from now on

	taken  int64 // compressed bytes read
	given  int64 // decompressed bytes
	broken error // error of the source
}

// Buffered implements protocol.Body.
func (*decompressed) Buffered() int { return 0 }

// Rewind implements protocol.Rewinder.
func (b *decompressed) Rewind() bool {
	r, ok := b.Body.(protocol.Rewinder)
	if !ok || !r.Rewind() {
		return false
	}
	b.release()
	b.taken, b.given, b.broken, b.err = 0, 0, nil, nil
	return true
}

// Read implements protocol.Body. It releases the decoder at the end of the body or at an error.
// Close does not release it, because it may run concurrently with Read.
func (b *decompressed) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.decoder == nil {
		d := b.from.take()
		err := d.Reset(compressedSide{b})
		b.decoder = d
		if err != nil {
			return 0, b.end(b.fault(err))
		}
	}
	n, err := b.decoder.Read(p)
	b.given += int64(n)
	if b.tooLarge() {
		return 0, b.end(protocol.Faultf(protocol.BodyTooLarge, "%w: %d bytes of %v decompress to %d", ErrTooLarge, b.taken, b.from.coding, b.given))
	}
	if err != nil {
		return n, b.end(b.fault(err))
	}
	return n, nil
}

// end makes Read return err from now on.
func (b *decompressed) end(err error) error {
	b.release()
	b.err = err
	return err
}

// release returns the decoder to the pool.
func (b *decompressed) release() {
	if b.decoder != nil {
		b.from.idle.Put(b.decoder)
		b.decoder = nil
	}
}

// fault converts an error of the decoder.
func (b *decompressed) fault(err error) error {
	switch {
	case b.broken != nil:
		return b.broken
	case err == io.EOF:
		return io.EOF
	}
	return protocol.Faultf(protocol.MalformedRequest, "%w as %v: %w", errCorrupt, b.from.coding, err)
}

func (b *decompressed) tooLarge() bool {
	l := b.from.limits
	return l.Size > 0 && b.given > l.Size ||
		l.Ratio > 0 && b.given > RatioFrom && b.given/l.Ratio > b.taken
}

// compressedSide is the reader of the decoder. It counts bytes and records an error of the source.
type compressedSide struct{ b *decompressed }

func (s compressedSide) Read(p []byte) (int, error) {
	n, err := s.b.Body.Read(p)
	s.b.taken += int64(n)
	if err != nil && err != io.EOF {
		s.b.broken = err
	}
	return n, err
}
