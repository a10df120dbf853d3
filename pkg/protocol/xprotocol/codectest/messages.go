package codectest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// bufferPrefix is the content of the buffer to which a codec appends. The codec must keep it.
const bufferPrefix = "before"

// checkViews checks that golden frames have the views of the suite.
func checkViews(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		if got := View(c, f.Bytes); trimLines(got) != trimLines(f.View) {
			tb.Errorf("%s parses as\n%swant\n%s", f.Name, got, f.View)
		}
	}
}

// trimLines returns text without the white space around its lines, and without empty lines.
func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// checkReading checks values that View does not show, and that a reused message keeps no value of
// the previous one.
func checkReading(tb testing.TB, c xprotocol.Codec, s *Suite) {
	var reused message
	for _, f := range s.Frames {
		head, _ := c.ParseFrame(f.Bytes)
		if !isMessage(head.Kind) {
			continue
		}
		var fresh message
		if err := errors.Join(read(c, &fresh, f.Bytes), read(c, &reused, f.Bytes)); err != nil {
			tb.Errorf("%s: the frame cannot be read: %v", f.Name, err)
			continue
		}
		checkMessage(tb, c, f.Name, f.Bytes, &fresh)
		if want, got := summary(&fresh, head.Kind), summary(&reused, head.Kind); want != got {
			tb.Errorf("%s is read into a reused message as\n%s\nwant\n%s", f.Name, got, want)
		}
	}
}

func read(c xprotocol.Codec, m *message, frame []byte) error {
	if head, _ := c.ParseFrame(frame); isRequest(head.Kind) {
		return m.readRequest(c, frame)
	}
	return m.readResponse(c, frame)
}

// summary returns all values of m, a message of kind k, except the storage of the view.
func summary(m *message, k xprotocol.Kind) string {
	m.view.Text = nil
	if isRequest(k) {
		return fmt.Sprintf("%+v %+v", m.request, m.view)
	}
	return fmt.Sprintf("%+v %+v", m.response, m.view)
}

// checkMessage checks the conditions that m must meet after it was read from frame.
func checkMessage(tb testing.TB, c xprotocol.Codec, name string, frame []byte, m *message) {
	head, _ := c.ParseFrame(frame)
	msg := &m.response.Message
	if isRequest(head.Kind) {
		msg = &m.request.Message
		if m.request.OneWay != (head.Kind == xprotocol.OneWay) {
			tb.Errorf("%s: OneWay of a %s = %t, want %t", name, kindName(head.Kind), m.request.OneWay, !m.request.OneWay)
		}
		if !strings.HasPrefix(m.request.Path, "/") {
			tb.Errorf("%s: the path is %q, want one that begins with /", name, m.request.Path)
		}
		checkRoutingOrder(tb, name, &msg.Header)
	}
	if msg.Header.Changed() {
		tb.Errorf("%s: Header.Changed() = true after reading, want false", name)
	}
	if n, end := m.view.ContentOffset, len(frame)-int(m.view.TrailerLen); n < 0 || n > end || end > len(frame) || msg.ContentLength != int64(end-n) {
		tb.Errorf("%s: a frame of %d bytes has ContentLength %d at ContentOffset %d, want all bytes up to the trailer", name, len(frame), msg.ContentLength, n)
	}
	if m.view.Timeout < 0 {
		tb.Errorf("%s: the timeout is %v, want at least 0", name, m.view.Timeout)
	}
}

// routingOrder is the order of the routing fields.
//
//nolint:gochecknoglobals // a constant table
var routingOrder = []string{xprotocol.FieldService, xprotocol.FieldMethod, xprotocol.FieldVersion, xprotocol.FieldGroup}

// routingIndex returns the index of name in routingOrder, or its length if it is not a routing
// field.
func routingIndex(name string) int {
	i := slices.IndexFunc(routingOrder, func(routing string) bool { return protocol.EqualFold(name, routing) })
	if i < 0 {
		return len(routingOrder)
	}
	return i
}

// checkRoutingOrder checks that routing fields precede all others, in order and once each.
func checkRoutingOrder(tb testing.TB, name string, h *protocol.Header) {
	last := -1
	for field := range h.All() {
		index := routingIndex(field)
		if index < last || index == last && index < len(routingOrder) {
			tb.Errorf("%s: fields %s, want the routing field %q once and in order before all other fields", name, fieldsText(h), field)
			return
		}
		last = index
	}
}

