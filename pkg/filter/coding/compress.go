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

// pieceSize is how much content is read and compressed at once, in bytes.
const pieceSize = 16 << 10

// keptSize is up to which size the storage of what was compressed is kept for the
// next body, in bytes.
const keptSize = 64 << 10

// zstdWindow is how far back zstd looks, in bytes: memory is taken for it by us
// for each answer under way, and by its reader.
const zstdWindow = 256 << 10

// encoder is what gzip and zstd have in common. None starts a goroutine.
type encoder interface {
	io.Writer
	// Flush writes what there is so that a reader can have it.
	Flush() error
	// Close writes the end.
	Close() error
	Reset(to io.Writer)
}

// EncoderPool compress bodies in one coding at one level. Their memory is used again.
// Safe for concurrent use.
type EncoderPool struct {
	coding Coding // immutable
	level  int    // immutable
	idle   sync.Pool

	answers, before, after *metrics.Counter // immutable
}

// Counters are where Encoders account; none is nil. Before and After count bytes
// of content.
type Counters struct{ Responses, Before, After *metrics.Counter }

// NewEncoders returns encoders of c: Gzip with the levels 1 to 9, or Zstd with the
// levels 1 to 22 as zstd counts them, of which those that are close are the same.
func NewEncoders(c Coding, level int, count Counters) (*EncoderPool, error) {
	e := &EncoderPool{coding: c, level: level, answers: count.Responses, before: count.Before, after: count.After}
	w, err := e.make()
	if err != nil {
		return nil, err
	}
	e.idle.Put(&work{encoder: w})
	return e, nil
}

// Coding returns what bodies are compressed in.
func (e *EncoderPool) Coding() Coding { return e.coding }

func (e *EncoderPool) make() (encoder, error) {
	switch e.coding {
	case Gzip:
		return gzip.NewWriterLevel(io.Discard, e.level)
	case Zstd:
		return zstd.NewWriter(nil,
			zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(e.level)), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true))
	case Identity, codings:
	}
	return nil, fmt.Errorf("there is no encoder of %v", e.coding)
}

func (e *EncoderPool) take() *work {
	if w, ok := e.idle.Get().(*work); ok {
		return w
	}
	made, err := e.make()
	if err != nil {
		panic(fmt.Sprintf("coding: an encoder that could be made before: %v", err))
	}
	return &work{encoder: made}
}

func (e *EncoderPool) give(w *work) {
	if cap(w.out) > keptSize {
		w.out = nil
	}
	w.out, w.read = w.out[:0], 0
	e.idle.Put(w)
}

// work is what one body needs to be compressed.
type work struct {
	encoder encoder
	in      [pieceSize]byte
	out     []byte // compressed
	read    int    // bytes of out that have been read
}

// Write takes what the encoder has made.
func (w *work) Write(p []byte) (int, error) {
	w.out = append(w.out, p...)
	return len(p), nil
}

// Compress returns source compressed. length is how many bytes source has, -1 if
// that is not known. It holds an encoder and a piece of content, however long
// source is. When source has nothing at hand, what was read of it can be read
// compressed: who sends piece by piece is received piece by piece. Closing it closes
// source; both once.
func (e *EncoderPool) Compress(source protocol.Body, length int64) protocol.Body {
	e.answers.Add(1)
	b := &compressed{source: source, from: e, work: e.take(), left: length}
	b.work.encoder.Reset(b.work)
	return b
}

// What a compressed body is doing. Close beside a Read leaves the encoder to the
// collector: an encoder that is still at work must not be given to another body.
const (
	resting = iota
	reading
	closed
)

type compressed struct {
	source protocol.Body // immutable
	from   *EncoderPool  // immutable
	state  atomic.Uint32 // resting, reading or closed

	// Of the reader; of Close once it rests.
	work *work
	left int64 // of source; negative: nobody knows
	held bool  // the encoder has content that cannot be read yet
	err  error // what Read returns behind what is in work.out
}

var errClosed = errors.New("coding: read of a closed body")

// Read is protocol.Body's.
func (b *compressed) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !b.state.CompareAndSwap(resting, reading) {
		return 0, errClosed
	}
	defer b.state.CompareAndSwap(reading, resting)
	w := b.work
	if w.read == len(w.out) && b.err == nil {
		b.fill()
	}
	n := copy(p, w.out[w.read:])
	w.read += n
	b.from.after.Add(uint64(n))
	if n == 0 {
		return 0, b.err
	}
	return n, nil
}

// fill compresses until something can be read.
func (b *compressed) fill() {
	w := b.work
	w.out, w.read = w.out[:0], 0
	for len(w.out) == 0 && b.err == nil {
		n, err := b.source.Read(w.in[:])
		b.from.before.Add(uint64(n))
		b.left -= int64(n)
		b.held = b.held || n > 0
		_, failed := w.encoder.Write(w.in[:n])
		switch {
		case err == io.EOF:
			failed = errors.Join(failed, w.encoder.Close())
			b.err = io.EOF
		case err != nil:
			b.err = err
		case b.held && b.left != 0 && b.source.Buffered() == 0:
			failed = errors.Join(failed, w.encoder.Flush())
			b.held = false
		}
		if failed != nil && (b.err == nil || b.err == io.EOF) {
			b.err = protocol.Faultf(protocol.Internal, "compressing an answer: %w", failed)
		}
	}
}

// Buffered is protocol.Body's: at least so many bytes come without waiting.
func (b *compressed) Buffered() int {
	if b.state.Load() != resting {
		return 0
	}
	if n := len(b.work.out) - b.work.read; n > 0 {
		return n
	}
	if b.err == nil && (b.left == 0 || b.source.Buffered() > 0) {
		return 1
	}
	return 0
}

// Close is protocol.Body's.
func (b *compressed) Close() error {
	before := b.state.Swap(closed)
	if before == closed {
		return nil
	}
	if before == resting {
		w := b.work
		b.work = nil
		defer b.from.give(w) // also if source panics
	}
	return b.source.Close()
}
