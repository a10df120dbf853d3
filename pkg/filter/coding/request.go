package coding

import (
	"context"
	"errors"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Decompress returns the filter that decompresses HTTP requests with exactly one content coding, if
// one of the decoders supports that coding. It forwards all other requests unchanged, and also
// requests with no-transform or with a digest of the compressed body. It rejects a request whose
// body exceeds the limits or is corrupt. decompressed counts the requests that it decompresses,
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
		if isDigest(name) {
			return nil // it covers the compressed bytes, so the host could not verify it
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

// isDigest reports whether a header has a digest of the bytes of a body in its content coding (RFC
// 9530 2 and 3, and the older fields of RFC 3230 and RFC 2616).
func isDigest(name string) bool {
	for _, digest := range [...]string{"Content-Digest", "Repr-Digest", "Digest", "Content-MD5"} {
		if protocol.EqualFold(name, digest) {
			return true
		}
	}
	return false
}

// Finish implements protocol.Finisher. It counts a rejected request.
func (d *decompressor) Finish(_ context.Context, _ *protocol.Exchange, err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, errCorrupt) {
		d.rejected.Add(1)
	}
	return err
}
