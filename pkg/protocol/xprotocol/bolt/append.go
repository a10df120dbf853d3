package bolt

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// AppendRequest implements xprotocol.Messages. It writes a changed service into every header entry
// that has it. It does not update the checksum; SetID does, because each forwarded frame gets a new
// id.
func (c Codec) AppendRequest(dst, frame []byte, r *protocol.Request, v *xprotocol.FrameView, remaining time.Duration) ([]byte, error) {
	start := len(dst)
	if !r.Header.Changed() {
		dst = append(dst, frame...)
	} else {
		header, _ := c.split(frame)
		w, err := newRequestWriter(header, &r.Header)
		if err != nil {
			return dst, err
		}
		if dst, err = c.rewrite(dst, frame, &w); err != nil {
			return dst, err
		}
	}
	if remaining > 0 && remaining < v.Timeout {
		c.setTimeout(dst[start:], int(max(remaining.Milliseconds(), 1)))
	}
	return dst, nil
}

// AppendResponse implements xprotocol.Messages. It treats the checksum as AppendRequest does.
func (c Codec) AppendResponse(dst, frame []byte, r *protocol.Response, _ *xprotocol.FrameView) ([]byte, error) {
	if !r.Header.Changed() {
		return append(dst, frame...), nil
	}
	return c.rewrite(dst, frame, &writer{header: &r.Header})
}

// rewrite appends frame with the header that w writes, and its old checksum. On an error it returns
// dst unchanged.
func (c Codec) rewrite(dst, frame []byte, w *writer) ([]byte, error) {
	start := len(dst)
	header, contentOffset := c.split(frame)
	dst = append(dst, frame[:contentOffset-len(header)]...)
	headerStart := len(dst)
	dst = w.append(dst, header)
	n := len(dst) - headerStart
	if n > math.MaxInt16 {
		return dst[:start], protocol.Faultf(protocol.HeaderTooLarge, "bolt: a header of %d bytes; the protocol allows at most %d", n, math.MaxInt16)
	}
	dst = append(dst, frame[contentOffset:]...)
	c.setHeaderLength(dst[start:], n)
	return dst, nil
}

// newRequestWriter returns a writer that replaces the fields in a request's header with h.
func newRequestWriter(header []byte, h *protocol.Header) (writer, error) {
	old, _ := readRoutingNames(header) // ReadRequest has already validated the header
	service, method, group := h.Get(xprotocol.FieldService), h.Get(xprotocol.FieldMethod), h.Get(xprotocol.FieldGroup)
	if version := h.Get(xprotocol.FieldVersion); version != versionOf(old.service) {
		switch {
		case strings.Contains(version, ":"):
			return writer{}, protocol.Faultf(protocol.MalformedRequest, "bolt: %q is not a valid service version: it contains a colon", version)
		case service == "" && version != "":
			return writer{}, protocol.Faultf(protocol.MalformedRequest, "bolt: version %q without a service name, of which the version is a part", version)
		}
		service = withVersion(service, version)
	}
	return writer{
		header:    h,
		isRequest: true,
		service:   routingField{value: service, changed: service != old.service},
		method:    routingField{value: method, changed: method != old.method},
		group:     routingField{value: group, changed: group != old.group},
	}, nil
}

// routingField is a routing field and its state while a header is written.
type routingField struct {
	value   string
	changed bool
	written bool
}

// writer writes a header again: it keeps entries that are not fields, and appends the fields.
type writer struct {
	header *protocol.Header

	isRequest              bool // the header belongs to a request
	service, method, group routingField
}

// routingFieldOf returns the routing field of an entry name, or nil.
func (w *writer) routingFieldOf(name string) *routingField {
	if !w.isRequest {
		return nil
	}
	switch name {
	case keyService, keyTarget:
		return &w.service
	case keyMethod:
		return &w.method
	case keyGroup:
		return &w.group
	}
	return nil
}

// append appends header with the current fields.
func (w *writer) append(dst, header []byte) []byte {
	var e entry
	for rest := header; len(rest) > 0; {
		rest, _ = e.next(rest)
		if e.isField(w.isRequest) {
			continue
		}
		if r := w.routingFieldOf(e.key); r != nil && !e.nullKey && r.changed {
			dst = r.append(dst, e.key)
		} else {
			dst = append(dst, e.bytes...)
		}
	}
	for name, value := range w.header.All() {
		r := w.routingFieldOf(name)
		switch {
		case w.isRequest && isRouting(name):
		case r != nil && r.changed:
			dst = r.append(dst, name)
		case value == "" && hasNullValue(header, name):
			dst = appendNull(appendText(dst, name))
		default:
			dst = appendEntry(dst, name, value)
		}
	}
	for _, name := range [...]string{keyService, keyMethod, keyGroup} {
		if r := w.routingFieldOf(name); r != nil && r.changed && !r.written {
			dst = r.append(dst, name)
		}
	}
	return dst
}

// append appends an entry with the field's value, or nothing if the value is empty.
func (r *routingField) append(dst []byte, name string) []byte {
	r.written = true
	if r.value == "" {
		return dst
	}
	return appendEntry(dst, name, r.value)
}

func hasNullValue(header []byte, name string) bool {
	var e entry
	for len(header) > 0 {
		if header, _ = e.next(header); e.key == name {
			return e.nullValue
		}
	}
	return false
}

func appendEntry(dst []byte, key, value string) []byte {
	return appendText(appendText(dst, key), value)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

func appendNull(dst []byte) []byte { return binary.BigEndian.AppendUint32(dst, math.MaxUint32) }
