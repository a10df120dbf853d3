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
	keyService = "service"                  // of users of the bare library, and of SOFARPC too
	keyTarget  = "sofa_head_target_service" // SOFARPC's; goes before the other
	keyMethod  = "sofa_head_method_name"
	keyGroup   = "group" // of nobody but who sets the field
)

var (
	errChecksum = errors.New("the checksum is wrong: the frame was damaged on its way")
	errHeader   = errors.New("an entry of the header reaches beyond it")
)

// ReadRequest is xprotocol.Messages's. The service is what the header says, as it
// is: "name:version" or "name:version:unique id" of SOFARPC. Its name alone is the
// authority, so that a domain stands for all its versions, and its version is a
// field as well. A request whose header names no service has the path "/": what is
// called is in the content then.
func (c Codec) ReadRequest(frame []byte, r *protocol.Request, v *xprotocol.FrameView) error {
	if !c.intact(frame) {
		return protocol.Faultf(protocol.MalformedRequest, "bolt: request: %w", errChecksum)
	}
	r.OneWay = frame[c.typeAt] == typeOneWay
	r.Serialization = serialization(frame[c.serializationAt])
	header, content := c.split(frame)
	checksum := c.checksumSize(frame)
	v.ContentOffset, v.TrailerLen = content, int32(checksum)
	r.ContentLength = int64(len(frame) - content - checksum)
	v.Timeout, v.Ambiguous = 0, false
	if ms := c.timeout(frame); ms > 0 {
		v.Timeout = time.Duration(ms) * time.Millisecond
	}
	said, ok := read(header)
	if !ok {
		return protocol.Faultf(protocol.MalformedRequest, "bolt: request: %w", errHeader)
	}
	h := &r.Header
	add(h, xprotocol.FieldService, said.service)
	add(h, xprotocol.FieldMethod, said.method)
	add(h, xprotocol.FieldVersion, versionOf(said.service))
	add(h, xprotocol.FieldGroup, said.group)
	addEntries(h, header, true)
	r.Authority, _, _ = strings.Cut(said.service, ":")
	v.Text = append(append(v.Text[:0], '/'), said.service...)
	if said.service != "" || said.method != "" {
		v.Text = append(append(v.Text, '/'), said.method...)
	}
	r.Path = view(v.Text)
	h.MarkUnchanged()
	return nil
}

// ReadResponse is xprotocol.Messages's.
func (c Codec) ReadResponse(frame []byte, r *protocol.Response, v *xprotocol.FrameView) error {
	if !c.intact(frame) {
		return protocol.Faultf(protocol.UpstreamMalformed, "bolt: answer: %w", errChecksum)
	}
	header, content := c.split(frame)
	if !addEntries(&r.Header, header, false) {
		return protocol.Faultf(protocol.UpstreamMalformed, "bolt: answer: %w", errHeader)
	}
	r.Code = c.status(frame)
	r.Status = httpStatus(r.Code)
	checksum := c.checksumSize(frame)
	v.ContentOffset, v.TrailerLen = content, int32(checksum)
	r.ContentLength = int64(len(frame) - content - checksum)
	r.Header.MarkUnchanged()
	return nil
}

// split returns the header of a whole frame, and where its content begins.
func (c Codec) split(frame []byte) (header []byte, content int) {
	class, size, _ := c.lengths(frame)
	at := c.head(frame) + class
	return frame[at : at+size : at+size], at + size
}

// names are what a header says of where a request is to go.
type names struct{ service, method, group string }

// read reads what a whole header says of that, or returns false if an entry reaches
// beyond it.
func read(header []byte) (s names, ok bool) {
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
			s.service = view(text)
		case keyTarget:
			target = view(text)
		case keyMethod:
			s.method = view(text)
		case keyGroup:
			s.group = view(text)
		}
		header = header[key+value:]
	}
	if target != "" {
		s.service = target
	}
	return s, true
}

// entry is a key and its value. Either may be null, which is not the same as
// empty.
type entry struct {
	key, value         string
	nullKey, nullValue bool
	bytes              []byte // as on the wire
}

// next stores the entry that a header begins with in e, and returns what is behind it.
func (e *entry) next(header []byte) (rest []byte, ok bool) {
	key, ok := textSize(header)
	if !ok {
		return nil, false
	}
	e.key, e.nullKey = textOf(header[:key])
	value, ok := textSize(header[key:])
	if !ok {
		return nil, false
	}
	e.value, e.nullValue = textOf(header[key : key+value])
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

// textOf decodes a text of textSize bytes. A length of -1 is null.
func textOf(b []byte) (s string, null bool) { return view(b[4:]), b[0] > 0x7f }

// isField reports whether filters see an entry by its own name: not if it has
// none, or in a request one that a routing field has.
func (e *entry) isField(ofRequest bool) bool {
	return !e.nullKey && !(ofRequest && isRouting(e.key))
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

// addEntries adds the entries of a header that are fields, up to one that reaches beyond
// it: false.
func addEntries(h *protocol.Header, header []byte, ofRequest bool) bool {
	var e entry
	for len(header) > 0 {
		rest, ok := e.next(header)
		if !ok {
			return false
		}
		if e.isField(ofRequest) {
			h.Add(e.key, e.value)
		}
		header = rest
	}
	return true
}

func add(h *protocol.Header, name, value string) {
	if value != "" {
		h.Add(name, value)
	}
}

// versionOf returns the version that a SOFARPC service has in its name.
func versionOf(service string) string {
	_, rest, _ := strings.Cut(service, ":")
	version, _, _ := strings.Cut(rest, ":")
	return version
}

// withVersion returns service with another version; "" takes it away.
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

// serialization names the ways in which content is written; others have a number.
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

// Statuses of answers.
const (
	statusSuccess          = 0
	statusNoProcessor      = 6
	statusBusy             = 4
	statusTimeout          = 7
	statusConnectionClosed = 16
)

// httpStatus is the HTTP view of a status.
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

// view returns b's bytes as a string that shares them: it is valid, and
// constant, only as long as the bytes are neither changed nor reused. This is
// the package's only unsafe code; what is read of a frame costs no allocation for
// it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
