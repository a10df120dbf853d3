package coding

import (
	"context"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Policy says which answers are compressed. Immutable.
type Policy struct {
	// Encoders are the codings to choose from; of those that a caller likes alike the
	// first is taken.
	Encoders []*EncoderPool
	// MinLength is the declared length, in bytes, below which content is left as it
	// is. Content of unknown length is never below it.
	MinLength int64
	// Types are the media types that are compressed, without parameters: "text/html",
	// or "text/*".
	Types []string
	// KeepStrongTags leaves answers with a strong ETag as they are. Otherwise their tag
	// is made a weak one: their bytes are not what it stands for any more.
	KeepStrongTags bool
	// HideRequest removes Accept-Encoding from requests, so that origins do not
	// compress.
	HideRequest bool
}

// Compress returns the filter that does what p says. It fails open: what it does not
// understand passes as it is.
//
// Answers are left alone that have a content coding already, are parts (206, or with
// Content-Range) or have no content (204, 205, 304, those to HEAD), that carry a
// digest of their bytes, are calls of gRPC or of RPC, or whose request or answer says
// no-transform (RFC 9111 5.2.2.6). An answer that depends on what its caller accepts
// says so in Vary, compressed or not (RFC 9110 12.5.5).
func Compress(p Policy) filter.Filter {
	return func(next protocol.Service) protocol.Service {
		c := &compressor{policy: p, next: protocol.Async(next)}
		for i, e := range p.Encoders {
			c.offered = append(c.offered, e.Coding())
			c.answers[e.Coding()] = &answer{compressor: c, encoders: p.Encoders[i]}
		}
		c.answers[Identity] = &answer{compressor: c}
		return c
	}
}

// compressor is immutable.
type compressor struct {
	policy  Policy
	offered []Coding
	answers [codings]*answer
	next    protocol.AsyncService
}

// Serve is protocol.Service's.
func (c *compressor) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, c, x)
}

// Start is protocol.AsyncService's: it looks what the caller accepts, before anybody
// changes that.
func (c *compressor) Start(ctx context.Context, x *protocol.Exchange) error {
	h := &x.Request.Header
	if x.Request.Method != "" && !listed(h, "Cache-Control", "no-transform") && !protocol.IsGRPC(h) {
		x.PushFinisher(c.answers[Negotiate(h, c.offered)])
		if c.policy.HideRequest {
			h.Del("Accept-Encoding")
		}
	}
	return c.next.Start(ctx, x)
}

// answer is what is done with the answer for a caller that chose a coding.
type answer struct {
	*compressor
	encoders *EncoderPool // nil: none
}

// Finish is protocol.Finisher's.
func (a *answer) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	r := &x.Response
	if err != nil || !a.policy.fits(r) {
		return err
	}
	if h := &r.Header; !listed(h, "Vary", "Accept-Encoding") && !listed(h, "Vary", "*") {
		h.Add("Vary", "Accept-Encoding")
	}
	if a.encoders == nil {
		return nil
	}
	length := r.ContentLength
	r.ContentLength = -1 // nobody knows it yet; nor would GET's be this (RFC 9110 9.3.2)
	if x.Request.Method == "HEAD" {
		return nil
	}
	r.Header.Set("Content-Encoding", a.encoders.Coding().String())
	r.Header.Del("Accept-Ranges") // of other bytes
	if tag := r.Header.Get("ETag"); isStrong(tag) {
		r.Header.Set("ETag", "W/"+tag) // RFC 9110 8.8.1
	}
	r.Body = a.encoders.Compress(r.Body, length)
	return nil
}

// isStrong reports whether tag is a strong entity tag (RFC 9110 8.8.3).
func isStrong(tag string) bool { return strings.HasPrefix(tag, `"`) }

// fits reports whether an answer is one to compress.
func (p *Policy) fits(r *protocol.Response) bool {
	switch {
	case r.Body == nil, r.Tunnel != nil,
		r.Status < 200, r.Status == 204, r.Status == 205, r.Status == 206, r.Status == 304,
		r.ContentLength == 0, r.ContentLength > 0 && r.ContentLength < p.MinLength:
		return false
	}
	h := &r.Header
	for name := range h.All() {
		for _, no := range [...]string{"Content-Encoding", "Content-Range", "Content-Digest", "Repr-Digest", "Digest", "Content-MD5"} {
			if protocol.EqualFold(name, no) {
				return false
			}
		}
	}
	return p.takes(h.Get("Content-Type")) && !listed(h, "Cache-Control", "no-transform") &&
		!(p.KeepStrongTags && isStrong(h.Get("ETag")))
}

// takes reports whether content of a type is to be compressed.
func (p *Policy) takes(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.Trim(media, " \t")
	if media == "" {
		return false
	}
	kind, _, _ := strings.Cut(media, "/")
	return slices.ContainsFunc(p.Types, func(t string) bool {
		if all, ok := strings.CutSuffix(t, "/*"); ok {
			return protocol.EqualFold(kind, all)
		}
		return protocol.EqualFold(media, t)
	})
}
