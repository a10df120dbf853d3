package coding

import (
	"context"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Policy selects the responses to compress. It is immutable.
type Policy struct {
	// Encoders are the codings to choose from. If the client gives several the same weight, the
	// filter uses the first of them.
	Encoders []*EncoderPool
	// MinLength is the declared length, in bytes, below which a body is not compressed. A body of
	// unknown length is never below it.
	MinLength int64
	// Types are the media types to compress, without parameters: "text/html", or "text/*".
	Types []string
	// MissingType allows responses without a media type.
	MissingType bool
	// KeepStrongTags leaves responses with a strong ETag unchanged. Otherwise the filter makes the
	// tag weak or, with RemoveStrongTags, removes it, because compression changes the bytes that it
	// identifies. KeepWeakTags leaves responses with a weak ETag unchanged.
	KeepStrongTags, KeepWeakTags, RemoveStrongTags bool
	// ExcludedStatuses are the statuses of responses that are not compressed.
	ExcludedStatuses []int
	// RemoveAcceptEncoding removes Accept-Encoding from requests whose responses the filter may
	// compress, so that hosts do not compress them.
	RemoveAcceptEncoding bool
}

// Compress returns the filter that applies p.
//
// The filter does not compress a response that already has a content coding, is partial (206, or
// with Content-Range), has no body (204, 205, 304, or the response to HEAD), or carries a digest of
// its bytes. It does not compress the responses to gRPC and RPC requests, nor if the request or the
// response has no-transform (RFC 9111 5.2.2.6). It adds Accept-Encoding to Vary of each response
// that it would compress for some client (RFC 9110 12.5.5).
func Compress(p Policy) filter.Filter {
	return func(next protocol.Service) protocol.Service {
		c := &compressor{policy: p, next: next}
		for i, e := range p.Encoders {
			c.offered = append(c.offered, e.Coding())
			c.finishers[e.Coding()] = &responseFinisher{compressor: c, encoders: p.Encoders[i]}
		}
		c.finishers[Identity] = &responseFinisher{compressor: c}
		return c
	}
}

// compressor implements the filter of Compress. It is immutable.
type compressor struct {
	policy    Policy
	offered   []Coding
	finishers [codingCount]*responseFinisher
	next      protocol.Service
}

// Start implements protocol.Service. It reads Accept-Encoding before a later filter can change
// it.
func (c *compressor) Start(ctx context.Context, x *protocol.Exchange) error {
	h := &x.Request.Header
	if x.Request.Method != "" && !hasListMember(h, "Cache-Control", "no-transform") && !protocol.IsGRPC(h) {
		x.PushFinisher(c.finishers[Negotiate(h, c.offered)])
		if c.policy.RemoveAcceptEncoding {
			h.Del("Accept-Encoding")
		}
	}
	return c.next.Start(ctx, x)
}

// responseFinisher compresses the responses of exchanges that negotiated the coding of encoders.
type responseFinisher struct {
	*compressor
	encoders *EncoderPool // nil: Identity
}

// Finish implements protocol.Finisher.
func (f *responseFinisher) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	r := &x.Response
	if err != nil || !f.policy.allows(r) {
		return err
	}
	if h := &r.Header; !hasListMember(h, "Vary", "Accept-Encoding") && !hasListMember(h, "Vary", "*") {
		addVary(h)
	}
	if f.encoders == nil {
		return nil
	}
	length := r.ContentLength
	r.ContentLength = -1 // the compressed length is unknown, also for HEAD (RFC 9110 9.3.2)
	if x.Request.Method == "HEAD" {
		return nil
	}
	r.Header.Set("Content-Encoding", f.encoders.Coding().String())
	r.Header.Del("Accept-Ranges") // ranges would refer to other bytes
	switch tag := r.Header.Get("ETag"); {
	case !isStrong(tag):
	case f.policy.RemoveStrongTags:
		r.Header.Del("ETag")
	default:
		r.Header.Set("ETag", "W/"+tag) // RFC 9110 8.8.1
	}
	r.Body = f.encoders.Compress(r.Body, length)
	return nil
}

// addVary adds Accept-Encoding to Vary, and joins several fields (RFC 9110 5.3).
func addVary(h *protocol.Header) {
	var names []string
	for name, value := range h.All() {
		if protocol.EqualFold(name, "Vary") {
			names = append(names, value)
		}
	}
	h.Set("Vary", strings.Join(append(names, "Accept-Encoding"), ", "))
}

// isStrong reports whether tag is a strong entity tag (RFC 9110 8.8.3).
func isStrong(tag string) bool { return strings.HasPrefix(tag, `"`) }

// allows reports whether r may be compressed, according to its properties and p.
func (p *Policy) allows(r *protocol.Response) bool {
	switch {
	case r.Body == nil, r.Tunnel != nil,
		r.Status < 200, r.Status == 204, r.Status == 205, r.Status == 206, r.Status == 304,
		r.ContentLength == 0, r.ContentLength > 0 && r.ContentLength < p.MinLength, slices.Contains(p.ExcludedStatuses, r.Status):
		return false
	}
	h := &r.Header
	for name := range h.All() {
		if protocol.EqualFold(name, "Content-Encoding") || protocol.EqualFold(name, "Content-Range") || isDigest(name) {
			return false
		}
	}
	return p.allowsType(h.Get("Content-Type")) && !hasListMember(h, "Cache-Control", "no-transform") && p.allowsTag(h.Get("ETag"))
}

// allowsType reports whether p compresses bodies of a media type.
func (p *Policy) allowsType(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.Trim(mediaType, " \t")
	if mediaType == "" {
		return p.MissingType
	}
	mainType, _, _ := strings.Cut(mediaType, "/")
	return slices.ContainsFunc(p.Types, func(t string) bool {
		if wildcard, ok := strings.CutSuffix(t, "/*"); ok {
			return protocol.EqualFold(mainType, wildcard)
		}
		return protocol.EqualFold(mediaType, t)
	})
}

// allowsTag reports whether p compresses responses with an entity tag, which may be empty.
func (p *Policy) allowsTag(tag string) bool {
	if isStrong(tag) {
		return !p.KeepStrongTags
	}
	return tag == "" || !p.KeepWeakTags
}
