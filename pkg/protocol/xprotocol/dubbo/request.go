package dubbo

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// ReadRequest is xprotocol.Messages's. Where the body says a thing twice, as the
// version, the view has what a provider goes by: the attachment, if there is one.
// So "version" and "group" are not among the attachments once more; nor are
// attachments that have the name of a routing field and another meaning. The
// path of a request that cannot be read is "/".
func (Codec) ReadRequest(frame []byte, r *protocol.Request, v *xprotocol.FrameView) error {
	r.OneWay = frame[flagsAt]&flagTwoWay == 0
	r.Serialization = serialization(frame)
	r.ContentLength = int64(len(frame) - headSize)
	v.Timeout, v.ContentOffset, v.Offsets, v.Ambiguous = 0, headSize, [len(v.Offsets)]int32{}, false
	if !isHessian(frame) {
		r.Path = "/"
		return nil
	}
	var d hessian.Decoder
	var c call
	if err := c.read(&d, frame[headSize:]); err != nil {
		return malformedRequest(err)
	}
	if err := c.readAttachments(&d, frame[headSize:], &r.Header, v); err != nil {
		return malformedRequest(err)
	}
	v.Ambiguous = c.isAmbiguous()
	service, method := c.service(), c.method.text
	r.Authority = view(service)
	v.Text = append(append(v.Text[:0], '/'), service...)
	v.Text = append(append(v.Text, '/'), method...)
	r.Path = view(v.Text)
	r.Header.MarkUnchanged()
	return nil
}

// readAttachments consumes the attachments of a call and fills the fields. The
// routing fields come first, though some are known last.
func (c *call) readAttachments(d *hessian.Decoder, body []byte, h *protocol.Header, v *xprotocol.FrameView) error {
	h.Add(xprotocol.FieldService, "")
	h.Add(xprotocol.FieldMethod, "")
	h.Add(xprotocol.FieldVersion, "")
	h.Add(xprotocol.FieldGroup, "")
	if _, err := beginAttachments(d); err != nil {
		return err
	}
	var e hessian.Entry
	for n := 0; ; n++ {
		more, err := nextAttachment(d, &e, n)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		c.applyAttachment(&e)
		if !isField(&e) || isRouting(view(e.Key)) {
			continue
		}
		h.Add(view(e.Key), view(e.Value))
		if isTimeout(view(e.Key)) {
			seeTimeout(v, &e, body, c.attachments)
		}
	}
	for i, text := range [...][]byte{c.service(), c.method.text, c.version.text, c.group} {
		h.At(i).Value = view(text)
	}
	for i := 3; i >= 0; i-- {
		if f := h.At(i); f.Value == "" {
			h.Del(f.Name)
		}
	}
	return nil
}

// malformedRequest returns the fault of a request that cannot be read.
func malformedRequest(err error) error {
	return protocol.Faultf(protocol.MalformedRequest, "dubbo: request: %w", err)
}

// value is a text and the place in the body of the Hessian value that has it.
type value struct {
	text       []byte
	start, end int
}

// readText consumes a value that has a text.
func (v *value) readText(d *hessian.Decoder) (err error) {
	v.start = d.Offset()
	v.text, err = d.Text()
	v.end = d.Offset()
	return err
}

// call is what the body of a request says: the Dubbo version, path, service
// version, method, types of the arguments, the arguments, the attachments.
type call struct {
	path, version value
	method        value // of a generic call the real one: its first argument
	attachments   int   // where in the body they begin
	isGeneric     bool

	// From the attachments; nil for none.
	target, iface, group []byte
}

// Names of attachments.
const (
	attachmentInterface = "interface"
	attachmentPath      = "path"
)

// The call of a method by its name.
const (
	genericMethod      = "$invoke"
	genericMethodAsync = "$invokeAsync"
	genericTypes       = "Ljava/lang/String;[Ljava/lang/String;[Ljava/lang/Object;"
)

var errTypes = errors.New("the types of the arguments are no descriptor (JVM specification 4.3.2)")

// read consumes the body from its start up to the attachments.
func (c *call) read(d *hessian.Decoder, body []byte) error {
	arguments, err := c.readHead(d, body)
	if err != nil {
		return err
	}
	for i := range arguments {
		if err := d.Skip(); err != nil {
			return fmt.Errorf("argument %d of %d: %w", i+1, arguments, err)
		}
	}
	c.attachments = d.Offset()
	return nil
}

