// Package client has the clients of the comparison. They write raw bytes (HTTP/1.1, TCP) or raw
// frames (HTTP/2), with or without TLS, and report what they receive.
//
//	client.go  scripts and outcomes
//	http1.go   HTTP/1.1, composed or as bytes
//	http2.go   HTTP/2 with valid frames
//	frames.go  HTTP/2 with any frames
//	tcp.go     TCP
//	tls.go     TLS
package client

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// Kind is the kind of a script.
type Kind int

// The kinds of scripts.
const (
	HTTP1 Kind = iota // requests that the client composes
	Raw               // bytes, and responses of HTTP/1.1
	HTTP2
	TCP    // bytes in both directions
	Frames // frames of HTTP/2 that the script composes
)

// Placeholder is a text that the client replaces by the ID of the case.
const Placeholder = "{case}"

// Part is a piece of what a raw script sends.
type Part struct {
	Data  []byte
	Pause time.Duration // before Data
}

// Script says what a client does on one connection.
type Script struct {
	Kind Kind

	// HTTP1 and HTTP2. Method is also that of the request in Parts.
	Method, Path, Host string
	Scheme             string // HTTP2
	Version            string // HTTP1: "1.1" if empty
	Fields             []wire.Field
	Body               []byte       // nil: no body
	Trailers           []wire.Field // HTTP2
	Repeat             int          // number of requests; 0 means 1

	// Raw and TCP.
	Parts     []Part
	Responses int  // Raw: expected responses; 0 means 1
	HalfClose bool // TCP: the client closes its side after the last part

	// Frames sends frames.
	Frames func(*FrameWriter)

	TLS  *TLS                             // nil: no TLS
	Dial func(port int) (net.Conn, error) // nil: connect to 127.0.0.1

	Preface   []byte        // HTTP1: sent before the first request
	Tunnel    []byte        // HTTP1 and Raw: sent after a response that begins a tunnel
	Timeout   time.Duration // of the whole script; 0 means 4 seconds
	CloseWait time.Duration // how long the client waits for the end of the connection; 0: see closeWait
}

// Response is a response as the client received it.
type Response struct {
	// Missing means that no complete head arrived. Then Partial has the beginning of what arrived,
	// TimedOut reports that the connection was still open, and only Reset may be set.
	Missing  bool
	Partial  string
	TimedOut bool

	Version  string // of HTTP/1: "1.1"
	Status   int
	Fields   []wire.Field
	Body     []byte
	Trailers []wire.Field
	Cut      bool // the body is not complete

	Reset string // the code of RST_STREAM, or ""
}

// Outcome is what a script observed.
type Outcome struct {
	Error     string // the connect failed, or the proxy sent no HTTP/2; "" if neither
	Responses []Response
	Tunnel    *string             // what arrived in a tunnel; nil if Script.Tunnel was not sent
	Closed    bool                // the proxy closed the connection
	GoAway    string              // the code of GOAWAY, or ""
	Extra     string              // what arrived after the responses
	TLS       string              // the TLS session, or why there is none; "" without TLS
	Received  *string             // of TCP: what arrived
	Frames    map[string][]string // of Frames: what arrived on each stream
	Elapsed   time.Duration
}

// Run connects to a port of 127.0.0.1 and executes a script. id is the ID of the case.
func Run(port int, s *Script, id string) Outcome {
	begin := time.Now()
	dial := s.Dial
	if dial == nil {
		dial = dialLoopback
	}
	conn, err := dial(port)
	if err != nil {
		return Outcome{Error: "no connection"}
	}
	defer func() { _ = conn.Close() }() // the outcome is known
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 4 * time.Second
	}
	deadline := begin.Add(timeout)
	if s.TLS == nil {
		return s.run(conn, id, begin, deadline)
	}
	if len(s.Preface) > 0 {
		_, _ = conn.Write(s.Preface) // the handshake shows a failure
	}
	session, text := s.TLS.handshake(conn, deadline)
	if session == nil {
		return Outcome{TLS: text, Closed: true}
	}
	script := *s
	script.Preface = nil
	if s.Kind == HTTP1 && session.ConnectionState().NegotiatedProtocol == "h2" {
		script.Kind, script.Scheme = HTTP2, "https" // as the server has chosen
	}
	out := script.run(session, id, begin, deadline)
	out.TLS = text
	return out
}

func dialLoopback(port int) (net.Conn, error) {
	return net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), 3*time.Second)
}

// run executes a script on a connection.
func (s *Script) run(conn net.Conn, id string, begin, deadline time.Time) Outcome {
	switch s.Kind {
	case HTTP2:
		return runHTTP2(conn, s, id, begin, deadline)
	case TCP:
		return runTCP(conn, s, id, begin, deadline)
	case Frames:
		return runFrames(conn, s, id, begin, deadline)
	case HTTP1, Raw:
	}
	return runHTTP1(conn, s, id, begin, deadline)
}

func (s *Script) repeat() int    { return max(s.Repeat, 1) }
func (s *Script) responses() int { return max(s.Responses, 1) }

// closeWait returns how long the client waits for the end of the connection. It waits longer if the
// last response announces the end, so that a slow machine does not look like an open connection.
func (s *Script) closeWait(responses []Response) time.Duration {
	if s.CloseWait != 0 {
		return s.CloseWait
	}
	if n := len(responses); n > 0 {
		if connection, _ := wire.Get(responses[n-1].Fields, "connection"); strings.EqualFold(connection, "close") {
			return 300 * time.Millisecond
		}
	}
	return 60 * time.Millisecond
}

// parts returns what the client sends for one request.
func (s *Script) parts(id string) []Part {
	if s.Kind != Raw && s.Kind != TCP {
		return []Part{{Data: s.appendRequest(nil, id)}}
	}
	parts := make([]Part, 0, len(s.Parts))
	for _, p := range s.Parts {
		parts = append(parts, Part{Data: bytes.ReplaceAll(p.Data, []byte(Placeholder), []byte(id)), Pause: p.Pause})
	}
	return parts
}

// appendRequest appends an HTTP/1.1 request. It adds Host, X-Case and, if there is a body without
// framing, Content-Length.
func (s *Script) appendRequest(b []byte, id string) []byte {
	version := s.Version
	if version == "" {
		version = "1.1"
	}
	b = append(b, s.Method+" "+s.Path+" HTTP/"+version+"\r\nHost: "+s.Host+"\r\n"...)
	for _, f := range s.Fields {
		b = append(b, f.Name+": "+f.Value+"\r\n"...)
	}
	b = append(b, wire.CaseField+": "+id+"\r\n"...)
	_, hasLength := wire.Get(s.Fields, "content-length")
	_, hasCoding := wire.Get(s.Fields, "transfer-encoding")
	if s.Body != nil && !hasLength && !hasCoding {
		b = append(b, "Content-Length: "+strconv.Itoa(len(s.Body))+"\r\n"...)
	}
	return append(append(b, "\r\n"...), s.Body...)
}
