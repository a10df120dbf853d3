package mirror

import (
	"io"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// request is a request to copy. It does not borrow from the original exchange. After launch it is
// immutable and safe for concurrent use.
type request interface {
	// fill sets the request of x, a new exchange, to a copy.
	fill(x *protocol.Exchange) error
}

// httpCopy is an HTTP request.
type httpCopy struct {
	protocol, version               string
	method, scheme, authority, path string
	header, trailer                 []protocol.Field
	content                         []byte
	hasContent                      bool
}

// copyHead returns a copy of x's request without the body.
func copyHead(x *protocol.Exchange) *httpCopy {
	r := &x.Request
	return &httpCopy{
		protocol: strings.Clone(x.Meta.Protocol), version: strings.Clone(x.Meta.Version),
		method: strings.Clone(r.Method), scheme: strings.Clone(r.Scheme),
		authority: strings.Clone(r.Authority), path: strings.Clone(r.Path),
		header: r.Header.CloneFields(),
	}
}

// appendForwardedFor returns fields with the address of the client appended to X-Forwarded-For, as
// Envoy does in copies, unless it is the last address already. It may change fields.
func appendForwardedFor(fields []protocol.Field, conn *protocol.ConnMeta) []protocol.Field {
	const name = "X-Forwarded-For"
	if conn == nil || conn.RemoteIP == "" {
		return fields
	}
	for i := range slices.Backward(fields) {
		f := &fields[i]
		if !protocol.EqualFold(f.Name, name) {
			continue
		}
		if last := f.Value[strings.LastIndexByte(f.Value, ',')+1:]; strings.Trim(last, " ") != conn.RemoteIP {
			f.Value += "," + conn.RemoteIP
		}
		return fields
	}
	return append(fields, protocol.Field{Name: name, Value: strings.Clone(conn.RemoteIP)})
}

// shadowHost returns authority with Envoy's suffix for copies, before the port.
func shadowHost(authority string) string {
	const suffix = "-shadow"
	if host, port, ok := cutPort(authority); ok {
		return host + suffix + ":" + port
	}
	return authority + suffix
}

func cutPort(authority string) (host, port string, ok bool) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.IndexByte(authority[i:], ']') >= 0 {
		return authority, "", false
	}
	return authority[:i], authority[i+1:], true
}

// fill implements request.
func (c *httpCopy) fill(x *protocol.Exchange) error {
	x.Meta.Protocol, x.Meta.Version, x.Meta.Conn = c.protocol, c.version, new(protocol.ConnMeta)
	r := &x.Request
	r.Method, r.Scheme, r.Authority, r.Path = c.method, c.scheme, c.authority, c.path
	for _, f := range c.header {
		r.Header.Add(f.Name, f.Value)
	}
	if !c.hasContent {
		return nil
	}
	r.Body, r.ContentLength = protocol.NewStringBody(string(c.content)), int64(len(c.content))
	if len(c.trailer) > 0 {
		r.ContentLength = -1 // HTTP/1.1 allows trailers only without a declared length
	}
	for _, f := range c.trailer {
		r.Trailer.Add(f.Name, f.Value)
	}
	return nil
}

// rpcCopy is an RPC request as the bytes that the client sent.
type rpcCopy struct {
	protocol, version string
	codec             xprotocol.Codec
	bytes             []byte
	oneWay            bool
}

// copyFrame returns a copy of x's frame. ok is false if the frame is larger than maxBytes. r is nil
// if x has no frame.
func copyFrame(x *protocol.Exchange, maxBytes int) (r request, ok bool) {
	m := xprotocol.MessageOf(x.Request.Body)
	if m == nil {
		return nil, false
	}
	frame := &rpcCopy{codec: m.Codec, oneWay: x.Request.OneWay}
	if len(m.Frame) > maxBytes {
		return frame, false
	}
	frame.protocol, frame.version = strings.Clone(x.Meta.Protocol), strings.Clone(x.Meta.Version)
	frame.bytes = slices.Clone(m.Frame)
	return frame, true
}

// fill implements request.
func (c *rpcCopy) fill(x *protocol.Exchange) error {
	x.Meta.Protocol, x.Meta.Version, x.Meta.Conn = c.protocol, c.version, new(protocol.ConnMeta)
	x.Request.OneWay = c.oneWay
	m := new(xprotocol.Message)
	m.Set(c.codec, c.bytes)
	x.Request.Body = m
	return c.codec.ReadRequest(c.bytes, &x.Request, &m.View)
}

// tee is a request body that copies the bytes that Read returns. At the end of the body it launches
// the copies of the request.
type tee struct {
	protocol.Body

	mirror  *mirror
	targets []*target
	request *httpCopy
	length  int64            // declared length; negative: not declared
	trailer *protocol.Header // complete at the end of the body
	done    bool             // the copies were launched, or the body is too large
}

// Read implements protocol.Body. The reader of a body with a declared length may stop at the last
// byte without reading io.EOF, so the last byte also ends the body. The copies then lack
// trailers, which HTTP/2 allows after such a body.
func (t *tee) Read(p []byte) (int, error) {
	n, err := t.Body.Read(p)
	if t.done {
		return n, err
	}
	r := t.request
	if len(r.content)+n > t.mirror.config.MaxBody {
		t.done, r.content = true, nil
		t.mirror.tooLarge.Add(1)
		return n, err
	}
	r.content = append(r.content, p[:n]...)
	if err == io.EOF || int64(len(r.content)) == t.length {
		t.done, r.hasContent = true, true
		r.trailer = t.trailer.CloneFields()
		t.mirror.launch(r, t.targets)
	}
	return n, err
}

// Rewind implements protocol.Rewinder. It discards the bytes copied so far, unless the copies were
// launched.
func (t *tee) Rewind() bool {
	if !protocol.RewindBody(t.Body) {
		return false
	}
	if !t.done {
		t.request.content = t.request.content[:0]
	}
	return true
}

// maxDrainBytes is the maximum number of response bytes that are read so that the connection can be
// reused.
const maxDrainBytes = 1 << 20

// drain reads up to maxDrainBytes bytes of a response body.
func drain(body protocol.Body) error {
	if body == nil {
		return nil
	}
	_, err := io.CopyN(io.Discard, body, maxDrainBytes)
	if err == io.EOF {
		return nil
	}
	return err
}
