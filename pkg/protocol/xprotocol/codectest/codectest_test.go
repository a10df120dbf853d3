package codectest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest/example"
)

// recorder is a testing.TB that records failures.
type recorder struct {
	testing.TB
	failures []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// newFrame returns a frame of the example protocol with the ID 7. fields are alternating names and
// values.
func newFrame(kind byte, timeout uint32, content string, fields ...string) []byte {
	var text []byte
	for _, field := range fields {
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(field))), field...)
	}
	b := []byte{0xe5, 0x5e, kind, 0, 0, 0, 0, 7}
	b = binary.BigEndian.AppendUint32(b, timeout)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(append(b, text...), content...)
}

// textOf returns the content of a frame without fields.
func textOf(frame []byte) string { return string(frame[len(newFrame('=', 0, "")):]) }

// suite returns the suite of the example. The test of the example verifies the views.
func suite() *Suite {
	huge := newFrame('?', 0, "")
	binary.BigEndian.PutUint32(huge[16:], math.MaxUint32)
	s := &Suite{
		OversizeHeads: []Head{{Bytes: huge, Size: len(huge) + math.MaxUint32}},
		Code:          func(t *protocol.ReasonSpec) int { return t.GRPC },

		ErrorText: func(response []byte) (string, error) { return textOf(response), nil },
	}
	for name, frame := range map[string][]byte{
		"request":   newFrame('?', 3000, "hello", "service", "S", "method", "m", "version", "1", "group", "g", "k", "v"),
		"one-way":   newFrame('!', 0, "hello", "service", "S", "method", "m"),
		"response":  newFrame('=', 0, "hello", "k", "v"),
		"heartbeat": newFrame('p', 0, ""),
		"GOAWAY":    newFrame('G', 0, ""),
	} {
		s.Frames = append(s.Frames, Frame{Name: name, Bytes: frame, View: View(example.Codec{}, frame)})
	}
	slices.SortFunc(s.Frames, func(a, b Frame) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// failedChecks returns the names of the checks that fail for c, with their messages.
func failedChecks(t *testing.T, c xprotocol.Codec, s *Suite) map[string][]string {
	failures := map[string][]string{}
	for _, chk := range checks() {
		r := &recorder{TB: t}
		chk.apply(r, c, s)
		if len(r.failures) > 0 {
			failures[chk.name] = r.failures
		}
	}
	return failures
}

func TestValidCodecPasses(t *testing.T) {
	for name, failures := range failedChecks(t, example.Codec{}, suite()) {
		t.Errorf("the check %q fails, want no failure:\n%s", name, strings.Join(failures, "\n"))
	}
}

// TestChecksFindDefects verifies that each check finds its defects, and that there is a defect for
// each check.
func TestChecksFindDefects(t *testing.T) {
	found := map[string]bool{}
	for _, d := range slices.Concat(framingDefects(), readingDefects(), appendingDefects(), controlFrameDefects()) {
		t.Run(d.name, func(t *testing.T) {
			found[d.check] = true
			failures := failedChecks(t, d.codec, suite())
			if len(failures[d.check]) == 0 {
				t.Errorf("the defect passes the check %q", d.check)
			}
		})
	}
	for _, chk := range checks() {
		if !found[chk.name] {
			t.Errorf("no defect fails the check %q", chk.name)
		}
	}
}

func TestIncompleteSuiteFails(t *testing.T) {
	for name, change := range map[string]func(s *Suite){
		"no frames":        func(s *Suite) { s.Frames = nil },
		"no name":          func(s *Suite) { s.Frames[0].Name = "" },
		"duplicate name":   func(s *Suite) { s.Frames[0].Name = s.Frames[1].Name },
		"no code":          func(s *Suite) { s.Code = nil },
		"no oversize head": func(s *Suite) { s.OversizeHeads = nil },
		"no frame that can be changed": func(s *Suite) {
			for i := range s.Frames {
				s.Frames[i].Unchangeable = true
			}
		},
	} {
		s := suite()
		change(s)
		if len(failedChecks(t, example.Codec{}, s)["the suite is complete"]) == 0 {
			t.Errorf("%s: the suite passes, want a failure of the check of the suite", name)
		}
	}
}

// TestSuiteIsComparedWithCodec verifies that the checks fail for a suite that does not describe the
// codec.
func TestSuiteIsComparedWithCodec(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *Suite)
		check  string
	}{
		"wrong view":                      {func(s *Suite) { s.Frames[0].View += "more" }, "frames parse"},
		"request marked as unchangeable":  {func(s *Suite) { s.Frames[3].Unchangeable = true }, "changed requests arrive"},
		"response marked as unchangeable": {func(s *Suite) { s.Frames[4].Unchangeable = true }, "changed responses arrive"},
		"wrong checksum":                  {func(s *Suite) { s.ChecksumValid = func([]byte) bool { return false } }, "only the id changes with the id"},
		"content includes the fields": {func(s *Suite) {
			s.Content = func(frame []byte, _ *xprotocol.FrameView) []byte { return frame }
		}, "changed requests arrive"},
		"truncated error text": {func(s *Suite) {
			s.ErrorText = func(response []byte) (string, error) { return strings.TrimSuffix(textOf(response), "»"), nil }
		}, "error responses express the reason"},
		"error text that cannot be decoded": {func(s *Suite) {
			s.ErrorText = func([]byte) (string, error) { return "", errors.New("no text") }
		}, "error responses express the reason"},
		"wrong authority":               {func(s *Suite) { s.Authority = strings.ToUpper }, "routing fields arrive"},
		"foreign bytes of the protocol": {func(s *Suite) { s.ForeignStarts = [][]byte{newFrame('?', 0, "")} }, "foreign bytes are rejected"},
		"wrong code":                    {func(s *Suite) { s.Code = func(*protocol.ReasonSpec) int { return 99 } }, "error responses express the reason"},
	} {
		s := suite()
		tt.change(s)
		if len(failedChecks(t, example.Codec{}, s)[tt.check]) == 0 {
			t.Errorf("%s: the check %q passes, want a failure", name, tt.check)
		}
	}
}

