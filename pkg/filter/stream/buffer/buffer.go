// Package buffer implements the buffer filter, which reads the complete body of a request before it
// forwards the request.
package buffer

import (
	"context"
	"errors"
	"io"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration.
type Config struct {
	Disabled bool  `key:"disabled" doc:"Disables the filter, for example for one route." default:"false" example:"true"`
	Max      int64 `key:"max_request_bytes" doc:"Maximum size of a request body. Weft holds this much memory for each request in flight." unit:"bytes" min:"1" max:"4294967295" default:"65536" example:"\"1MB\""`
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "buffer",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{rejectedMetric()},
	}
}

func rejectedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_buffer_refused_total", Help: "Requests rejected because their body is larger than max_request_bytes.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := *cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	if c.Disabled {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	rejected := env.Metrics.Counter(rejectedMetric())
	return func(next protocol.Service) protocol.Service { return &bufferFilter{c.Max, rejected, next} }, nil
}

// bufferFilter is immutable; only its counter changes.
type bufferFilter struct {
	max      int64
	rejected *metrics.Counter
	next     protocol.Service
}

// Start implements protocol.Service. It needs no stack of its own if the body has already arrived.
func (b *bufferFilter) Start(ctx context.Context, x *protocol.Exchange) error {
	r := &x.Request
	switch {
	case r.Body == nil, r.Method == "", r.Method == "CONNECT", r.Upgrade != "":
		return b.next.Start(ctx, x) // RPC engines read complete requests
	case r.ContentLength > b.max:
		return b.reject()
	}
	if body, ok := r.Body.(protocol.CompleteBody); ok {
		if complete, _ := body.Complete(); complete {
			if err := b.fill(x); err != nil {
				return err
			}
			return b.next.Start(ctx, x)
		}
	}
	return x.RunBlocking(ctx, protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		if err := b.fill(x); err != nil {
			return err
		}
		return x.Serve(ctx, b.next)
	}))
}

var errTooLarge = errors.New("buffer: the request body exceeds max_request_bytes")

func (b *bufferFilter) reject() error {
	b.rejected.Add(1)
	return protocol.NewFault(protocol.BodyTooLarge, errTooLarge)
}

// fill reads the body of x, and replaces it by one in memory. It returns a Fault if the body is too
// large; other errors come from the body.
func (b *bufferFilter) fill(x *protocol.Exchange) error {
	r := &x.Request
	content, err := readAll(r.Body, b.max, r.ContentLength)
	switch {
	case errors.Is(err, errTooLarge):
		return b.reject()
	case err != nil:
		return err
	}
	r.Body = &bufferedBody{source: r.Body, content: content}
	if r.Trailer.Len() == 0 { // a message with Content-Length has no trailers in HTTP/1.1
		r.ContentLength = int64(len(content))
	}
	return nil
}

// minGrowth is the minimum size, in bytes, by which the buffer of readAll grows.
const minGrowth = 4 << 10

// maxInitial is the maximum size, in bytes, that readAll allocates for a declared length before the
// bytes have arrived.
const maxInitial = 64 << 10

// readAll reads a body to its end. length is the declared length; negative: not declared. readAll
// returns errTooLarge if the body is longer than limit.
func readAll(body protocol.Body, limit, length int64) ([]byte, error) {
	content := make([]byte, 0, min(max(length, 0), maxInitial)+1) // Read needs room to return io.EOF
	for {
		if len(content) == cap(content) {
			grown := make([]byte, len(content), min(int64(max(2*len(content), minGrowth)), limit+1))
			copy(grown, content)
			content = grown
		}
		n, err := body.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		switch {
		case int64(len(content)) > limit:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return content, nil
		case err != nil:
			return nil, err
		}
	}
}

// bufferedBody is a body in memory. It implements protocol.Rewinder and protocol.CompleteBody.
type bufferedBody struct {
	source  protocol.Body // has been read; Close closes it
	content []byte
	readPos int
}

// Read implements protocol.Body.
func (b *bufferedBody) Read(p []byte) (int, error) {
	if b.readPos == len(b.content) {
		return 0, io.EOF
	}
	n := copy(p, b.content[b.readPos:])
	b.readPos += n
	return n, nil
}

// Buffered implements protocol.Body.
func (b *bufferedBody) Buffered() int { return len(b.content) - b.readPos }

// Complete implements protocol.CompleteBody.
func (b *bufferedBody) Complete() (complete, empty bool) { return true, len(b.content) == 0 }

// Rewind implements protocol.Rewinder.
func (b *bufferedBody) Rewind() bool { b.readPos = 0; return true }

// Close implements protocol.Body.
func (b *bufferedBody) Close() error { return b.source.Close() }
