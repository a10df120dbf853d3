package coding

import (
	"context"
	"errors"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Decompress returns the filter that decompresses requests with exactly one content coding, if one
// of the decoders supports that coding. It forwards all other requests unchanged, and also requests
// with no-transform or with a digest of the compressed body. It rejects a request whose body
// exceeds the limits or is corrupt. decompressed counts the requests that it decompresses,
// including those that it rejects. rejected counts the requests that it rejects.
func Decompress(decoders []*DecoderPool, decompressed, rejected *metrics.Counter) filter.Filter {
	return func(next protocol.Service) protocol.Service {
		return &decompressor{decoders, decompressed, rejected, next}
	}
}

// decompressor is immutable except for its counters.
type decompressor struct {
	decoders     []*DecoderPool
	decompressed *metrics.Counter
	rejected     *metrics.Counter
	next         protocol.Service
}

// Start implements protocol.Service.
func (d *decompressor) Start(ctx context.Context, x *protocol.Exchange) error {
	r := &x.Request
	if r.Body != nil && r.Method != "" && !hasListMember(&r.Header, "Cache-Control", "no-transform") {
		if pool := d.poolFor(&r.Header); pool != nil {
			d.decompressed.Add(1)
			r.Header.Del("Content-Encoding")
			r.Body, r.ContentLength = pool.Decompress(r.Body), -1
			x.PushFinisher(d)
		}
	}
	return d.next.Start(ctx, x)
}

// poolFor returns the pool for the coding of a request's body, or nil if the filter forwards the
// request unchanged.
func (d *decompressor) poolFor(h *protocol.Header) *DecoderPool {
	encoding := ""
	for name, value := range h.All() {
		if protocol.EqualFold(name, "Content-Encoding") {
			if encoding != "" {
				return nil
			}
			encoding = value
		}
		// A digest covers the compressed bytes, so the host could not verify it.
		if protocol.EqualFold(name, "Content-Digest") || protocol.EqualFold(name, "Content-MD5") {
			return nil
		}
	}
	c, ok := ParseCoding(encoding)
	if !ok || c == Identity {
		return nil
	}
	for _, pool := range d.decoders {
		if pool.Coding() == c {
			return pool
		}
	}
	return nil
}

// Finish implements protocol.Finisher.
func (d *decompressor) Finish(_ context.Context, _ *protocol.Exchange, err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, errCorrupt) {
		d.rejected.Add(1)
	}
	return err
}
