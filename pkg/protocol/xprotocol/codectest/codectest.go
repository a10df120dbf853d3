// Package codectest provides the tests that every xprotocol.Codec must pass. A Suite describes the
// tested protocol.
//
// The files: codectest.go (Suite, Run and View), framing.go, messages.go, change.go and
// controlframes.go (the checks, grouped like the interfaces of package xprotocol), allocs.go
// (allocations), fuzz.go.
package codectest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Suite describes a protocol to the tests.
type Suite struct {
	// Frames are golden frames: complete, well-formed, and preferably written by another
	// implementation. At least one is a request and one a response whose fields can be changed.
	// There should be one of each kind that peers send, and one with a timeout if the protocol has
	// timeouts.
	Frames []Frame

	// OversizeHeads are heads that declare a frame size above every limit. At least one.
	OversizeHeads []Head

	// ForeignStarts are the first bytes of connections of other protocols, in addition to those
	// that this package tests: HTTP, TLS, PROXY, Dubbo, Bolt, noise.
	ForeignStarts [][]byte

	// Code returns the Response.Code of the error response for a reason.
	Code func(t *protocol.ReasonSpec) int

	// ErrorText decodes the error text of a complete error response from each position where a peer
	// expects it. nil: the checks search the response for the bytes of the text, which finds only a
	// text that is contiguous.
	ErrorText func(response []byte) (string, error)

	// RoutingFields are the fields among "service", "method", "version" and "group" that every
	// request can contain; nil: all four. The tests set them, and remove version and group, in
	// every request whose fields can be changed.
	RoutingFields []string

	// DerivedFields are routing fields that are a part of another routing field and change with it,
	// such as the version in a Bolt service.
	DerivedFields []string

	// Authority returns the Request.Authority for a value of the service field; nil: the service
	// itself.
	Authority func(service string) string

	// SpecialFields are other fields with a meaning for the codec: fields that repeat a routing
	// field, and timeouts. The tests change them only through the routing field or the remaining
	// argument of AppendRequest.
	SpecialFields []string

	// Content returns the part of a frame that a change of fields must not change: the arguments or
	// the result. nil: the bytes from FrameView.ContentOffset up to the trailer. The checks call
	// Content only for frames that the codec has read.
	Content func(frame []byte, v *xprotocol.FrameView) []byte

	// ChecksumValid reports whether a frame's checksum, of at most 4 bytes, is correct; nil if the
	// protocol has none. Every frame that the codec appends must have a correct checksum; changed
	// requests and responses only after SetID.
	ChecksumValid func(frame []byte) bool
}

// Frame is a golden frame.
type Frame struct {
	Name  string // unique in the suite
	Bytes []byte
	// View is the expected result of the function View; white space around lines does not matter. A
	// failed check prints the actual view.
	View string
	// Unchangeable: the fields cannot be changed, because the body has an unknown serialization. A
	// change of a request is then a Fault; a response may also stay unchanged.
	Unchangeable bool
	// MayAllocate: reading the frame may allocate, because it is unusual.
	MayAllocate bool
}

// Head is the beginning of a frame, of at least Traits.FrameHeaderLen bytes, and the size that it
// declares.
type Head struct {
	Bytes []byte
	Size  int
}

// check tests one rule of the contract.
type check struct {
	name string
	run  func(tb testing.TB, c xprotocol.Codec, s *Suite)
}

func checks() []check {
	return []check{
		{"the suite is complete", checkSuite},
		{"first bytes match", checkMatch},
		{"foreign bytes are rejected", checkForeign},
		{"a frame parses the same at every split", checkSplits},
		{"the size is the declared size", checkOversize},
		{"only the id changes with the id", checkSetID},
		{"frames parse", checkViews},
		{"reading sets the fields that engines use", checkReading},
		{"truncated and malformed frames are errors", checkMalformed},
		{"unchanged frames are forwarded unchanged", checkUnchanged},
		{"changed requests arrive", checkRequestChanges},
		{"changed responses arrive", checkResponseChanges},
		{"routing fields arrive", checkRouting},
		{"timeouts are lowered and never raised", checkTimeouts},
		{"error responses express the reason", checkErrorResponses},
		{"heartbeats are acknowledged", checkHeartbeats},
		{"GOAWAY is recognized", checkGoAway},
		{"the hot path does not allocate", checkAllocations},
	}
}

// Run tests c, with a subtest for each check. The codec's package calls it from a test.
func Run(t *testing.T, c xprotocol.Codec, s Suite) {
	for _, chk := range checks() {
		t.Run(chk.name, func(t *testing.T) { chk.apply(t, c, &s) })
	}
}

// apply runs a check. If the codec panics, the check fails.
func (chk *check) apply(tb testing.TB, c xprotocol.Codec, s *Suite) {
	tb.Helper()
	defer func() {
		if p := recover(); p != nil {
			tb.Errorf("panic: %v", p)
		}
	}()
	chk.run(tb, c, s)
}

