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

// memo returns a frame of the example protocol with the ID 7. fields are alternating names and values.
func memo(kind byte, timeout uint32, content string, fields ...string) []byte {
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
func textOf(frame []byte) string { return string(frame[len(memo('=', 0, "")):]) }

// suite returns the suite of the example. The test of the example verifies the views.
func suite() *Suite {
	huge := memo('?', 0, "")
	binary.BigEndian.PutUint32(huge[16:], math.MaxUint32)
	s := &Suite{
		Oversize: []Head{{Bytes: huge, Size: len(huge) + math.MaxUint32}},
		Code:     func(t *protocol.ReasonSpec) int { return t.GRPC },

		FaultText: func(fault []byte) (string, error) { return textOf(fault), nil },
	}
	for name, frame := range map[string][]byte{
		"request": memo('?', 3000, "hello", "service", "S", "method", "m", "version", "1", "group", "g", "k", "v"),
		"one-way": memo('!', 0, "hello", "service", "S", "method", "m"),
		"answer":  memo('=', 0, "hello", "k", "v"),
		"ping":    memo('p', 0, ""),
		"goodbye": memo('G', 0, ""),
	} {
		s.Frames = append(s.Frames, Frame{Name: name, Bytes: frame, View: View(example.Codec{}, frame)})
	}
	slices.SortFunc(s.Frames, func(a, b Frame) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// failed returns the names of the checks that fail for c, with their messages.
func failed(t *testing.T, c xprotocol.Codec, s *Suite) map[string][]string {
	all := map[string][]string{}
	for _, k := range checks() {
		r := &recorder{TB: t}
		k.apply(r, c, s)
		if len(r.failures) > 0 {
			all[k.name] = r.failures
		}
	}
	return all
}

func TestValidCodecPasses(t *testing.T) {
	for name, failures := range failed(t, example.Codec{}, suite()) {
		t.Errorf("%s:\n%s", name, strings.Join(failures, "\n"))
	}
}

// TestChecksFindDefects verifies that each check finds its defects, and that each check has a defect.
func TestChecksFindDefects(t *testing.T) {
	found := map[string]bool{}
	for _, d := range slices.Concat(framingDefects(), readingDefects(), appendingDefects(), signalDefects()) {
		t.Run(d.name, func(t *testing.T) {
			found[d.check] = true
			all := failed(t, d.codec, suite())
			if len(all[d.check]) == 0 {
				t.Errorf("%q passes it", d.check)
			}
		})
	}
	for _, k := range checks() {
		if !found[k.name] {
			t.Errorf("no defect is found by %q", k.name)
		}
	}
}

// TestIncompleteSuiteFails verifies that an incomplete suite fails.
func TestIncompleteSuiteFails(t *testing.T) {
	for name, change := range map[string]func(s *Suite){
		"no frames":      func(s *Suite) { s.Frames = nil },
		"no name":        func(s *Suite) { s.Frames[0].Name = "" },
		"a name twice":   func(s *Suite) { s.Frames[0].Name = s.Frames[1].Name },
		"no code":        func(s *Suite) { s.Code = nil },
		"no large frame": func(s *Suite) { s.Oversize = nil },
		"nothing changes": func(s *Suite) {
			for i := range s.Frames {
				s.Frames[i].Fixed = true
			}
		},
	} {
		s := suite()
		change(s)
		if len(failed(t, example.Codec{}, s)["the suite is complete"]) == 0 {
			t.Errorf("%s: it is complete", name)
		}
	}
}

// TestSuiteIsComparedWithCodec verifies that wrong statements of a suite fail.
func TestSuiteIsComparedWithCodec(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Suite)
		check  string
	}{
		"another view":              {func(s *Suite) { s.Frames[0].View += "more" }, "frames parse"},
		"fields that are fixed":     {func(s *Suite) { s.Frames[4].Fixed = true }, "changed requests arrive"},
		"fixed fields of an answer": {func(s *Suite) { s.Frames[0].Fixed = true }, "changed responses arrive"},
		"a checksum that is wrong":  {func(s *Suite) { s.Intact = func([]byte) bool { return false } }, "only the id changes with the id"},
		"content that changes": {func(s *Suite) {
			s.Content = func(frame []byte, _ *xprotocol.FrameView) []byte { return frame }
		}, "changed requests arrive"},
		"a text that is cut short": {func(s *Suite) {
			s.FaultText = func(fault []byte) (string, error) { return strings.TrimSuffix(textOf(fault), "»"), nil }
		}, "faults become responses"},
		"a text that cannot be decoded": {func(s *Suite) {
			s.FaultText = func([]byte) (string, error) { return "", errors.New("no text") }
		}, "faults become responses"},
		"another authority":                  {func(s *Suite) { s.Authority = strings.ToUpper }, "routing fields arrive"},
		"a foreign protocol that is its own": {func(s *Suite) { s.Foreign = [][]byte{memo('?', 0, "")} }, "foreign bytes are rejected"},
		"another code":                       {func(s *Suite) { s.Code = func(*protocol.ReasonSpec) int { return 99 } }, "faults become responses"},
	} {
		s := suite()
		c.change(s)
		if len(failed(t, example.Codec{}, s)[c.check]) == 0 {
			t.Errorf("%s: %q passes", name, c.check)
		}
	}
}

// TestFixedFramePasses covers a frame that is marked as unchangeable.
func TestFixedFramePasses(t *testing.T) {
	s := suite()
	foreign := Frame{Name: "foreign", Bytes: memo('?', 0, "x", "service", "fixed", "method", "m"), Fixed: true}
	foreign.View = View(example.Codec{}, foreign.Bytes)
	s.Frames = append(s.Frames, foreign)
	c := broken{appendRequest: func(out, frame []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
		if h.Changed() && bytes.Equal(frame, foreign.Bytes) {
			return out[:len(before)], protocol.Faultf(protocol.NotImplemented, "foreign")
		}
		return out, nil
	}}
	for name, failures := range failed(t, c, s) {
		t.Errorf("%s:\n%s", name, strings.Join(failures, "\n"))
	}
}

// TestSuiteExceptions verifies that fields listed in Telling are not changed, and that a Rare frame may
// allocate.
func TestSuiteExceptions(t *testing.T) {
	s := suite()
	s.Telling = []string{"k"}
	for i := range s.Frames {
		s.Frames[i].Rare = true
	}
	c := broken{
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
	for name, failures := range failed(t, c, s) {
		t.Errorf("%s:\n%s", name, strings.Join(failures, "\n"))
	}
	for _, check := range []string{"changed requests arrive", "the hot path does not allocate"} {
		if len(failed(t, c, suite())[check]) == 0 {
			t.Errorf("%q passes without leave", check)
		}
	}
}

// TestView verifies that a view includes errors.
func TestView(t *testing.T) {
	newer := broken{next: func(_ []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) { f.Kind = 77; return f, err }}
	for _, c := range []struct {
		name  string
		codec xprotocol.Codec
		frame []byte
		want  string
	}{
		{"a pong", example.Codec{}, memo('P', 0, ""), "heartbeat ack 7 of 20 bytes\n"},
		{"an ignored frame", example.Codec{}, memo('x', 0, ""), "ignored frame 7 of 20 bytes\n"},
		{"an unknown kind", newer, memo('x', 0, ""), "frame of unknown kind 77 7 of 20 bytes\n"},
		{"no frame", example.Codec{}, []byte("GET /"), "error: memo: invalid magic number\n"},
		{"a request that is malformed", example.Codec{}, memo('?', 0, ""), "request 7 of 20 bytes\nerror: malformed request: memo: missing service or method\n"},
		{"an answer that is malformed", example.Codec{}, memo('=', 0, "", "alone"), "response 7 of 29 bytes\nerror: malformed upstream response: memo: a field extends past the end of the fields\n"},
	} {
		if got := View(c.codec, c.frame); got != c.want {
			t.Errorf("%s: View = %q, want %q", c.name, got, c.want)
		}
	}
}