// readHead consumes the body from its start up to the arguments, and returns how many
// there are.
func (c *call) readHead(d *hessian.Decoder, body []byte) (arguments int, err error) {
	d.Limits = limits
	d.Reset(body)
	var dubbo, types value
	if err := dubbo.readText(d); err != nil {
		return 0, fmt.Errorf("dubbo version: %w", err)
	}
	if err := c.path.readText(d); err != nil {
		return 0, fmt.Errorf("path: %w", err)
	}
	if err := c.version.readText(d); err != nil {
		return 0, fmt.Errorf("version: %w", err)
	}
	if err := c.method.readText(d); err != nil {
		return 0, fmt.Errorf("method: %w", err)
	}
	if err := types.readText(d); err != nil {
		return 0, fmt.Errorf("types of arguments: %w", err)
	}
	arguments, ok := countTypes(types.text)
	if !ok {
		return 0, errTypes
	}
	if isGeneric(c.method.text, types.text) && d.Kind() == hessian.String {
		if err := c.method.readText(d); err != nil {
			return 0, fmt.Errorf("method of a generic call: %w", err)
		}
		arguments--
		c.isGeneric = true
	}
	return arguments, nil
}

func isGeneric(method, types []byte) bool {
	return len(types) == len(genericTypes) &&
		(string(method) == genericMethod || string(method) == genericMethodAsync) &&
		string(types) == genericTypes
}

// countTypes returns how many types a descriptor names (JVM specification 4.3.2).
func countTypes(descriptor []byte) (n int, ok bool) {
	for ; len(descriptor) > 0; n++ {
		for descriptor[0] == '[' {
			if descriptor = descriptor[1:]; len(descriptor) == 0 {
				return 0, false
			}
		}
		size := 1
		switch descriptor[0] {
		case 'B', 'C', 'D', 'F', 'I', 'J', 'S', 'V', 'Z':
		case 'L':
			if size += bytes.IndexByte(descriptor, ';'); size == 0 {
				return 0, false
			}
		default:
			return 0, false
		}
		descriptor = descriptor[size:]
	}
	return n, true
}

// applyAttachment takes from an attachment what a provider takes from it: it overrides what
// the body said before.
func (c *call) applyAttachment(e *hessian.Entry) {
	if e.Value == nil && e.Kind != hessian.Null {
		return
	}
	switch string(e.Key) {
	case attachmentInterface:
		c.iface = e.Value
	case attachmentPath:
		c.target = e.Value
	case xprotocol.FieldVersion:
		c.version.text = e.Value
	case xprotocol.FieldGroup:
		c.group = e.Value
	}
}

// service returns the interface that is called. A path is the interface if the
// provider was not told to have another.
func (c *call) service() []byte {
	switch {
	case len(c.iface) > 0:
		return c.iface
	case len(c.target) > 0:
		return c.target
	default:
		return c.path.text
	}
}

// isAmbiguous reports whether providers may take a call for another one than the
// fields say. They look for the service by the path, the attachment's or the body's, not
// by the interface; and older ones take a call for a generic one whatever types it
// declares. A path with a context ("shop/org.example.Shop") is no dispute.
func (c *call) isAmbiguous() bool {
	service := c.service()
	for _, path := range [...][]byte{c.target, c.path.text} {
		if context, ok := bytes.CutSuffix(path, service); len(path) > 0 && (!ok || len(context) > 0 && context[len(context)-1] != '/') {
			return true
		}
	}
	return string(c.method.text) == genericMethod || string(c.method.text) == genericMethodAsync
}

// isRouting reports whether an attachment has the name of a routing field.
func isRouting(name string) bool {
	switch len(name) {
	case len(xprotocol.FieldGroup):
		return protocol.EqualFold(name, xprotocol.FieldGroup)
	case len(xprotocol.FieldMethod):
		return protocol.EqualFold(name, xprotocol.FieldMethod)
	case len(xprotocol.FieldService):
		return protocol.EqualFold(name, xprotocol.FieldService) || protocol.EqualFold(name, xprotocol.FieldVersion)
	default:
		return false
	}
}

// view returns b's bytes as a string that shares them: it is valid, and
// constant, only as long as the bytes are neither changed nor reused. This is
// the package's only unsafe code; what is read of a frame costs no allocation for
// it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