// checkSuite checks that the suite is complete, because the other checks depend on it.
func checkSuite(tb testing.TB, c xprotocol.Codec, s *Suite) {
	t := c.Traits()
	if t == nil || t != c.Traits() {
		tb.Errorf("Traits = %p, then %p, want the same pointer", t, c.Traits())
		return
	}
	if t.Name == "" || t.Version == "" || t.MaxID == 0 || t.FrameHeaderLen <= 0 {
		tb.Errorf("Traits = %+v: a required field is empty", *t)
	}
	if s.Code == nil {
		tb.Errorf("Suite.Code is nil")
	}
	if len(s.OversizeHeads) == 0 {
		tb.Errorf("Suite.OversizeHeads is empty")
	}
	names := map[string]bool{}
	changeable := map[xprotocol.Kind]int{}
	for _, f := range s.Frames {
		if f.Name == "" || names[f.Name] {
			tb.Errorf("frame name %q is empty or not unique", f.Name)
		}
		names[f.Name] = true
		if head, _ := c.ParseFrame(f.Bytes); !f.Unchangeable {
			changeable[head.Kind]++
		}
	}
	for _, kind := range []xprotocol.Kind{xprotocol.Request, xprotocol.Response} {
		if changeable[kind] == 0 {
			tb.Errorf("Suite.Frames has no %s whose fields can be changed", kindName(kind))
		}
	}
}

// View returns the values that c reads from a complete frame as text: kind, id and size, and for
// requests and responses one line for each value. The text includes errors.
func View(c xprotocol.Codec, frame []byte) string {
	var b strings.Builder
	head, err := c.ParseFrame(frame)
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	fmt.Fprintf(&b, "%s %d of %d bytes\n", kindName(head.Kind), head.ID, head.Size)
	var m message
	switch head.Kind {
	case xprotocol.Request, xprotocol.OneWay:
		if err := m.readRequest(c, frame); err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			break
		}
		r := &m.request
		fmt.Fprintf(&b, "authority %s\npath %s\n", r.Authority, r.Path)
		writeLine(&b, "serialization", r.Serialization)
		if m.view.Timeout != 0 {
			writeLine(&b, "timeout", m.view.Timeout.String())
		}
		fmt.Fprintf(&b, "content %d bytes\n", r.ContentLength)
		writeFields(&b, &r.Header)
	case xprotocol.Response:
		if err := m.readResponse(c, frame); err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			break
		}
		r := &m.response
		fmt.Fprintf(&b, "status %d, code %d\ncontent %d bytes\n", r.Status, r.Code, r.ContentLength)
		writeFields(&b, &r.Header)
	default: // other kinds have only a head
	}
	return b.String()
}

func writeLine(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s %s\n", name, value)
	}
}

func writeFields(b *strings.Builder, h *protocol.Header) {
	for name, value := range h.All() {
		fmt.Fprintf(b, "  %s: %s\n", name, value)
	}
}

func kindName(k xprotocol.Kind) string {
	switch k {
	case xprotocol.Request:
		return "request"
	case xprotocol.OneWay:
		return "one-way request"
	case xprotocol.Response:
		return "response"
	case xprotocol.Heartbeat:
		return "heartbeat"
	case xprotocol.HeartbeatAck:
		return "heartbeat ack"
	case xprotocol.GoAway:
		return "GOAWAY"
	case xprotocol.Ignored:
		return "ignored frame"
	default:
		return fmt.Sprintf("frame of unknown kind %d", k)
	}
}

// message holds a request or a response with its view.
type message struct {
	request  protocol.Request
	response protocol.Response
	view     xprotocol.FrameView
}

// readRequest resets and fills m.request, as an engine does.
func (m *message) readRequest(c xprotocol.Codec, frame []byte) error {
	h := m.request.Header
	h.Reset()
	m.request = protocol.Request{Message: protocol.Message{Header: h}}
	return c.ReadRequest(frame, &m.request, m.resetView())
}

func (m *message) readResponse(c xprotocol.Codec, frame []byte) error {
	h := m.response.Header
	h.Reset()
	m.response = protocol.Response{Code: protocol.NoCode, Message: protocol.Message{Header: h}}
	err := c.ReadResponse(frame, &m.response, m.resetView())
	m.response.Header.Len() // loads deferred fields
	m.view.DeferredFields = nil
	return err
}

// resetView resets and returns the view; it keeps the storage of Text.
func (m *message) resetView() *xprotocol.FrameView {
	m.view = xprotocol.FrameView{Text: m.view.Text[:0]}
	return &m.view
}

// isRequest reports whether ReadRequest reads frames of a kind.
func isRequest(k xprotocol.Kind) bool { return k == xprotocol.Request || k == xprotocol.OneWay }
