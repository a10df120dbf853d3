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

// change is a change of a message's fields by a filter. mayFail: a protocol may have no space for
// it and return an error.
type change struct {
	name    string
	make    func(h *protocol.Header)
	mayFail bool
}

// changes returns the changes of fields other than routing fields that every protocol must carry.
func (s *Suite) changes() []change {
	add := func(name, value string) func(h *protocol.Header) {
		return func(h *protocol.Header) { h.Add(name, value) }
	}
	return []change{
		{name: "add", make: add("x-weft", "1")},
		{name: "add unicode", make: add("x-wëft-\U0001f600", "grün 织 \U0001f9f5")},
		{name: "add an empty value", make: add("x-empty", "")},
		{name: "add a value of 300 bytes", make: add("x-long", strings.Repeat("x", 300))},
		{name: "add a value of 100,000 bytes", make: add("x-long", strings.Repeat("ü", 50_000)), mayFail: true},
		{name: "add three", make: func(h *protocol.Header) { h.Add("a", "1"); h.Add("b", "2"); h.Add("c", "") }},
		{name: "add and remove", make: func(h *protocol.Header) { h.Add("x-weft", "1"); h.Del("x-weft") }},
		{name: "set", make: s.others(func(h *protocol.Header, name string) { h.Set(name, "set") })},
		{name: "set to something longer", make: s.others(func(h *protocol.Header, name string) { h.Set(name, strings.Repeat("long ", 100)) })},
		{name: "set to nothing", make: s.others(func(h *protocol.Header, name string) { h.Set(name, "") })},
		{name: "remove", make: s.others(func(h *protocol.Header, name string) { h.Del(name) })},
		{name: "remove and add", make: s.others(func(h *protocol.Header, name string) { h.Del(name); h.Add(name, "added") })},
	}
}

