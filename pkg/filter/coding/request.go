package coding

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Decompression selects the messages to decompress. It is immutable, except for its counters.
type Decompression struct {
	Decoders            []*DecoderPool
	Requests, Responses Direction
	// Advertise adds the codings to Accept-Encoding of requests, so that hosts compress.
	Advertise bool
	// Rejected counts the requests that the filter rejects.
	Rejected *metrics.Counter
}

// Direction says which messages of one direction the filter decompresses.
type Direction struct {
	Enabled bool
	// IgnoreNoTransform also decompresses messages with no-transform.
	IgnoreNoTransform bool
	// Decompressed counts the messages that the filter decompresses, including rejected requests.
	Decompressed *metrics.Counter
}

// Decompress returns the filter that decompresses the HTTP messages that d selects, if they have
// exactly one content coding, and one of the decoders supports that coding. It forwards all other
// messages unchanged, and also messages with no-transform or with a digest of the compressed body.
// It rejects a request whose body exceeds the limits or is corrupt. A response with such a body
// ends with an error.
func Decompress(d Decompression) filter.Filter {
	var names []string
	if d.Advertise {
		for _, pool := range d.Decoders {
			names = append(names, pool.Coding().String())
		}
	}
	advertised := strings.Join(names, ",")
	return func(next protocol.Service) protocol.Service { return &decompressor{d, advertised, next} }
}

type decompressor struct {
	Decompression
	advertised string // the codings to advertise; "": none
	next       protocol.Service
}

// Start implements protocol.Service.
func (d *decompressor) Start(ctx context.Context, x *protocol.Exchange) error {
	r := &x.Request
	if r.Method == "" {
		return d.next.Start(ctx, x)
	}
	pool := d.poolFor(d.Requests, r.Body, &r.Header)
	if pool != nil {
		r.Header.Del("Content-Encoding")
		r.Body, r.ContentLength = pool.Decompress(r.Body), -1
	}
	if d.advertised != "" {
		d.advertise(&r.Header)
	}
	if pool != nil || d.Responses.Enabled {
		x.PushFinisher(d)
	}
	return d.next.Start(ctx, x)
}

// advertise adds the codings to Accept-Encoding. It removes them first, because the client may have
// excluded them with a weight of 0.
func (d *decompressor) advertise(h *protocol.Header) {
	var others []string
	for name, value := range h.All() {
		if !protocol.EqualFold(name, "Accept-Encoding") {
			continue
		}
		for member := range strings.SplitSeq(value, ",") {
			member = strings.Trim(member, " \t")
			coding, _, _ := strings.Cut(member, ";")
			if c, ok := ParseCoding(strings.Trim(coding, " \t")); member != "" && (!ok || !d.decodes(c)) {
				others = append(others, member)
			}
		}
	}
	h.Set("Accept-Encoding", strings.Join(append(others, d.advertised), ","))
}

// decodes reports whether d has a decoder for c.
func (d *decompressor) decodes(c Coding) bool {
	return slices.ContainsFunc(d.Decoders, func(pool *DecoderPool) bool { return pool.Coding() == c })
}

// poolFor returns the pool for the coding of a message's body, and counts the message. It returns
// nil if the filter forwards the message unchanged.
func (d *decompressor) poolFor(direction Direction, body protocol.Body, h *protocol.Header) *DecoderPool {
	if body == nil || !direction.Enabled || !direction.IgnoreNoTransform && hasListMember(h, "Cache-Control", "no-transform") {
		return nil
	}
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
	for _, pool := range d.Decoders {
		if pool.Coding() == c {
			direction.Decompressed.Add(1)
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

// Finish implements protocol.Finisher. It counts a rejected request, and decompresses a response.
func (d *decompressor) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, errCorrupt) {
		d.Rejected.Add(1)
	}
	if r := &x.Response; err == nil && r.Tunnel == nil && x.Request.Method != "HEAD" {
		if pool := d.poolFor(d.Responses, r.Body, &r.Header); pool != nil {
			r.Header.Del("Content-Encoding")
			r.Body, r.ContentLength = pool.Decompress(r.Body), -1
		}
	}
	return err
}
