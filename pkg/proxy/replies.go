package proxy

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/router/exchangefilter"
)

// compileReplies compiles the local replies that c selects. The result is nil for those of
// docs/errors.md. filterChain is the name of the filter chain.
func compileReplies(c *config.Replies, filterChain string) (*protocol.EnvoyReplies, error) {
	if !c.Envoy {
		return nil, nil //nolint:nilnil // nil stands for Weft's replies
	}
	if len(c.Mappers) == 0 && c.Body == nil {
		return new(protocol.EnvoyReplies), nil
	}
	r := &replyRewriter{mappers: make([]replyMapper, len(c.Mappers))}
	var err error
	if r.body, err = compileReplyBody(c.Body, filterChain); err != nil {
		return nil, err
	}
	for i := range c.Mappers {
		if r.mappers[i], err = compileReplyMapper(&c.Mappers[i], filterChain); err != nil {
			return nil, fmt.Errorf("local reply mapper %d: %w", i, err)
		}
		if r.mappers[i].body == nil {
			r.mappers[i].body = r.body
		}
	}
	return &protocol.EnvoyReplies{Rewrite: r.rewrite}, nil
}

// replyRewriter changes local replies. It is immutable.
type replyRewriter struct {
	mappers []replyMapper
	body    *replyBody // of replies that no mapper matches; nil: the body stays
}

// replyMapper is a compiled config.ReplyMapper.
type replyMapper struct {
	filter  *exchangefilter.Filter
	status  int
	text    *string
	headers *router.Mutation
	body    *replyBody // nil: the body stays
}

func compileReplyMapper(c *config.ReplyMapper, filterChain string) (m replyMapper, err error) {
	m.status, m.text = c.Status, c.Text
	if m.filter, err = exchangefilter.Compile(&c.Filter, exchangefilter.Env{Now: time.Now, Random: mathrand.Uint64}); err != nil {
		return m, err
	}
	if m.headers, err = router.CompileResponseMutation(c.Headers); err != nil {
		return m, err
	}
	m.body, err = compileReplyBody(c.Body, filterChain)
	return m, err
}

// rewrite implements protocol.EnvoyReplies.Rewrite.
func (r *replyRewriter) rewrite(x *protocol.Exchange) {
	body := r.body
	for i := range r.mappers {
		if m := &r.mappers[i]; m.filter.Matches(x) {
			m.apply(x)
			body = m.body
			break
		}
	}
	if body != nil {
		body.apply(x)
	}
}

// apply changes everything but the format of the body.
func (m *replyMapper) apply(x *protocol.Exchange) {
	if m.text != nil {
		x.SetLocalReplyBody(x.Response.Header.Get("content-type"), *m.text)
	}
	m.headers.Apply(x, &x.Response.Header)
	if m.status != 0 {
		x.Response.Status = m.status
	}
}

// replyBody is a compiled config.ReplyBody.
type replyBody struct {
	text        *variable.Template // nil: JSON
	json        []jsonPart
	contentType string
}

// jsonPart is a compiled config.JSONPart.
type jsonPart struct {
	literal string
	value   *variable.Template // nil: none
}

// compileReplyBody returns nil if c is nil.
func compileReplyBody(c *config.ReplyBody, filterChain string) (*replyBody, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // nil means that the body stays
	}
	o := variable.OperatorOptions{OmitMissing: c.OmitMissing, AppendUUID: appendUUID, FilterChain: &filterChain, LocalReply: true}
	b := new(replyBody)
	if len(c.JSON) == 0 {
		text, err := variable.CompileOperators(c.Text, o)
		b.text, b.contentType = text, cmp.Or(c.ContentType, "text/plain")
		return b, err
	}
	b.contentType = cmp.Or(c.ContentType, "application/json")
	for _, p := range c.JSON {
		part := jsonPart{literal: p.Literal}
		if p.Format != "" {
			var err error
			if part.value, err = variable.CompileOperators(p.Format, o); err != nil {
				return nil, err
			}
		}
		b.json = append(b.json, part)
	}
	return b, nil
}

// apply replaces the body of the local reply in x.
func (b *replyBody) apply(x *protocol.Exchange) {
	var out []byte
	if b.text != nil {
		out = b.text.Append(nil, x)
	}
	for _, p := range b.json {
		out = append(out, p.literal...)
		if p.value != nil {
			out = p.value.AppendJSON(out, x)
		}
	}
	if b.text == nil && !protocol.IsGRPC(&x.Request.Header) {
		out = append(out, '\n') // grpc-message has no such end
	}
	x.SetLocalReplyBody(b.contentType, string(out))
}

// appendUUID appends a random UUID (RFC 9562, version 4).
func appendUUID(dst []byte) []byte {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	for i, group := range [...][]byte{u[:4], u[4:6], u[6:8], u[8:10], u[10:]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, group)
	}
	return dst
}
