package service

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// requestCopy is a request that can be sent several times concurrently. It refers to no memory that
// the engine reuses after the original exchange. Immutable.
type requestCopy struct {
	meta                            protocol.Meta
	method, scheme, authority, path string
	fields, trailers                []protocol.Field
	length                          int64
	body                            string
	hasBody                         bool

	targetCluster string
	weightedIndex uint16
	hash          uint64
	metadata      protocol.Metadata

	// For RPC only.
	codec   xprotocol.Codec
	frame   []byte
	changed bool // the headers differ from those of the frame
}

// maxHedgedBodySize is the maximum Content-Length, in bytes, of a hedged request whose body has not
// arrived completely.
const maxHedgedBodySize = 64 << 10

// isHedgeable reports whether a request can be sent several times concurrently: anyMethod is set, or it may be sent
// twice, and its body is complete or small. It returns false for tunnels and one-way requests.
func isHedgeable(x *protocol.Exchange, anyMethod bool) bool {
	r := &x.Request
	if r.OneWay || r.Upgrade != "" || r.Method == "CONNECT" || !anyMethod && !isIdempotent(x) {
		return false
	}
	if r.Method == "" {
		return xprotocol.MessageOf(r.Body) != nil
	}
	if r.Body == nil || r.ContentLength >= 0 && r.ContentLength <= maxHedgedBodySize {
		return true
	}
	body, ok := r.Body.(protocol.CompleteBody)
	if !ok {
		return false
	}
	complete, _ := body.Complete()
	return complete
}

// copyRequest reads x's request, which isHedgeable accepts, to its end and returns a copy. It
// returns the errors of readBody.
func copyRequest(x *protocol.Exchange) (*requestCopy, error) {
	r := &x.Request
	c := &requestCopy{
		meta:   x.Meta,
		method: strings.Clone(r.Method), scheme: strings.Clone(r.Scheme),
		authority: strings.Clone(r.Authority), path: strings.Clone(r.Path),
		length:        r.ContentLength,
		targetCluster: strings.Clone(x.Record.TargetCluster), weightedIndex: x.Record.WeightedIndex, hash: x.Record.Hash,
		metadata: x.Metadata.Clone(),
	}
	if m := xprotocol.MessageOf(r.Body); m != nil {
		c.codec, c.frame, c.changed = m.Codec, slices.Clone(m.Frame), r.Header.Changed()
		if c.changed {
			c.fields = r.Header.CloneFields()
		}
		return c, nil
	}
	c.fields = r.Header.CloneFields()
	if r.Body == nil {
		return c, nil
	}
	var err error
	if c.body, err = readBody(x); err != nil {
		return nil, err
	}
	c.hasBody = true
	c.trailers = r.Trailer.CloneFields()
	return c, nil
}

// readBody reads the body of x's request to its end, until x.Deadline. It returns an error of the
// body, a panic of its Close, or an UpstreamTimeout Fault: slow clients get the same result as if
// the body were streamed.
func readBody(x *protocol.Exchange) (text string, err error) {
	body := x.Request.Body
	var content strings.Builder
	content.Grow(body.Buffered())
	timedOut := make(chan struct{})
	if !x.Deadline.IsZero() {
		var closeErr error // valid once timedOut is closed
		timer := time.AfterFunc(time.Until(x.Deadline), func() {
			defer close(timedOut)
			closeErr = x.CloseRequestBody(body) // Read returns the error
		})
		defer func() {
			if timer.Stop() {
				return
			}
			if <-timedOut; closeErr != nil { // wait for the timer's function, because another exchange reuses the body soon
				err = closeErr
			}
		}()
	}
	_, err = io.Copy(&content, body)
	if err != nil && !x.Deadline.IsZero() && !time.Now().Before(x.Deadline) {
		err = protocol.Faultf(protocol.UpstreamTimeout, "waiting for the request body: %w", err)
	}
	return content.String(), err
}

// fill copies the request into x, which must be new. Errors are Faults.
func (c *requestCopy) fill(x *protocol.Exchange) error {
	r := &x.Request
	x.Meta = c.meta
	x.Record.TargetCluster, x.Record.WeightedIndex, x.Record.Hash = c.targetCluster, c.weightedIndex, c.hash
	x.Metadata = c.metadata.Clone()
	if c.codec != nil {
		m := new(xprotocol.Message)
		m.Set(c.codec, c.frame)
		r.Body = m
		if err := c.codec.ReadRequest(c.frame, r, &m.View); err != nil {
			return err
		}
		if c.changed {
			r.Header.Reset()
		}
	}
	r.Method, r.Scheme, r.Authority, r.Path = c.method, c.scheme, c.authority, c.path
	r.ContentLength = c.length
	for _, f := range c.fields {
		r.Header.Add(f.Name, f.Value)
	}
	if c.hasBody {
		r.Body = protocol.NewStringBody(c.body)
	}
	for _, f := range c.trailers {
		r.Trailer.Add(f.Name, f.Value)
	}
	return nil
}
