package coding

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// chunkSize is the maximum number of bytes that are read and compressed per step.
const chunkSize = 16 << 10

// maxPooledOutput is the maximum capacity, in bytes, of an output buffer that the pool retains.
const maxPooledOutput = 64 << 10

// zstdWindow is the zstd window in bytes. Each response in flight needs this much memory in Weft
// and in the client.
const zstdWindow = 256 << 10

// encoder is implemented by gzip and zstd writers, which start no goroutine.
type encoder interface {
	io.Writer
	// Flush writes pending data, so that the reader can decode all of it.
	Flush() error
	// Close writes the end of the compressed data.
	Close() error
	Reset(to io.Writer)
}

// EncoderPool compresses bodies in one coding at one level and reuses the encoders. It is safe for
// concurrent use.
type EncoderPool struct {
	coding Coding // immutable
	level  int    // immutable
	idle   sync.Pool

	responses, uncompressedBytes, compressedBytes *metrics.Counter // immutable
}

// Counters are the metrics of an EncoderPool. All must be set. UncompressedBytes and
// CompressedBytes count body bytes before and after compression.
type Counters struct{ Responses, UncompressedBytes, CompressedBytes *metrics.Counter }

// NewEncoderPool returns a pool for coding c: Gzip with levels 1 to 9, or Zstd with levels 1 to 22.
// Several zstd levels map to the same encoder level.
func NewEncoderPool(c Coding, level int, counters Counters) (*EncoderPool, error) {
	e := &EncoderPool{coding: c, level: level, responses: counters.Responses, uncompressedBytes: counters.UncompressedBytes, compressedBytes: counters.CompressedBytes}
	enc, err := e.newEncoder()
	if err != nil {
		return nil, err
	}
	e.idle.Put(&pooledEncoder{encoder: enc})
	return e, nil
}

// Coding returns the coding that the pool encodes.
func (e *EncoderPool) Coding() Coding { return e.coding }

func (e *EncoderPool) newEncoder() (encoder, error) {
	switch e.coding {
	case Gzip:
		return gzip.NewWriterLevel(io.Discard, e.level)
	case Zstd:
		return zstd.NewWriter(nil,
			zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(e.level)), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true))
	case Identity, codingCount:
	}
	return nil, fmt.Errorf("no encoder for %v", e.coding)
}

func (e *EncoderPool) get() *pooledEncoder {
	if w, ok := e.idle.Get().(*pooledEncoder); ok {
		return w
	}
	enc, err := e.newEncoder()
	if err != nil {
		panic(fmt.Sprintf("coding: creating another encoder failed: %v", err))
	}
	return &pooledEncoder{encoder: enc}
}

func (e *EncoderPool) put(w *pooledEncoder) {
	if cap(w.out) > maxPooledOutput {
		w.out = nil
	}
	w.out, w.outPos = w.out[:0], 0
	e.idle.Put(w)
}

// pooledEncoder holds an encoder and the buffers of one body.
type pooledEncoder struct {
	encoder encoder
	in      [chunkSize]byte
	out     []byte // compressed data
	outPos  int    // bytes of out that have been read
}

// Write appends the output of the encoder.
func (w *pooledEncoder) Write(p []byte) (int, error) {
	w.out = append(w.out, p...)
	return len(p), nil
}

// Compress returns a body with the compressed bytes of source. length is the number of bytes of
// source, -1 if unknown. The body holds one encoder and one chunk of data, whatever the length of
// source. When source has no buffered bytes, the body flushes the encoder, so that the client of a
// stream receives all bytes that source has delivered. Closing the body closes source; only the
// first Close has an effect.
func (e *EncoderPool) Compress(source protocol.Body, length int64) protocol.Body {
	e.responses.Add(1)
	b := &compressedBody{source: source, pool: e, pooled: e.get(), remaining: length}
	b.pooled.encoder.Reset(b.pooled)
	return b
}

// States of a compressed body. Close puts the encoder back into the pool only in stateIdle: in
// stateReading, a concurrent Read uses the encoder.
const (
	stateIdle = iota
	stateReading
	stateClosed
)

type compressedBody struct {
	source protocol.Body // immutable
	pool   *EncoderPool  // immutable
	state  atomic.Uint32 // stateIdle, stateReading or stateClosed

	// The reader owns these fields. If the state was stateIdle, Close takes pooled.
	pooled    *pooledEncoder
	remaining int64 // bytes of source left to read; negative: not known
	unflushed bool  // the encoder has unflushed data
	err       error // Read returns it after pooled.out
}

var errClosed = errors.New("coding: read of a closed body")

// Read implements protocol.Body.
func (b *compressedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !b.state.CompareAndSwap(stateIdle, stateReading) {
		return 0, errClosed
	}
	defer b.state.CompareAndSwap(stateReading, stateIdle)
	w := b.pooled
	if w.outPos == len(w.out) && b.err == nil {
		b.fill()
	}
	n := copy(p, w.out[w.outPos:])
	w.outPos += n
	b.pool.compressedBytes.Add(uint64(n))
	if n == 0 {
		return 0, b.err
	}
	return n, nil
}

// fill compresses until there is output or an error.
func (b *compressedBody) fill() {
	w := b.pooled
	w.out, w.outPos = w.out[:0], 0
	for len(w.out) == 0 && b.err == nil {
		n, err := b.source.Read(w.in[:])
		b.pool.uncompressedBytes.Add(uint64(n))
		b.remaining -= int64(n)
		b.unflushed = b.unflushed || n > 0
		_, encodeErr := w.encoder.Write(w.in[:n])
		switch {
		case err == io.EOF:
			encodeErr = errors.Join(encodeErr, w.encoder.Close())
			b.err = io.EOF
		case err != nil:
			b.err = err
		case b.unflushed && b.remaining != 0 && b.source.Buffered() == 0:
			encodeErr = errors.Join(encodeErr, w.encoder.Flush())
			b.unflushed = false
		}
		if encodeErr != nil && (b.err == nil || b.err == io.EOF) {
			b.err = protocol.Faultf(protocol.Internal, "compressing a response: %w", encodeErr)
		}
	}
}

// Buffered implements protocol.Body. It returns a lower bound.
func (b *compressedBody) Buffered() int {
	if b.state.Load() != stateIdle {
		return 0
	}
	if n := len(b.pooled.out) - b.pooled.outPos; n > 0 {
		return n
	}
	if b.err == nil && (b.remaining == 0 || b.source.Buffered() > 0) {
		return 1
	}
	return 0
}

// Close implements protocol.Body.
func (b *compressedBody) Close() error {
	previous := b.state.Swap(stateClosed)
	if previous == stateClosed {
		return nil
	}
	if previous == stateIdle {
		w := b.pooled
		b.pooled = nil
		defer b.pool.put(w) // also if source panics
	}
	return b.source.Close()
}