// others returns a change of the last field without a meaning of its own, or of a new one if there
// is none.
func (s *Suite) others(f func(h *protocol.Header, name string)) func(h *protocol.Header) {
	return func(h *protocol.Header) {
		name := ""
		for field := range h.All() {
			if place(field) == len(order) && !slices.Contains(s.Telling, field) {
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

// checkResponseChanges does the same for responses.
func checkResponseChanges(tb testing.TB, c xprotocol.Codec, s *Suite) {
	checkChanges(tb, c, s, func(k xprotocol.Kind) bool { return k == xprotocol.Response })
}

func checkChanges(tb testing.TB, c xprotocol.Codec, s *Suite, is func(xprotocol.Kind) bool) {
	for _, f := range s.Frames {
		head, _ := c.ParseFrame(f.Bytes)
		if !is(head.Kind) {
			continue
		}
		for _, change := range s.changes() {
			name := f.Name + ", " + change.name
			was, now, ok := carry(tb, c, s, name, &f, change)
			if !ok {
				continue
			}
			want, got := was.header(head.Kind), now.header(head.Kind)
			if byName(got) != byName(want) {
				tb.Errorf("%s: received with %s\nwant %s", name, byName(got), byName(want))
			}
			if a, b := was.status(), now.status(); a != b {
				tb.Errorf("%s: received as %v, want %v", name, b, a)
			}
		}
	}
}

// byName returns the fields on one line, sorted by name: codecs need not keep the order of fields
// with different names.
func byName(h *protocol.Header) string {
	all := make([]protocol.Field, h.Len())
	for i := range all {
		all[i] = *h.At(i)
	}
	slices.SortStableFunc(all, func(a, b protocol.Field) int { return strings.Compare(a.Name, b.Name) })
	var sorted protocol.Header
	for _, f := range all {
		sorted.Add(f.Name, f.Value)
	}
	return listed(&sorted)
}

// status holds the values of a message other than its fields and its body.
type status struct {
	authority, path, serialization string
	oneWay                         bool
	status, code                   int
	timeout                        time.Duration
}

func (m *message) status() status {
	q, a := &m.request, &m.response
	return status{q.Authority, q.Path, q.Serialization, q.OneWay, a.Status, a.Code, m.view.Timeout}
}

// carry reads a frame, changes it, appends it and reads it again. ok is false if there is nothing
// to compare: the frame cannot be changed, or carry has reported an error.
func carry(tb testing.TB, c xprotocol.Codec, s *Suite, name string, f *Frame, change change) (was, now *message, ok bool) {
	head, _ := c.ParseFrame(f.Bytes)
	was, now = new(message), new(message)
	if err := read(c, was, f.Bytes); err != nil {
		tb.Errorf("%s: %v", name, err)
		return nil, nil, false
	}
	content := s.content(f.Bytes, &was.view)
	change.make(was.header(head.Kind))
	out, err := was.append(c, head.Kind, f.Bytes)
	if f.Fixed || err != nil && change.mayFail {
		checkRejected(tb, name, f, head.Kind, out, err)
		return nil, nil, false
	}
	frame, found := bytes.CutPrefix(out, []byte(before))
	if err != nil || !found {
		tb.Errorf("%s: encoded as %x, %v", name, out, err)
		return nil, nil, false
	}
	again, err := c.ParseFrame(frame)
	if want := (xprotocol.Frame{Kind: head.Kind, ID: head.ID, Size: len(frame)}); err != nil || again != want {
		tb.Errorf("%s: encoded frame parses as %+v, %v, want %+v", name, again, err, want)
		return nil, nil, false
	}
	c.SetID(frame, head.ID) // as an engine does; a checksum is right from here on
	checkIntact(tb, s, name, frame)
	if err := read(c, now, frame); err != nil {
		tb.Errorf("%s: the encoded frame cannot be read: %v: %x", name, err, frame)
		return nil, nil, false
	}
	if got := s.content(frame, &now.view); !bytes.Equal(got, content) {
		tb.Errorf("%s: content received as %x, want %x", name, got, content)
	}
	return was, now, true
}

// checkRejected checks that a change that a frame cannot carry returns a Fault and appends nothing.
// A response may also stay unchanged.
func checkRejected(tb testing.TB, name string, f *Frame, k xprotocol.Kind, out []byte, err error) {
	var fault *protocol.Fault
	switch {
	case err == nil && k == xprotocol.Response && string(out) == before+string(f.Bytes):
	case err == nil:
		tb.Errorf("%s: a frame that cannot be changed is encoded as %x", name, out)
	case !errors.As(err, &fault):
		tb.Errorf("%s: %v is not a Fault", name, err)
	case string(out) != before:
		tb.Errorf("%s: with the error %v it is encoded as %x", name, err, out)
	}
}

// content returns the part of a frame that a change of fields must keep.
func (s *Suite) content(frame []byte, v *xprotocol.FrameView) []byte {
	if s.Content != nil {
		return s.Content(frame, v)
	}
	return frame[v.ContentOffset : len(frame)-int(v.TrailerLen)]
}

// checkRouting checks that a changed service, method, version or group can be read back. Other
// fields may change with them, so they are not compared.
func checkRouting(tb testing.TB, c xprotocol.Codec, s *Suite) {
	routing := s.Routing
	if routing == nil {
		routing = order
	}
	for _, f := range s.Frames {
		if head, _ := c.ParseFrame(f.Bytes); !isRequest(head.Kind) {
			continue
		}
		for _, field := range routing {
			for _, change := range []change{
				{name: field + " is set", make: func(h *protocol.Header) { h.Set(field, "org.weft.Sét") }},
				{name: field + " is removed", make: func(h *protocol.Header) { h.Set(field, "x"); h.Del(field) }},
			} {
				if place(field) < 2 && strings.HasSuffix(change.name, "removed") {
					continue // a request needs a service and a method
				}
				checkRouted(tb, c, s, &f, change)
			}
		}
	}
}

func checkRouted(tb testing.TB, c xprotocol.Codec, s *Suite, f *Frame, change change) {
	name := f.Name + ", " + change.name
	was, now, ok := carry(tb, c, s, name, f, change)
	if !ok {
		return
	}
	h := &now.request.Header
	for _, field := range order {
		if slices.Contains(s.Derived, field) {
			continue
		}
		want, hasWant := was.request.Header.Lookup(field)
		if got, has := h.Lookup(field); got != want || has != hasWant {
			tb.Errorf("%s: %s received as %q, want %q", name, field, got, want)
		}
	}
	service, method := h.Get(xprotocol.FieldService), h.Get(xprotocol.FieldMethod)
	path := "/" + service + "/" + method
	if service == "" && method == "" {
		path = "/" // what is called is not known
	}
	authority := service
	if s.Authority != nil {
		authority = s.Authority(service)
	}
	if now.request.Path != path || now.request.Authority != authority {
		tb.Errorf("%s: received at path %q for %q, want %q for %q", name, now.request.Path, now.request.Authority, path, authority)
	}
	checkFirst(tb, name, h)
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
			tb.Errorf("%s: %v", f.Name, err)
			continue
		}
		said := m.view.Timeout
		for _, left := range slices.Compact([]time.Duration{0, 1, 3 * time.Millisecond, said / 3, said / 2, said, said + 1, 10 * said}) {
			checkTimeout(tb, c, s, &f, &m, left)
		}
		if f.Fixed {
			continue
		}
		m.request.Header.Add("x-weft", "1")
		for _, left := range []time.Duration{0, 3 * time.Millisecond, said / 2, said, 2 * said} {
			checkTimeout(tb, c, s, &f, &m, left)
		}
	}
}

// checkTimeout checks that m, which was read from f, is appended with the correct timeout.
func checkTimeout(tb testing.TB, c xprotocol.Codec, s *Suite, f *Frame, m *message, left time.Duration) {
	said := m.view.Timeout
	out, err := c.AppendRequest([]byte(before), f.Bytes, &m.request, &m.view, left)
	frame, found := bytes.CutPrefix(out, []byte(before))
	if err != nil || !found {
		tb.Errorf("%s with a timeout of %v is encoded as %x, %v", f.Name, left, out, err)
		return
	}
	head, _ := c.ParseFrame(f.Bytes)
	c.SetID(frame, head.ID) // as in carry
	checkIntact(tb, s, f.Name, frame)
	lower := left > 0 && left < said
	if !lower && !m.request.Header.Changed() && !bytes.Equal(frame, f.Bytes) {
		tb.Errorf("%s, which declares %v, is encoded with a timeout of %v as %x\nreceived as %x", f.Name, said, left, frame, f.Bytes)
	}
	var again message
	if err := again.readRequest(c, frame); err != nil {
		tb.Errorf("%s with a timeout of %v cannot be read again: %v", f.Name, left, err)
		return
	}
	got := again.view.Timeout
	switch most := max(left, time.Millisecond); {
	case !lower && got != said:
		tb.Errorf("%s, which declares %v, declares %v with a timeout of %v", f.Name, said, got, left)
	case lower && (got <= 0 || got > most):
		tb.Errorf("%s, which declares %v, declares %v with a timeout of %v, want more than 0 and at most %v", f.Name, said, got, left, most)
	}
}
