package http1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// wide has limits that no parsing test reaches.
var wide = Limits{Line: 8 << 10, Head: 16 << 10, Fields: 100}

// requestText formats a parsed request, one item per line.
func requestText(req *protocol.Request, f *Framing) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s\n", req.Method, req.Path)
	note(&s, "scheme", req.Scheme)
	note(&s, "authority", req.Authority)
	note(&s, "upgrade", req.Upgrade)
	if req.ExpectContinue {
		s.WriteString("expects continue\n")
	}
	messageText(&s, &req.Message, f)
	return s.String()
}

// responseText formats a parsed response, one item per line.
func responseText(resp *protocol.Response, f *Framing) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d\n", resp.Status)
	messageText(&s, &resp.Message, f)
	return s.String()
}

func messageText(s *strings.Builder, m *protocol.Message, f *Framing) {
	switch f.Body {
	case NoBody:
		s.WriteString("no body")
	case Length:
		fmt.Fprintf(s, "body of %d", f.Length)
	case Chunked:
		s.WriteString("chunked body")
	case UntilClose:
		s.WriteString("body until close")
	}
	if m.ContentLength >= 0 {
		fmt.Fprintf(s, ", declared %d", m.ContentLength)
	}
	if f.Minor == 0 {
		s.WriteString(", 1.0")
	}
	if f.KeepAlive {
		s.WriteString(", persists")
	}
	if f.Interim {
		s.WriteString(", interim")
	}
	if f.Upgrade {
		s.WriteString(", tunnel")
	}
	if f.HTTP2Settings != "" {
		fmt.Fprintf(s, ", goes on in HTTP/2 with %s", f.HTTP2Settings)
	}
	if f.Trailers {
		s.WriteString(", wants trailers")
	}
	s.WriteString("\n")
	s.WriteString(headerText(&m.Header))
}

func headerText(h *protocol.Header) string {
	var s strings.Builder
	for name, value := range h.All() {
		fmt.Fprintf(&s, "%s: %s\n", name, value)
	}
	return s.String()
}

func note(s *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(s, "%s %s\n", name, value)
	}
}

// lines joins the lines of a head and adds its empty line.
func lines(line ...string) string { return strings.Join(line, "\r\n") + "\r\n\r\n" }

// get returns a valid GET with more field lines.
func get(fields ...string) string {
	return lines(append([]string{"GET / HTTP/1.1", "Host: a"}, fields...)...)
}

// post returns a valid POST with more field lines.
func post(fields ...string) string {
	return lines(append([]string{"POST / HTTP/1.1", "Host: a"}, fields...)...)
}

// outcome is the result of parsing an input, as text, so that tests can compare two ways of feeding
// it.
type outcome struct {
	n    int
	text string
	err  string
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// parseWhole parses a complete request head in one call.
func parseWhole(head []byte, lim Limits) outcome {
	var req protocol.Request
	var f Framing
	n, err := ParseRequest(head, lim, &req, &f)
	o := outcome{n: n, err: errorText(err)}
	if n > 0 {
		o.text = requestText(&req, &f)
	}
	return o
}

// parsePieces parses a request head of which first come the first bytes, then
// all. A parser that said anything but "incomplete" the first time is done.
func parsePieces(head []byte, first int, lim Limits) outcome {
	if o := parseWhole(head[:first:first], lim); o != (outcome{}) {
		return o
	}
	return parseWhole(head, lim)
}

// answerWhole and answerPieces are parseWhole and parsePieces for responses.
func answerWhole(head []byte, method string, lim Limits) outcome {
	var resp protocol.Response
	var f Framing
	n, err := ParseResponse(head, lim, method, &resp, &f)
	o := outcome{n: n, err: errorText(err)}
	if n > 0 {
		o.text = responseText(&resp, &f)
	}
	return o
}

func answerPieces(head []byte, first int, method string, lim Limits) outcome {
	if o := answerWhole(head[:first:first], method, lim); o != (outcome{}) {
		return o
	}
	return answerWhole(head, method, lim)
}

// checkFault fails t unless err is a Fault of the reason with rule in its text.
func checkFault(t *testing.T, input string, err error, reason protocol.Reason, rule string) {
	t.Helper()
	if err == nil {
		t.Fatalf("parsing %q: no error, want %v: %s", input, reason, rule)
	}
	if got := protocol.ReasonOf(err); got != reason {
		t.Errorf("parsing %q: reason %v (%v), want %v", input, got, err, reason)
	}
	if !strings.Contains(err.Error(), rule) {
		t.Errorf("parsing %q: error %q, want one of %q", input, err, rule)
	}
}
