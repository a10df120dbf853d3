package codectest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// change is a change of a message's fields by a filter. mayFail: the codec may return an error,
// because the protocol may have no space for the change.
type change struct {
	name    string
	apply   func(h *protocol.Header)
	mayFail bool
}

// changes returns the changes of fields other than routing fields that every codec must support.
func (s *Suite) changes() []change {
	add := func(name, value string) func(h *protocol.Header) {
		return func(h *protocol.Header) { h.Add(name, value) }
	}
	return []change{
		{name: "add", apply: add("x-weft", "1")},
		{name: "add unicode", apply: add("x-wëft-\U0001f600", "grün 织 \U0001f9f5")},
		{name: "add an empty value", apply: add("x-empty", "")},
		{name: "add a value of 300 bytes", apply: add("x-long", strings.Repeat("x", 300))},
		{name: "add a value of 100,000 bytes", apply: add("x-long", strings.Repeat("ü", 50_000)), mayFail: true},
		{name: "add three", apply: func(h *protocol.Header) { h.Add("a", "1"); h.Add("b", "2"); h.Add("c", "") }},
		{name: "add and remove", apply: func(h *protocol.Header) { h.Add("x-weft", "1"); h.Del("x-weft") }},
		{name: "set", apply: s.changeField(func(h *protocol.Header, name string) { h.Set(name, "set") })},
		{name: "set to a longer value", apply: s.changeField(func(h *protocol.Header, name string) { h.Set(name, strings.Repeat("long ", 100)) })},
		{name: "set to an empty value", apply: s.changeField(func(h *protocol.Header, name string) { h.Set(name, "") })},
		{name: "remove", apply: s.changeField(func(h *protocol.Header, name string) { h.Del(name) })},
		{name: "remove and add", apply: s.changeField(func(h *protocol.Header, name string) { h.Del(name); h.Add(name, "added") })},
	}
}

// changeField returns a change of the last field that is neither a routing field nor in
// SpecialFields, or of a new field if there is none.
func (s *Suite) changeField(f func(h *protocol.Header, name string)) func(h *protocol.Header) {
	return func(h *protocol.Header) {
		name := ""
		for field := range h.All() {
			if routingIndex(field) == len(routingOrder) && !slices.Contains(s.SpecialFields, field) {
				name = strings.Clone(field)
			}
		}
		if name == "" {
			name = "x-first"
			h.Add(name, "1")
		}
		f(h, name)
	}
}

// checkRequestChanges checks that changed fields of requests can be read back.
func checkRequestChanges(tb testing.TB, c xprotocol.Codec, s *Suite) {
	checkChanges(tb, c, s, isRequest)
}

// checkResponseChanges checks that changed fields of responses can be read back.
func checkResponseChanges(tb testing.TB, c xprotocol.Codec, s *Suite) {
	checkChanges(tb, c, s, func(k xprotocol.Kind) bool { return k == xprotocol.Response })
}

func checkChanges(tb testing.TB, c xprotocol.Codec, s *Suite, matches func(xprotocol.Kind) bool) {
	for _, f := range s.Frames {
		head, _ := c.ParseFrame(f.Bytes)
		if !matches(head.Kind) {
			continue
		}
		for _, change := range s.changes() {
			name := f.Name + ", " + change.name
			sent, received, ok := roundTrip(tb, c, s, name, &f, change)
			if !ok {
				continue
			}
			want, got := sent.header(head.Kind), received.header(head.Kind)
			if sortedFieldsText(got) != sortedFieldsText(want) {
				tb.Errorf("%s: fields received as %s\nwant %s", name, sortedFieldsText(got), sortedFieldsText(want))
			}
			if a, b := sent.status(), received.status(); a != b {
				tb.Errorf("%s: status received as %v, want %v", name, b, a)
			}
		}
	}
}

// sortedFieldsText returns the fields on one line, sorted by name: codecs need not keep the order
// of fields with different names.
func sortedFieldsText(h *protocol.Header) string {
	fields := make([]protocol.Field, h.Len())
	for i := range fields {
		fields[i] = *h.At(i)
	}
	slices.SortStableFunc(fields, func(a, b protocol.Field) int { return strings.Compare(a.Name, b.Name) })
	var sorted protocol.Header
	for _, f := range fields {
		sorted.Add(f.Name, f.Value)
	}
	return fieldsText(&sorted)
}

