package dubbo

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

var (
	errOtherSerialization = errors.New("dubbo: the request or response is not in Hessian 2: Weft can change fields only in Hessian 2")
	errNoName             = errors.New("dubbo: a request requires a service and a method")
)

// AppendRequest implements xprotocol.Messages. It writes a changed "service" to the path and the
// attachments "path" and "interface", and a changed "version" or "group" to every place where the
// frame has one. It adds the attachment "group" if a filter sets a group and the frame has none.
// It writes the "method" of a generic call to its first argument. If a filter removed the version,
// or set it to "", the body gets an empty version. An attachment with a version or group that a
// filter removed, or set to "", is omitted.
func (Codec) AppendRequest(dst, frame []byte, r *protocol.Request, v *xprotocol.FrameView, remaining time.Duration) ([]byte, error) {
	start := len(dst)
	ms := int64(0)
	if remaining > 0 {
		ms = max(1, remaining.Milliseconds())
	}
	if r.Header.Changed() {
		return appendChangedRequest(dst, frame, &r.Header, ms)
	}
	dst = append(dst, frame...)
	if ms > 0 && remaining < v.Timeout {
		for _, index := range [...]int{callTimeoutIndex, serviceTimeoutIndex} {
			if from, to := int(v.Offsets[index]), int(v.Offsets[index+1]); to > 0 {
				lowerTimeout(dst[start+from:start+to], ms)
			}
		}
	}
	return dst, nil
}

// appendChangedRequest appends the request in frame with the fields of h. maxTimeout is the upper
// bound for its timeouts, in ms; 0: none.
func appendChangedRequest(dst, frame []byte, h *protocol.Header, maxTimeout int64) ([]byte, error) {
	if err := checkChange(frame, h); err != nil {
		return dst, err
	}
	start := len(dst)
	body := frame[headSize:]
	var d hessian.Decoder
	var q requestRewriter
	q.rewriter = rewriter{body: body, header: h, maxTimeout: maxTimeout}
	if err := q.read(&d, h); err != nil {
		return dst, err
	}

	dst = append(dst, frame[:headSize]...)
	offset := 0 // offset in the body: the bytes before it are written
	replace := func(v value, text string) {
		dst = append(dst, body[offset:v.start]...)
		dst = hessian.AppendString(dst, text)
		offset = v.end
	}
	if q.service.changed() {
		replace(q.call.path, q.service.replaceService(unsafeString(q.call.path.text)))
	}
	if q.version.changed() {
		replace(q.call.version, q.version.after)
	}
	if q.method.changed() {
		replace(q.call.method, q.method.after)
	}
	dst = append(dst, body[offset:q.call.attachments]...)

	dst, err := q.appendAttachments(dst, &d)
	if err != nil {
		return dst[:start], malformedRequest(err)
	}
	return finishFrame(q.end(dst, &d), start)
}

// checkChange returns the Fault for a change that a frame does not allow.
func checkChange(frame []byte, h *protocol.Header) error {
	if !isHessian(frame) {
		return protocol.NewFault(protocol.NotImplemented, errOtherSerialization)
	}
	if h.Len() > maxFields {
		return protocol.Faultf(protocol.HeaderTooLarge, "dubbo: %d attachments; the limit is %d", h.Len(), maxFields)
	}
	return nil
}

// finishFrame writes the body length of the frame dst[start:], or returns a Fault if the body is
// too large.
func finishFrame(dst []byte, start int) ([]byte, error) {
	if n := len(dst) - start - headSize; n > math.MaxInt32 {
		return dst[:start], protocol.Faultf(protocol.BodyTooLarge, "dubbo: a body of %d bytes is too large", n)
	}
	return patchBodyLength(dst, start), nil
}

// change is the original and the current value of a routing field; "" means no value.
type change struct{ before, after string }

func (c *change) changed() bool { return c.before != c.after }

// replaceService returns the path text with the new service; it keeps the context before the
// service, if there is one.
func (c *change) replaceService(text string) string {
	if context, ok := strings.CutSuffix(text, c.before); ok && strings.HasSuffix(context, "/") {
		return context + c.after
	}
	return c.after
}

// requestRewriter rewrites a request, whose routing fields occur in several places.
type requestRewriter struct {
	rewriter
	call call

	service, method, version, group change

	hasGroup bool // an attachment has the group
}

