package bolt

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Names of header entries.
const (
	keyService = "service"                  // written by applications that use only the library, and by SOFARPC
	keyTarget  = "sofa_head_target_service" // written by SOFARPC; takes precedence over keyService
	keyMethod  = "sofa_head_method_name"
	keyGroup   = "group" // only written when a filter sets the field
)

var (
	errChecksum = errors.New("checksum mismatch: the frame was corrupted in transit")
	errHeader   = errors.New("a header entry extends past the end of the header")
)

// ReadRequest implements xprotocol.Messages. The service is the value in the header, unchanged:
// "name:version" or "name:version:unique id" for SOFARPC. The authority is only its name, so that
// one domain covers all versions; the version is also a field. A request whose header has no
// service and no method has the path "/"; then only the content identifies the call.
func (c Codec) ReadRequest(frame []byte, r *protocol.Request, v *xprotocol.FrameView) error {
	if !c.checksumValid(frame) {
		return protocol.Faultf(protocol.MalformedRequest, "bolt: request: %w", errChecksum)
	}
	r.OneWay = frame[c.typeOffset] == typeOneWay
	r.Serialization = serialization(frame[c.serializationOffset])
	header, content := c.split(frame)
	checksum := c.checksumSize(frame)
	v.ContentOffset, v.TrailerLen = content, int32(checksum)
	r.ContentLength = int64(len(frame) - content - checksum)
	v.Timeout, v.Ambiguous = 0, false
	if ms := c.timeout(frame); ms > 0 {
		v.Timeout = time.Duration(ms) * time.Millisecond
	}
	routing, ok := readRoutingNames(header)
	if !ok {
		return protocol.Faultf(protocol.MalformedRequest, "bolt: request: %w", errHeader)
	}
	h := &r.Header
	addNonEmpty(h, xprotocol.FieldService, routing.service)
	addNonEmpty(h, xprotocol.FieldMethod, routing.method)
	addNonEmpty(h, xprotocol.FieldVersion, versionOf(routing.service))
	addNonEmpty(h, xprotocol.FieldGroup, routing.group)
	addEntries(h, header, true)
	r.Authority, _, _ = strings.Cut(routing.service, ":")
	v.Text = append(append(v.Text[:0], '/'), routing.service...)
	if routing.service != "" || routing.method != "" {
		v.Text = append(append(v.Text, '/'), routing.method...)
	}
	r.Path = unsafeString(v.Text)
	h.MarkUnchanged()
	return nil
}

// ReadResponse implements xprotocol.Messages.
func (c Codec) ReadResponse(frame []byte, r *protocol.Response, v *xprotocol.FrameView) error {
	if !c.checksumValid(frame) {
		return protocol.Faultf(protocol.UpstreamMalformed, "bolt: response: %w", errChecksum)
	}
	header, content := c.split(frame)
	if !addEntries(&r.Header, header, false) {
		return protocol.Faultf(protocol.UpstreamMalformed, "bolt: response: %w", errHeader)
	}
	r.Code = c.status(frame)
	r.Status = httpStatus(r.Code)
	checksum := c.checksumSize(frame)
	v.ContentOffset, v.TrailerLen = content, int32(checksum)
	r.ContentLength = int64(len(frame) - content - checksum)
	r.Header.MarkUnchanged()
	return nil
}

// split returns the header of a complete frame and the offset of its content.
func (c Codec) split(frame []byte) (header []byte, content int) {
	class, size, _ := c.lengths(frame)
	start := c.headSize(frame) + class
	return frame[start : start+size : start+size], start + size
}

// routingNames are the values of the routing fields in a header.
type routingNames struct{ service, method, group string }

// readRoutingNames reads the routing names in a complete header. ok is false if an entry extends
// past the end of the header.
func readRoutingNames(header []byte) (s routingNames, ok bool) {
	target := ""
	for len(header) > 0 {
		key, ok := textSize(header)
		if !ok {
			return s, false
		}
		value, ok := textSize(header[key:])
		if !ok {
			return s, false
		}
		text := header[key+4 : key+value]
		switch string(header[4:key]) {
		case keyService:
			s.service = unsafeString(text)
		case keyTarget:
			target = unsafeString(text)
		case keyMethod:
			s.method = unsafeString(text)
		case keyGroup:
			s.group = unsafeString(text)
		}
		header = header[key+value:]
	}
	if target != "" {
		s.service = target
	}
	return s, true
}