// TestUnchangeableFramePasses verifies that a codec may reject changes of an Unchangeable frame.
func TestUnchangeableFramePasses(t *testing.T) {
	s := suite()
	unchangeable := Frame{Name: "foreign", Bytes: newFrame('?', 0, "x", "service", "fixed", "method", "m"), Unchangeable: true}
	unchangeable.View = View(example.Codec{}, unchangeable.Bytes)
	s.Frames = append(s.Frames, unchangeable)
	c := faultyCodec{appendRequest: func(out, frame []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
		if h.Changed() && bytes.Equal(frame, unchangeable.Bytes) {
			return out[:len(bufferPrefix)], protocol.Faultf(protocol.NotImplemented, "foreign")
		}
		return out, nil
	}}
	for name, failures := range failedChecks(t, c, s) {
		t.Errorf("the check %q fails, want no failure:\n%s", name, strings.Join(failures, "\n"))
	}
}

// TestSuiteExceptions verifies that the checks do not change fields listed in SpecialFields, and
// accept allocations for a frame with MayAllocate.
func TestSuiteExceptions(t *testing.T) {
	s := suite()
	s.SpecialFields = []string{"k"}
	for i := range s.Frames {
		s.Frames[i].MayAllocate = true
	}
	c := faultyCodec{
		readRequest: func(_ []byte, r *protocol.Request, _ *xprotocol.FrameView, err error) error {
			r.Path = strings.Clone(r.Path)
			return err
		},
		appendRequest: func(out, frame []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() && bytes.Contains(frame, []byte("group")) && h.Get("k") != "v" {
				return out, errors.New("k is changed")
			}
			return out, nil
		},
	}
	for name, failures := range failedChecks(t, c, s) {
		t.Errorf("the check %q fails, want no failure:\n%s", name, strings.Join(failures, "\n"))
	}
	for _, check := range []string{"changed requests arrive", "the hot path does not allocate"} {
		if len(failedChecks(t, c, suite())[check]) == 0 {
			t.Errorf("the check %q passes without SpecialFields and MayAllocate, want a failure", check)
		}
	}
}

// TestView verifies that a view includes errors.
func TestView(t *testing.T) {
	unknownKind := faultyCodec{parseFrame: func(_ []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) { f.Kind = 77; return f, err }}
	for _, tt := range []struct {
		name  string
		codec xprotocol.Codec
		frame []byte
		want  string
	}{
		{"heartbeat ack", example.Codec{}, newFrame('P', 0, ""), "heartbeat ack 7 of 20 bytes\n"},
		{"ignored frame", example.Codec{}, newFrame('x', 0, ""), "ignored frame 7 of 20 bytes\n"},
		{"unknown kind", unknownKind, newFrame('x', 0, ""), "frame of unknown kind 77 7 of 20 bytes\n"},
		{"other protocol", example.Codec{}, []byte("GET /"), "error: memo: invalid magic number\n"},
		{"malformed request", example.Codec{}, newFrame('?', 0, ""), "request 7 of 20 bytes\nerror: malformed request: memo: missing service or method\n"},
		{"malformed response", example.Codec{}, newFrame('=', 0, "", "alone"), "response 7 of 29 bytes\nerror: malformed upstream response: memo: a field extends past the end of the fields\n"},
	} {
		if got := View(tt.codec, tt.frame); got != tt.want {
			t.Errorf("%s: View = %q, want %q", tt.name, got, tt.want)
		}
	}
}
