// Package codectest owns the kit that every xprotocol.Codec must pass. It knows
// the contract and nothing of any protocol; what it needs of one is its Suite.
//
// The files: codectest.go (what a codec is held to, and how its views look as
// text), framing.go, messages.go, change.go and signals.go (the checks, as the
// contract has them), speed.go (what may not allocate), fuzz.go.
package codectest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Suite is what the kit needs to know of a protocol.
type Suite struct {
	// Frames are golden frames: whole, well-formed, best of all written by
	// another implementation. At least one is a request and one an answer whose
	// fields can be changed; there should be one of each kind that peers send, and
	// one with a timeout if the protocol has them.
	Frames []Frame

	// Oversize are heads that declare more than a frame may have, and how much
	// that is. At least one.
	Oversize []Head

	// Foreign are first bytes of connections that do not speak the protocol,
	// beside those that the kit knows: HTTP, TLS, Dubbo, Bolt, noise.
	Foreign [][]byte

	// Code returns the Response.Code of the answer that tells of a reason.
	Code func(t *protocol.ReasonSpec) int

	// FaultText decodes the text for people that a fault, a whole frame, has, as peers
	// do, and from wherever one of them looks for it. nil: the kit looks for its bytes,
	// which finds no text that is cut short or written in pieces.
	FaultText func(fault []byte) (string, error)

	// Routing are those of the fields "service", "method", "version" and "group"
	// that every request can carry; nil: all four. They are set, and version and
	// group removed, in every request whose fields can be changed.
	Routing []string

	// Derived are those that are a part of another routing field: they follow it,
	// whatever they were.
	Derived []string

	// Authority returns the Request.Authority of a service as the field has it; nil:
	// the same text.
	Authority func(service string) string

	// Telling are the other fields that tell more than themselves: one that is
	// where a routing field is written, or a timeout. The kit changes them by the
	// routing field or AppendRequest's left only.
	Telling []string

	// Content returns what a changed frame must have as before: the arguments or
	// the result. nil: what is between View.Content and View.Trailer. Used with frames that were
	// read.
	Content func(frame []byte, v *xprotocol.FrameView) []byte

	// Intact reports whether a frame's checksum, of at most 4 bytes, is right; nil
	// if the protocol has none. All that the codec appends must be so, requests and
	// answers that were changed once SetID has given them their id.
	Intact func(frame []byte) bool
}

// Frame is a golden frame.
type Frame struct {
	Name  string // unique in the suite
	Bytes []byte
	// View is what View makes of the frame; space around it does not matter. A
	// check that fails shows it as it is.
	View string
	// Fixed: the fields cannot be changed, because the body is foreign. A change of
	// a request is a Fault then; an answer may also leave as it came.
	Fixed bool
	// Rare: it is no ordinary frame, and reading it may allocate.
	Rare bool
}

// Head is the beginning of a frame, of at least Traits.MinHead bytes, and the
// size that it declares.
type Head struct {
	Bytes []byte
	Size  int
}

// check is one promise of the contract.
type check struct {
	name string
	run  func(tb testing.TB, c xprotocol.Codec, s *Suite)
}

// checks lists all of them.
func checks() []check {
	return []check{
		{"the suite is complete", checkSuite},
		{"first bytes are matched", checkMatch},
		{"foreign bytes are refused", checkForeign},
		{"a frame is the same at every split", checkSplits},
		{"the size is as declared", checkOversize},
		{"only the id changes with the id", checkSetID},
		{"frames are read", checkViews},
		{"reading fills what engines use", checkReading},
		{"frames that are cut or broken are told of", checkDamage},
		{"untouched frames leave as they came", checkUntouched},
		{"changed requests arrive", checkRequestChanges},
		{"changed answers arrive", checkResponseChanges},
		{"routing fields arrive", checkRouting},
		{"timeouts are lowered and never raised", checkTimeouts},
		{"faults are answers", checkFaults},
		{"pings are answered", checkPings},
		{"goodbyes are recognised", checkGoAway},
		{"nothing is allocated", checkAllocations},
	}
}

// Run holds c to its contract, each promise as a subtest. The codec's package
// calls it from a test of its own.
func Run(t *testing.T, c xprotocol.Codec, s Suite) {
	for _, k := range checks() {
		t.Run(k.name, func(t *testing.T) { k.apply(t, c, &s) })
	}
}

