package opening

import (
	"bytes"
	"strings"
)

// What plaintext connections are found to speak: the names that ALPN has for HTTP/1
// (RFC 7301 6), and the one that HTTP/2 had in Upgrade (RFC 7540 3.1).
const (
	HTTP10 = "http/1.0"
	HTTP11 = "http/1.1"
	H2C    = "h2c"
)

// MaxRequestLine is how long a request line may be to be known as one, in bytes.
const MaxRequestLine = 16 << 10

// preface is how a connection of HTTP/2 begins (RFC 9113 3.4), as far as it takes to
// tell it from a request of HTTP/1.
const preface = "PRI * HTTP/2.0\r\n"

// HTTP looks at the beginning of a plaintext connection and returns which HTTP it
// speaks, "" for none. As long as it is not sure, more bytes may change that.
func HTTP(b []byte) (protocol string, sure bool) {
	if strings.HasPrefix(preface, string(b[:min(len(b), len(preface))])) {
		if len(b) >= len(preface) {
			return H2C, true
		}
		return "", false
	}
	line := bytes.TrimLeft(b, "\r\n") // as a server should (RFC 9112 2.2)
	end := bytes.IndexByte(line, '\n')
	if end < 0 {
		return "", len(b) > MaxRequestLine || !isRequestPrefix(line)
	}
	line = bytes.TrimSuffix(line[:end], []byte("\r"))
	if !isRequestPrefix(line) {
		return "", true
	}
	_, rest, _ := bytes.Cut(line, []byte(" "))
	at := bytes.LastIndexByte(rest, ' ')
	if at < 1 {
		return "", true
	}
	switch version := string(rest[at+1:]); {
	case version == "HTTP/1.0":
		return HTTP10, true
	case len(version) == len("HTTP/1.1") && strings.HasPrefix(version, "HTTP/1.") && version[7] >= '1' && version[7] <= '9':
		return HTTP11, true // whoever knows a later minor version speaks this one, too (RFC 9110 2.5)
	}
	return "", true
}

// isRequestPrefix reports whether line begins with a method and a space, as far as it goes
// (RFC 9112 3.1).
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

// isTokenByte reports whether c may stand in a token (RFC 9110 5.6.2).
func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
