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
	MaxSize int64 // bytes, decompressed; 0: no limit
	// MaxRatio is the maximum ratio of the decompressed to the compressed size, checked once the
	// decompressed size exceeds RatioMinSize; 0: no limit.
	MaxRatio int64
}

// RatioMinSize is the decompressed size, in bytes, up to which a body may have any ratio: small
// bodies can compress very well, and are harmless.
const RatioMinSize = 64 << 10

// maxZstdWindow is the maximum zstd window in bytes (RFC 9659). It bounds the memory that a frame
// can make the decoder allocate.
const maxZstdWindow = 8 << 20

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

// NewDecoderPool returns a pool for coding c, which must be Gzip or Zstd.
func NewDecoderPool(c Coding, limits Limits) (*DecoderPool, error) {
	d := &DecoderPool{coding: c, limits: limits}
	dec, err := d.newDecoder()
	if err != nil {
		return nil, err
	}
	d.idle.Put(dec)
	return d, nil
}

// Coding returns the coding that the pool decodes.
func (d *DecoderPool) Coding() Coding { return d.coding }

func (d *DecoderPool) newDecoder() (decoder, error) {
	switch d.coding {
	case Gzip:
		return new(gzip.Reader), nil
	case Zstd:
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
	case Identity, codingCount:
	}
	return nil, fmt.Errorf("no decoder for %v", d.coding)
}

func (d *DecoderPool) get() decoder {
	if r, ok := d.idle.Get().(decoder); ok {
		return r
	}
	dec, err := d.newDecoder()
	if err != nil {
		panic(fmt.Sprintf("coding: creating another decoder failed: %v", err))
	}
	return dec
}

// Decompress returns a body with the decompressed bytes of source. A Read that exceeds the limits
// returns no bytes and a Fault of BodyTooLarge with ErrTooLarge in its chain. If source is corrupt,
// Read returns a Fault of MalformedRequest. An empty source stays empty. Rewind works if the
// Rewind of source does.
func (d *DecoderPool) Decompress(source protocol.Body) protocol.Body {
	return &decompressedBody{Body: source, pool: d}
}

// decompressedBody is a body that Read decompresses. Buffered is 0, because the number of bytes
// that are available without waiting is not known before they are decompressed.
type decompressedBody struct {
	protocol.Body // compressed

	pool    *DecoderPool // immutable
	decoder decoder      // nil before the first Read, and after the end of the body or an error
	err     error        // result of all further Reads

	bytesIn   int64 // compressed bytes read
	bytesOut  int64 // decompressed bytes
	sourceErr error // error of the source
}

// Buffered implements protocol.Body.
func (*decompressedBody) Buffered() int { return 0 }

// Rewind implements protocol.Rewinder.
func (b *decompressedBody) Rewind() bool {
	if !protocol.RewindBody(b.Body) {
		return false
	}
	b.releaseDecoder()
	b.bytesIn, b.bytesOut, b.sourceErr, b.err = 0, 0, nil, nil
	return true
}

// Read implements protocol.Body. It releases the decoder at the end of the body or at an error.
// Close does not release the decoder, because Close may run concurrently with Read.
func (b *decompressedBody) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.decoder == nil {
		dec := b.pool.get()
		err := dec.Reset(sourceReader{b})
		b.decoder = dec
		if err != nil {
			return 0, b.finish(b.toFault(err))
		}
	}
	n, err := b.decoder.Read(p)
	b.bytesOut += int64(n)
	if b.exceedsLimits() {
		return 0, b.finish(protocol.Faultf(protocol.BodyTooLarge, "%w: %d bytes of %v decompress to %d", ErrTooLarge, b.bytesIn, b.pool.coding, b.bytesOut))
	}
	if err != nil {
		return n, b.finish(b.toFault(err))
	}
	return n, nil
}

// finish makes Read return err from now on.
func (b *decompressedBody) finish(err error) error {
	b.releaseDecoder()
	b.err = err
	return err
}

// releaseDecoder returns the decoder to the pool.
func (b *decompressedBody) releaseDecoder() {
	if b.decoder != nil {
		b.pool.idle.Put(b.decoder)
		b.decoder = nil
	}
}

// toFault converts an error of the decoder to the error that Read returns.
func (b *decompressedBody) toFault(err error) error {
	switch {
	case b.sourceErr != nil:
		return b.sourceErr
	case err == io.EOF:
		return io.EOF
	}
	return protocol.Faultf(protocol.MalformedRequest, "%w as %v: %w", errCorrupt, b.pool.coding, err)
}

func (b *decompressedBody) exceedsLimits() bool {
	l := b.pool.limits
	return l.MaxSize > 0 && b.bytesOut > l.MaxSize ||
		l.MaxRatio > 0 && b.bytesOut > RatioMinSize && b.bytesOut/l.MaxRatio > b.bytesIn
}

// sourceReader is the reader of the decoder. It counts bytes and records an error of the source.
type sourceReader struct{ body *decompressedBody }

func (s sourceReader) Read(p []byte) (int, error) {
	n, err := s.body.Body.Read(p)
	s.body.bytesIn += int64(n)
	if err != nil && err != io.EOF {
		s.body.sourceErr = err
	}
	return n, err
}
