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

// Limits bound what content may become when it is decompressed.
type Limits struct {
	Size int64 // bytes, decompressed; 0: no limit
	// Ratio is how many times its compressed size content may have, once it is larger
	// than RatioFrom bytes; 0: no limit.
	Ratio int64
}

// RatioFrom is the size, in bytes, up to which content may have any ratio: little
// content compresses very well, and does no harm.
const RatioFrom = 64 << 10

// maxWindow is how far back zstd may look (RFC 9659): how much memory content can
// make us take, in bytes.
const maxWindow = 8 << 20

// ErrTooLarge is in the chain of the Fault that a body ends with which exceeds its
// Limits.
var ErrTooLarge = errors.New("the content is too large when it is decompressed")

// errCorrupt is in the chain of the Fault that a body ends with which is not what it
// says to be.
var errCorrupt = errors.New("the content cannot be decompressed")

// decoder is what gzip and zstd have in common. None starts a goroutine.
type decoder interface {
	io.Reader
	Reset(from io.Reader) error
}

// DecoderPool decompress bodies in one coding. Their memory is used again. Safe for
// concurrent use.
type DecoderPool struct {
	coding Coding // immutable
	limits Limits // immutable
	idle   sync.Pool
}

// NewDecoders returns decoders of c, Gzip or Zstd.
func NewDecoders(c Coding, limits Limits) (*DecoderPool, error) {
	d := &DecoderPool{coding: c, limits: limits}
	made, err := d.make()
	if err != nil {
		return nil, err
	}
	d.idle.Put(made)
	return d, nil
}

// Coding returns what bodies are decompressed from.
func (d *DecoderPool) Coding() Coding { return d.coding }

func (d *DecoderPool) make() (decoder, error) {
	switch d.coding {
	case Gzip:
		return new(gzip.Reader), nil
	case Zstd:
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	case Identity, codings:
	}
	return nil, fmt.Errorf("there is no decoder of %v", d.coding)
}

func (d *DecoderPool) take() decoder {
	if r, ok := d.idle.Get().(decoder); ok {
		return r
	}
	made, err := d.make()
	if err != nil {
		panic(fmt.Sprintf("coding: a decoder that could be made before: %v", err))
	}
	return made
}

// Decompress returns source decompressed. It ends in a Fault of BodyTooLarge, with
// ErrTooLarge in it, before anything is returned that exceeds the limits; content
// that is not what it says to be ends in one of MalformedRequest. An empty source is
// empty. It is a protocol.Rewinder if source is.
func (d *DecoderPool) Decompress(source protocol.Body) protocol.Body {
	return &decompressed{Body: source, from: d}
}

// decompressed is content that is decompressed while it is read. Buffered is 0: what
// comes without waiting is not known before it was decompressed.
type decompressed struct {
	protocol.Body // compressed

	from    *DecoderPool // immutable
	decoder decoder      // nil: reading has not begun, or is over
	err     error        // what Read returns from now on

	taken  int64 // compressed bytes
	given  int64 // decompressed bytes
	broken error // of the source
}

// Buffered is protocol.Body's.
func (*decompressed) Buffered() int { return 0 }

// Rewind is protocol.Rewinder's.
func (b *decompressed) Rewind() bool {
	r, ok := b.Body.(protocol.Rewinder)
	if !ok || !r.Rewind() {
		return false
	}
	b.release()
	b.taken, b.given, b.broken, b.err = 0, 0, nil, nil
	return true
}

// Read is protocol.Body's. Whoever reads to the end, or to an error, gives the
// decoder back; Close may come beside a Read, and leaves it to the collector.
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
		return 0, b.end(protocol.Faultf(protocol.BodyTooLarge, "%w: %d bytes of %v became %d", ErrTooLarge, b.taken, b.from.coding, b.given))
	}
	if err != nil {
		return n, b.end(b.fault(err))
	}
	return n, nil
}

// end has Read return err from now on.
func (b *decompressed) end(err error) error {
	b.release()
	b.err = err
	return err
}

// release gives the decoder back.
func (b *decompressed) release() {
	if b.decoder != nil {
		b.from.idle.Put(b.decoder)
		b.decoder = nil
	}
}

// fault is what the decoder's error means.
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

// compressedSide is where the decoder reads: it counts, and keeps what went wrong.
type compressedSide struct{ b *decompressed }

func (s compressedSide) Read(p []byte) (int, error) {
	n, err := s.b.Body.Read(p)
	s.b.taken += int64(n)
	if err != nil && err != io.EOF {
		s.b.broken = err
	}
	return n, err
}
