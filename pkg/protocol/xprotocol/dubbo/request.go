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

// ReadRequest implements xprotocol.Messages. If an attachment repeats a value of the body, such as
// the version, Header has the value of the attachment. Header does not repeat "version" and "group"
// among the attachments, and omits attachments that have the name of a routing field but another
// meaning. The path of a request in a serialization other than Hessian 2 is "/".
func (Codec) ReadRequest(frame []byte, r *protocol.Request, v *xprotocol.FrameView) error {
	r.OneWay = frame[flagsOffset]&flagTwoWay == 0
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
	r.Authority = unsafeString(service)
	v.Text = append(append(v.Text[:0], '/'), service...)
	v.Text = append(append(v.Text, '/'), method...)
	r.Path = unsafeString(v.Text)
	r.Header.MarkUnchanged()
	return nil
}

// readAttachments consumes the attachments of a call and adds the fields to h. The routing fields
// come first, although their values are known only after the attachments.
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
		if !isField(&e) || isRouting(unsafeString(e.Key)) {
			continue
		}
		h.Add(unsafeString(e.Key), unsafeString(e.Value))
		if isTimeout(unsafeString(e.Key)) {
			recordTimeout(v, &e, body, c.attachments)
		}
	}
	for i, text := range [...][]byte{c.service(), c.method.text, c.version.text, c.group} {
		h.At(i).Value = unsafeString(text)
	}
	for i := 3; i >= 0; i-- {
		if f := h.At(i); f.Value == "" {
			h.Del(f.Name)
		}
	}
	return nil
}

func malformedRequest(err error) error {
	return protocol.Faultf(protocol.MalformedRequest, "dubbo: request: %w", err)
}

// value is a text and the position of its Hessian value in the body.
type value struct {
	text       []byte
	start, end int
}

func (v *value) readText(d *hessian.Decoder) (err error) {
	v.start = d.Offset()
	v.text, err = d.Text()
	v.end = d.Offset()
	return err
}

// call is the body of a request: the Dubbo version, path, service version, method, argument types,
// arguments and attachments.
type call struct {
	path, version value
	method        value // for a generic call, the first argument, which is the called method
	attachments   int   // offset in the body
	isGeneric     bool

	// From the attachments; nil if absent.
	attachedPath, attachedInterface, group []byte
}

// Names of attachments.
const (
	attachmentInterface = "interface"
	attachmentPath      = "path"
)

// Method names and argument types of generic calls, whose first argument is the called method.
const (
	genericMethod      = "$invoke"
	genericMethodAsync = "$invokeAsync"
	genericTypes       = "Ljava/lang/String;[Ljava/lang/String;[Ljava/lang/Object;"
)

var errTypes = errors.New("malformed type descriptor of the arguments (JVM specification 4.3.2)")

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

// readHead consumes the body up to the arguments, and returns their number.
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

// countTypes returns the number of types in a descriptor (JVM specification 4.3.2).
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

// applyAttachment stores the value of an attachment that providers use. An attachment overrides the
// value in the body.
func (c *call) applyAttachment(e *hessian.Entry) {
	if e.Value == nil && e.Kind != hessian.Null {
		return
	}
	switch string(e.Key) {
	case attachmentInterface:
		c.attachedInterface = e.Value
	case attachmentPath:
		c.attachedPath = e.Value
	case xprotocol.FieldVersion:
		c.version.text = e.Value
	case xprotocol.FieldGroup:
		c.group = e.Value
	}
}

// service returns the called interface: the attachment "interface" or "path", or otherwise the path
// of the body.
func (c *call) service() []byte {
	switch {
	case len(c.attachedInterface) > 0:
		return c.attachedInterface
	case len(c.attachedPath) > 0:
		return c.attachedPath
	default:
		return c.path.text
	}
}

// isAmbiguous reports whether a provider may interpret the request as another call than the fields
// of the header describe. Providers look up the service by the path of the attachment or the body,
// not by the interface. Old providers treat a call of a generic method as generic with any declared
// types. A path with a context ("shop/org.example.Shop") is not ambiguous.
func (c *call) isAmbiguous() bool {
	service := c.service()
	for _, path := range [...][]byte{c.attachedPath, c.path.text} {
		if context, ok := bytes.CutSuffix(path, service); len(path) > 0 && (!ok || len(context) > 0 && context[len(context)-1] != '/') {
			return true
		}
	}
	return string(c.method.text) == genericMethod || string(c.method.text) == genericMethodAsync
}

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

// unsafeString returns b as a string that shares its memory. The string is valid only until b is
// changed or reused. This is the package's only unsafe code; it saves an allocation for each string
// of a frame.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