// status holds the values of a message other than its fields and its body.
type status struct {
	authority, path, serialization string
	oneWay                         bool
	status, code                   int
	timeout                        time.Duration
}

func (m *message) status() status {
	req, resp := &m.request, &m.response
	return status{req.Authority, req.Path, req.Serialization, req.OneWay, resp.Status, resp.Code, m.view.Timeout}
}

// roundTrip reads a frame, changes it, appends it and reads it again. ok is false if there is
// nothing to compare: the frame cannot be changed, or roundTrip has reported an error.
func roundTrip(tb testing.TB, c xprotocol.Codec, s *Suite, name string, f *Frame, change change) (sent, received *message, ok bool) {
	head, _ := c.ParseFrame(f.Bytes)
	sent, received = new(message), new(message)
	if err := read(c, sent, f.Bytes); err != nil {
		tb.Errorf("%s: the frame cannot be read: %v", name, err)
		return nil, nil, false
	}
	content := s.content(f.Bytes, &sent.view)
	change.apply(sent.header(head.Kind))
	out, err := sent.append(c, head.Kind, f.Bytes)
	if f.Unchangeable || err != nil && change.mayFail {
		checkRejected(tb, name, f, head.Kind, out, err)
		return nil, nil, false
	}
	frame, found := bytes.CutPrefix(out, []byte(bufferPrefix))
	if err != nil || !found {
		tb.Errorf("%s: encoded as %x, %v, want a frame after %q", name, out, err, bufferPrefix)
		return nil, nil, false
	}
	reparsed, err := c.ParseFrame(frame)
	if want := (xprotocol.Frame{Kind: head.Kind, ID: head.ID, Size: len(frame)}); err != nil || reparsed != want {
		tb.Errorf("%s: encoded frame parses as %+v, %v, want %+v", name, reparsed, err, want)
		return nil, nil, false
	}
	c.SetID(frame, head.ID) // as an engine does; afterwards the checksum must be correct
	checkChecksum(tb, s, name, frame)
	if err := read(c, received, frame); err != nil {
		tb.Errorf("%s: the encoded frame cannot be read: %v: %x", name, err, frame)
		return nil, nil, false
	}
	if got := s.content(frame, &received.view); !bytes.Equal(got, content) {
		tb.Errorf("%s: content received as %x, want %x", name, got, content)
	}
	return sent, received, true
}

// checkRejected checks that a change that a frame does not allow returns a Fault and appends
// nothing. A response may also stay unchanged.
func checkRejected(tb testing.TB, name string, f *Frame, k xprotocol.Kind, out []byte, err error) {
	var fault *protocol.Fault
	switch {
	case err == nil && k == xprotocol.Response && string(out) == bufferPrefix+string(f.Bytes):
	case err == nil:
		tb.Errorf("%s: a frame that cannot be changed is encoded as %x, want a Fault", name, out)
	case !errors.As(err, &fault):
		tb.Errorf("%s: error %v, want a Fault", name, err)
	case string(out) != bufferPrefix:
		tb.Errorf("%s: encoded as %x with the error %v, want dst unchanged", name, out, err)
	}
}

// content returns the part of a frame that a change of fields must not change.
func (s *Suite) content(frame []byte, v *xprotocol.FrameView) []byte {
	if s.Content != nil {
		return s.Content(frame, v)
	}
	return frame[v.ContentOffset : len(frame)-int(v.TrailerLen)]
}

// checkRouting checks that a changed service, method, version or group can be read back. Other
// fields may change with the routing field, so they are not compared.
func checkRouting(tb testing.TB, c xprotocol.Codec, s *Suite) {
	routing := s.RoutingFields
	if routing == nil {
		routing = routingOrder
	}
	for _, f := range s.Frames {
		if head, _ := c.ParseFrame(f.Bytes); !isRequest(head.Kind) {
			continue
		}
		for _, field := range routing {
			for _, change := range []change{
				{name: field + " is set", apply: func(h *protocol.Header) { h.Set(field, "org.weft.Sét") }},
				{name: field + " is removed", apply: func(h *protocol.Header) { h.Set(field, "x"); h.Del(field) }},
			} {
				if routingIndex(field) < 2 && strings.HasSuffix(change.name, "removed") {
					continue // a request needs a service and a method
				}
				checkRouted(tb, c, s, &f, change)
			}
		}
	}
}