func fieldsText(h *protocol.Header) string {
	var b strings.Builder
	for name, value := range h.All() {
		fmt.Fprintf(&b, "%q=%q ", name, value)
	}
	return b.String()
}

// maxChangedBytes is approximately the maximum number of bytes of a frame that are changed, one at
// a time.
const maxChangedBytes = 4096

// checkMalformed checks that malformed frames cause no panic, and that errors have the reason that
// the engine expects.
func checkMalformed(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		head, err := c.ParseFrame(f.Bytes)
		if err != nil || len(f.Bytes) < c.Traits().FrameHeaderLen {
			continue
		}
		step := 1 + len(f.Bytes)/maxChangedBytes
		for n := c.Traits().FrameHeaderLen; n < len(f.Bytes); n += step {
			checkNoPanic(tb, c, fmt.Sprintf("%s, the first %d bytes", f.Name, n), head.Kind, f.Bytes[:n])
		}
		for i := 0; i < len(f.Bytes); i += step {
			for _, value := range []byte{0x00, 0x01, 0x7f, 0x80, 0xff, f.Bytes[i] + 1, f.Bytes[i] ^ 0x40} {
				frame := bytes.Clone(f.Bytes)
				frame[i] = value
				head, err := c.ParseFrame(frame)
				if err != nil || head.Size != len(frame) {
					continue // not a complete frame
				}
				checkNoPanic(tb, c, fmt.Sprintf("%s with %#x at %d", f.Name, value, i), head.Kind, frame)
			}
		}
	}
}

// checkNoPanic calls checkForwarded and reports a panic to tb.
func checkNoPanic(tb testing.TB, c xprotocol.Codec, name string, kind xprotocol.Kind, frame []byte) {
	defer func() {
		if p := recover(); p != nil {
			tb.Errorf("%s: panic: %v: %x", name, p, frame)
		}
	}()
	checkForwarded(tb, c, name, kind, frame)
}

// checkForwarded reads and appends a frame as an engine does, and checks that a readable message is
// appended unchanged. frame may hold any bytes.
func checkForwarded(tb testing.TB, c xprotocol.Codec, name string, kind xprotocol.Kind, frame []byte) {
	var m message
	var err error
	var out []byte
	reason := protocol.MalformedRequest
	switch {
	case isRequest(kind):
		if err = m.readRequest(c, frame); err == nil {
			out, err = c.AppendRequest([]byte(bufferPrefix), frame, &m.request, &m.view, 0)
		}
	case kind == xprotocol.Response:
		reason = protocol.UpstreamMalformed
		if err = m.readResponse(c, frame); err == nil {
			out, err = c.AppendResponse([]byte(bufferPrefix), frame, &m.response, &m.view)
		}
	default:
		return
	}
	if err != nil {
		if got := protocol.ReasonOf(err); got != reason {
			tb.Errorf("%s: the error %v has the reason %v, want %v", name, err, got, reason)
		}
		return
	}
	if string(out) != bufferPrefix+string(frame) {
		tb.Errorf("%s is encoded as %x, want %q and %x", name, out, bufferPrefix, frame)
	}
}

// checkUnchanged checks that an unchanged message keeps all bytes, even after a field is set to its
// current value.
func checkUnchanged(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		head, _ := c.ParseFrame(f.Bytes)
		if !isMessage(head.Kind) {
			continue
		}
		var m message
		if err := read(c, &m, f.Bytes); err != nil {
			tb.Errorf("%s: the frame cannot be read: %v", f.Name, err)
			continue
		}
		for range 2 {
			out, err := m.append(c, head.Kind, f.Bytes)
			if err != nil || string(out) != bufferPrefix+string(f.Bytes) {
				tb.Errorf("%s is encoded as %x, %v\nwant %q and %x", f.Name, out, err, bufferPrefix, f.Bytes)
				break
			}
			if h := m.header(head.Kind); h.Len() > 0 {
				h.Set(h.At(0).Name, h.At(0).Value)
			}
		}
	}
}

func (m *message) header(k xprotocol.Kind) *protocol.Header {
	if isRequest(k) {
		return &m.request.Header
	}
	return &m.response.Header
}

// append appends m, a message of kind k that was read from frame, to bufferPrefix.
func (m *message) append(c xprotocol.Codec, k xprotocol.Kind, frame []byte) ([]byte, error) {
	if isRequest(k) {
		return c.AppendRequest([]byte(bufferPrefix), frame, &m.request, &m.view, 0)
	}
	return c.AppendResponse([]byte(bufferPrefix), frame, &m.response, &m.view)
}