// entry is a key and its value. Either may be null, which differs from empty.
type entry struct {
	key, value         string
	nullKey, nullValue bool
	bytes              []byte // as on the wire
}

// next stores the first entry of a header in e and returns the rest.
func (e *entry) next(header []byte) (rest []byte, ok bool) {
	key, ok := textSize(header)
	if !ok {
		return nil, false
	}
	e.key, e.nullKey = decodeText(header[:key])
	value, ok := textSize(header[key:])
	if !ok {
		return nil, false
	}
	e.value, e.nullValue = decodeText(header[key : key+value])
	e.bytes = header[:key+value]
	return header[key+value:], true
}

// textSize returns the encoded size of the first text in b, or false if b is truncated.
func textSize(b []byte) (size int, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	if n == -1 {
		return 4, true
	}
	return 4 + n, n >= 0 && n <= len(b)-4
}

// decodeText decodes a text that textSize has measured. A length of -1 is null.
func decodeText(b []byte) (s string, null bool) { return unsafeString(b[4:]), b[0] > 0x7f }

// isField reports whether filters see an entry under its name. Filters do not see an entry whose
// name is null, nor, in a request, an entry with the name of a routing field.
func (e *entry) isField(inRequest bool) bool {
	return !e.nullKey && !(inRequest && isRouting(e.key))
}

func isRouting(name string) bool {
	switch len(name) {
	case len(xprotocol.FieldGroup):
		return protocol.EqualFold(name, xprotocol.FieldGroup)
	case len(xprotocol.FieldMethod):
		return protocol.EqualFold(name, xprotocol.FieldMethod)
	case len(xprotocol.FieldService):
		return protocol.EqualFold(name, xprotocol.FieldService) || protocol.EqualFold(name, xprotocol.FieldVersion)
	}
	return false
}

// addEntries adds the entries of a header that are fields. It returns false if an entry extends
// past the end of the header.
func addEntries(h *protocol.Header, header []byte, inRequest bool) bool {
	var e entry
	for len(header) > 0 {
		rest, ok := e.next(header)
		if !ok {
			return false
		}
		if e.isField(inRequest) {
			h.Add(e.key, e.value)
		}
		header = rest
	}
	return true
}

func addNonEmpty(h *protocol.Header, name, value string) {
	if value != "" {
		h.Add(name, value)
	}
}

func versionOf(service string) string {
	_, rest, _ := strings.Cut(service, ":")
	version, _, _ := strings.Cut(rest, ":")
	return version
}

// withVersion returns service with another version; "" removes the version.
func withVersion(service, version string) string {
	name, rest, _ := strings.Cut(service, ":")
	_, unique, hasUnique := strings.Cut(rest, ":")
	switch {
	case hasUnique:
		return name + ":" + version + ":" + unique
	case version == "":
		return name
	}
	return name + ":" + version
}

func serialization(code byte) string {
	switch code {
	case 0:
		return "hessian"
	case 1:
		return "hessian2"
	case 11:
		return "protobuf"
	case 12:
		return "json"
	}
	return strconv.Itoa(int(code))
}

// Statuses of responses.
const (
	statusSuccess          = 0
	statusNoProcessor      = 6
	statusBusy             = 4
	statusTimeout          = 7
	statusConnectionClosed = 16
)

func httpStatus(status int) int {
	switch status {
	case statusSuccess:
		return 200
	case statusNoProcessor:
		return 404
	case statusBusy:
		return 503
	case statusTimeout:
		return 504
	case statusConnectionClosed:
		return 502
	}
	return 500
}

// unsafeString returns b as a string that shares its memory. The string is valid only until b is
// changed or reused. This is the package's only unsafe code; it saves an allocation for each string
// of a frame.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