// apply runs a check; a codec that panics fails it.
func (k *check) apply(tb testing.TB, c xprotocol.Codec, s *Suite) {
	tb.Helper()
	defer func() {
		if p := recover(); p != nil {
			tb.Errorf("panic: %v", p)
		}
	}()
	k.run(tb, c, s)
}

// checkSuite: the kit has what it needs, or the other checks are of nothing.
func checkSuite(tb testing.TB, c xprotocol.Codec, s *Suite) {
	t := c.Traits()
	if t == nil || t != c.Traits() {
		tb.Errorf("Traits = %p, then %p, want always the same", t, c.Traits())
		return
	}
	if t.Name == "" || t.Version == "" || t.MaxID == 0 || t.FrameHeaderLen <= 0 {
		tb.Errorf("Traits = %+v: something is missing", *t)
	}
	if s.Code == nil {
		tb.Errorf("Suite.Code is nil")
	}
	if len(s.Oversize) == 0 {
		tb.Errorf("Suite.Oversize is empty")
	}
	names := map[string]bool{}
	open := map[xprotocol.Kind]int{}
	for _, f := range s.Frames {
		if f.Name == "" || names[f.Name] {
			tb.Errorf("a frame is called %q, as another is", f.Name)
		}
		names[f.Name] = true
		if head, _ := c.ParseFrame(f.Bytes); !f.Fixed {
			open[head.Kind]++
		}
	}
	for _, kind := range []xprotocol.Kind{xprotocol.Request, xprotocol.Response} {
		if open[kind] == 0 {
			tb.Errorf("Suite.Frames has no %s whose fields can be changed", kindName(kind))
		}
	}
}

// View returns what c tells of a whole frame as text: kind, id and size, and of
// requests and answers all that is read of them, a line each. What cannot be
// read is told of too.
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
		line(&b, "serialization", r.Serialization)
		if m.view.Timeout != 0 {
			line(&b, "timeout", m.view.Timeout.String())
		}
		fmt.Fprintf(&b, "content %d bytes\n", r.ContentLength)
		fields(&b, &r.Header)
	case xprotocol.Response:
		if err := m.readResponse(c, frame); err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			break
		}
		r := &m.response
		fmt.Fprintf(&b, "status %d, code %d\ncontent %d bytes\n", r.Status, r.Code, r.ContentLength)
		fields(&b, &r.Header)
	default: // the head is all there is
	}
	return b.String()
}

// line writes a line about what may be missing.
func line(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s %s\n", name, value)
	}
}

func fields(b *strings.Builder, h *protocol.Header) {
	for name, value := range h.All() {
		fmt.Fprintf(b, "  %s: %s\n", name, value)
	}
}

// kindName returns a kind in words.
func kindName(k xprotocol.Kind) string {
	switch k {
	case xprotocol.Request:
		return "request"
	case xprotocol.OneWay:
		return "one-way request"
	case xprotocol.Response:
		return "answer"
	case xprotocol.Heartbeat:
		return "ping"
	case xprotocol.HeartbeatAck:
		return "pong"
	case xprotocol.GoAway:
		return "goodbye"
	case xprotocol.Ignored:
		return "ignored frame"
	default:
		return fmt.Sprintf("frame of the unknown kind %d", k)
	}
}

// message is a request or an answer with all that it needs to live.
type message struct {
	request  protocol.Request
	response protocol.Response
	view     xprotocol.FrameView
}

// readRequest fills m.request, which it empties before, as an engine does.
func (m *message) readRequest(c xprotocol.Codec, frame []byte) error {
	h := m.request.Header
	h.Reset()
	m.request = protocol.Request{Message: protocol.Message{Header: h}}
	return c.ReadRequest(frame, &m.request, m.empty())
}

// readResponse is readRequest for m.response.
func (m *message) readResponse(c xprotocol.Codec, frame []byte) error {
	h := m.response.Header
	h.Reset()
	m.response = protocol.Response{Code: protocol.NoCode, Message: protocol.Message{Header: h}}
	err := c.ReadResponse(frame, &m.response, m.empty())
	m.response.Header.Len() // fields that are read when they are asked for are read
	m.view.LazyFields = nil
	return err
}

// empty empties the view.
func (m *message) empty() *xprotocol.FrameView {
	m.view = xprotocol.FrameView{Text: m.view.Text[:0]}
	return &m.view
}

// isRequest reports whether frames of a kind are read by ReadRequest.
func isRequest(k xprotocol.Kind) bool { return k == xprotocol.Request || k == xprotocol.OneWay }
