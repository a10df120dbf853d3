package http1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// largeLimits are limits that no head of the parse tests reaches.
var largeLimits = Limits{Line: 8 << 10, Head: 16 << 10, Fields: 100}

// requestText formats a parsed request, one item per line.
func requestText(req *protocol.Request, f *Framing) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s\n", req.Method, req.Path)
	writeItem(&s, "scheme", req.Scheme)
	writeItem(&s, "authority", req.Authority)
	writeItem(&s, "upgrade", req.Upgrade)
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
	if f.BecomesTunnel {
		s.WriteString(", tunnel")
	}
	if f.HTTP2Settings != "" {
		fmt.Fprintf(s, ", HTTP2-Settings %s", f.HTTP2Settings)
	}
	if f.AcceptsTrailers {
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

func writeItem(s *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(s, "%s %s\n", name, value)
	}
}

// lines joins the lines of a head and adds its empty line.
func lines(line ...string) string { return strings.Join(line, "\r\n") + "\r\n\r\n" }

// getHead returns the head of a valid GET request with fields.
func getHead(fields ...string) string {
	return lines(append([]string{"GET / HTTP/1.1", "Host: a"}, fields...)...)
}

// postHead returns the head of a valid POST request with fields.
func postHead(fields ...string) string {
	return lines(append([]string{"POST / HTTP/1.1", "Host: a"}, fields...)...)
}

// outcome is the result of parsing an input, as text, so that tests can compare results.
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

func parseRequestOnce(head []byte, lim Limits) outcome {
	var req protocol.Request
	var f Framing
	n, err := ParseRequest(head, lim, &req, &f)
	result := outcome{n: n, err: errorText(err)}
	if n > 0 {
		result.text = requestText(&req, &f)
	}
	return result
}

// parseRequestTwice parses the first split bytes of a request head, and then, if they are
// incomplete, all bytes.
func parseRequestTwice(head []byte, split int, lim Limits) outcome {
	if result := parseRequestOnce(head[:split:split], lim); result != (outcome{}) {
		return result
	}
	return parseRequestOnce(head, lim)
}

func parseResponseOnce(head []byte, method string, lim Limits) outcome {
	var resp protocol.Response
	var f Framing
	n, err := ParseResponse(head, lim, method, &resp, &f)
	result := outcome{n: n, err: errorText(err)}
	if n > 0 {
		result.text = responseText(&resp, &f)
	}
	return result
}

// parseResponseTwice parses a response head in two calls, like parseRequestTwice.
func parseResponseTwice(head []byte, split int, method string, lim Limits) outcome {
	if result := parseResponseOnce(head[:split:split], method, lim); result != (outcome{}) {
		return result
	}
	return parseResponseOnce(head, method, lim)
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
		t.Errorf("parsing %q: error %q, want an error that contains %q", input, err, rule)
	}
}