// read consumes the body up to its attachments with d, and reads the attachments in advance for the
// original routing fields. h contains the current routing fields.
func (q *requestRewriter) read(d *hessian.Decoder, h *protocol.Header) error {
	if err := q.call.read(d, q.body); err != nil {
		return malformedRequest(err)
	}
	c := q.call     // q.call keeps the values of the body, without the values of the attachments
	lookahead := *d // shares storage with d; both write the same values to it
	if _, err := beginAttachments(&lookahead); err != nil {
		return malformedRequest(err)
	}
	var e hessian.Entry
	for n := 0; ; n++ {
		more, err := nextAttachment(&lookahead, &e, n)
		if err != nil {
			return malformedRequest(err)
		}
		if !more {
			break
		}
		c.applyAttachment(&e)
	}
	q.service = change{unsafeString(c.service()), h.Get(xprotocol.FieldService)}
	q.method = change{unsafeString(c.method.text), h.Get(xprotocol.FieldMethod)}
	q.version = change{unsafeString(c.version.text), h.Get(xprotocol.FieldVersion)}
	q.group = change{unsafeString(c.group), h.Get(xprotocol.FieldGroup)}
	if q.service.changed() && q.service.after == "" || q.method.changed() && q.method.after == "" {
		return protocol.NewFault(protocol.Internal, errNoName)
	}
	for i := range h.Len() {
		if isRouting(h.At(i).Name) {
			q.markUsed(i)
		}
	}
	return nil
}

// appendAttachments consumes the attachments with d and appends them, without the end of their map.
func (q *requestRewriter) appendAttachments(dst []byte, d *hessian.Decoder) ([]byte, error) {
	dst, err := q.begin(dst, d)
	if err != nil {
		return dst, err
	}
	var e hessian.Entry
	for n := 0; ; n++ {
		more, err := nextAttachment(d, &e, n)
		if err != nil {
			return dst, err
		}
		if !more {
			break
		}
		dst = q.appendEntry(dst, &e)
	}
	if !q.hasGroup && q.group.after != "" {
		dst = q.add(dst, xprotocol.FieldGroup, q.group.after)
	}
	return dst, nil
}

// appendEntry appends attachment e with the current value of its field or of a routing field, and
// omits e if the field was removed. It copies an attachment that is not a field.
func (q *requestRewriter) appendEntry(dst []byte, e *hessian.Entry) []byte {
	if !isField(e) {
		return q.keep(dst, e)
	}
	switch string(e.Key) {
	case xprotocol.FieldVersion:
		return q.setRouting(dst, e, &q.version)
	case xprotocol.FieldGroup:
		q.hasGroup = true
		return q.setRouting(dst, e, &q.group)
	case attachmentPath, attachmentInterface:
		f := q.takeField(e)
		switch {
		case f == nil:
			return dst
		case q.service.changed() && f.Value == unsafeString(e.Value):
			return q.set(dst, e, q.service.replaceService(f.Value))
		default:
			return q.set(dst, e, f.Value)
		}
	}
	if isRouting(unsafeString(e.Key)) {
		return q.keep(dst, e)
	}
	return q.rewriter.appendEntry(dst, e)
}

// setRouting appends attachment e with the current value of a routing field, and omits e if a
// filter removed the field or set it to "".
func (q *requestRewriter) setRouting(dst []byte, e *hessian.Entry, c *change) []byte {
	switch {
	case !c.changed():
		return q.keep(dst, e)
	case c.after == "":
		return dst
	default:
		return q.set(dst, e, c.after)
	}
}

// AppendResponse implements xprotocol.Messages. To add attachments to a response without any, it
// changes the kind of the result to one with attachments. AppendResponse ignores changed fields in
// a response that is only a text (see ReadResponse), because an error would lose the response.
func (Codec) AppendResponse(dst, frame []byte, r *protocol.Response, _ *xprotocol.FrameView) ([]byte, error) {
	if !r.Header.Changed() || frame[statusOffset] != statusOK {
		return append(dst, frame...), nil
	}
	if err := checkChange(frame, &r.Header); err != nil {
		return dst, err
	}
	start := len(dst)
	body := frame[headSize:]
	w := rewriter{body: body, header: &r.Header}
	var d hessian.Decoder
	var res result
	if err := res.read(&d, body); err != nil {
		return dst, malformedResponse(err)
	}
	if err := res.skipValue(&d); err != nil {
		return dst, malformedResponse(err)
	}
	dst = append(dst, frame[:headSize]...)
	dst = hessian.AppendInt(dst, res.kind%attachedOffset+attachedOffset)
	dst = append(dst, body[res.value:d.Offset()]...)
	if res.kind < attachedOffset {
		return finishFrame(w.end(hessian.AppendMapStart(dst), &d), start)
	}
	dst, err := w.appendAttachments(dst, &d)
	if err != nil {
		return dst[:start], malformedResponse(err)
	}
	return finishFrame(w.end(dst, &d), start)
}