func checkRouted(tb testing.TB, c xprotocol.Codec, s *Suite, f *Frame, change change) {
	name := f.Name + ", " + change.name
	sent, received, ok := roundTrip(tb, c, s, name, f, change)
	if !ok {
		return
	}
	h := &received.request.Header
	for _, field := range routingOrder {
		if slices.Contains(s.DerivedFields, field) {
			continue
		}
		want, hasWant := sent.request.Header.Lookup(field)
		if got, has := h.Lookup(field); got != want || has != hasWant {
			tb.Errorf("%s: %s received as %q, want %q", name, field, got, want)
		}
	}
	service, method := h.Get(xprotocol.FieldService), h.Get(xprotocol.FieldMethod)
	path := "/" + service + "/" + method
	if service == "" && method == "" {
		path = "/" // service and method are unknown
	}
	authority := service
	if s.Authority != nil {
		authority = s.Authority(service)
	}
	if received.request.Path != path || received.request.Authority != authority {
		tb.Errorf("%s: received with the path %q and the authority %q, want %q and %q", name, received.request.Path, received.request.Authority, path, authority)
	}
	checkRoutingOrder(tb, name, h)
}

// checkTimeouts checks that the host gets the client's remaining time, and never more than the
// client declared.
func checkTimeouts(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		if head, _ := c.ParseFrame(f.Bytes); !isRequest(head.Kind) {
			continue
		}
		var m message
		if err := m.readRequest(c, f.Bytes); err != nil {
			tb.Errorf("%s: the frame cannot be read: %v", f.Name, err)
			continue
		}
		declared := m.view.Timeout
		for _, remaining := range slices.Compact([]time.Duration{0, 1, 3 * time.Millisecond, declared / 3, declared / 2, declared, declared + 1, 10 * declared}) {
			checkTimeout(tb, c, s, &f, &m, remaining)
		}
		if f.Unchangeable {
			continue
		}
		m.request.Header.Add("x-weft", "1")
		for _, remaining := range []time.Duration{0, 3 * time.Millisecond, declared / 2, declared, 2 * declared} {
			checkTimeout(tb, c, s, &f, &m, remaining)
		}
	}
}

// checkTimeout checks that m, which was read from f, is appended with the correct timeout.
func checkTimeout(tb testing.TB, c xprotocol.Codec, s *Suite, f *Frame, m *message, remaining time.Duration) {
	declared := m.view.Timeout
	out, err := c.AppendRequest([]byte(bufferPrefix), f.Bytes, &m.request, &m.view, remaining)
	frame, found := bytes.CutPrefix(out, []byte(bufferPrefix))
	if err != nil || !found {
		tb.Errorf("%s with a remaining time of %v is encoded as %x, %v, want a frame after %q", f.Name, remaining, out, err, bufferPrefix)
		return
	}
	head, _ := c.ParseFrame(f.Bytes)
	c.SetID(frame, head.ID) // updates the checksum, as in roundTrip
	checkChecksum(tb, s, f.Name, frame)
	lower := remaining > 0 && remaining < declared
	if !lower && !m.request.Header.Changed() && !bytes.Equal(frame, f.Bytes) {
		tb.Errorf("%s, which declares %v, is encoded with a remaining time of %v as %x\nwant %x", f.Name, declared, remaining, frame, f.Bytes)
	}
	var reread message
	if err := reread.readRequest(c, frame); err != nil {
		tb.Errorf("%s with a remaining time of %v cannot be read again: %v", f.Name, remaining, err)
		return
	}
	got := reread.view.Timeout
	switch limit := max(remaining, time.Millisecond); {
	case !lower && got != declared:
		tb.Errorf("%s declares %v with a remaining time of %v, want %v", f.Name, got, remaining, declared)
	case lower && (got <= 0 || got > limit):
		tb.Errorf("%s, which declares %v, declares %v with a remaining time of %v, want more than 0 and at most %v", f.Name, declared, got, remaining, limit)
	}
}
