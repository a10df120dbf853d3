package detect

import (
	"bytes"
	"strings"
)

// Protocols of plaintext connections: the ALPN names of HTTP/1 (RFC 7301 6), and the Upgrade token
// of HTTP/2 (RFC 7540 3.1).
const (
	HTTP10 = "http/1.0"
	HTTP11 = "http/1.1"
	H2C    = "h2c"
)

// MaxRequestLine is the number of bytes after which HTTP stops waiting for the end of the request
// line.
const MaxRequestLine = 16 << 10

// preface is the start of the HTTP/2 connection preface (RFC 9113 3.4), long enough to distinguish
// it from an HTTP/1 request.
const preface = "PRI * HTTP/2.0\r\n"

// HTTP returns the version of HTTP of a plaintext connection that begins with b, or "" if it is not
// HTTP. If final is false, more bytes may change the result.
func HTTP(b []byte) (protocol string, final bool) {
	if strings.HasPrefix(preface, string(b[:min(len(b), len(preface))])) {
		if len(b) >= len(preface) {
			return H2C, true
		}
		return "", false
	}
	line := bytes.TrimLeft(b, "\r\n") // servers should ignore empty lines before a request (RFC 9112 2.2)
	end := bytes.IndexByte(line, '\n')
	if end < 0 {
		return "", len(b) > MaxRequestLine || !isRequestPrefix(line)
	}
	line = bytes.TrimSuffix(line[:end], []byte("\r"))
	if !isRequestPrefix(line) {
		return "", true
	}
	_, target, _ := bytes.Cut(line, []byte(" "))
	space := bytes.LastIndexByte(target, ' ')
	if space < 1 {
		return "", true
	}
	switch version := string(target[space+1:]); {
	case version == "HTTP/1.0":
		return HTTP10, true
	case len(version) == len("HTTP/1.1") && strings.HasPrefix(version, "HTTP/1.") && version[7] >= '1' && version[7] <= '9':
		return HTTP11, true // clients of later minor versions also support 1.1 (RFC 9110 2.5)
	}
	return "", true
}

// isRequestPrefix reports whether line begins with a method and a space, or is a prefix of such a
// line (RFC 9112 3.1).
func isRequestPrefix(line []byte) bool {
	for i, c := range line {
		if c == ' ' {
			return i > 0
		}
		if !isTokenByte(c) {
			return false
		}
	}
	return true
}

// isTokenByte reports whether c is allowed in a token (RFC 9110 5.6.2).
func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
