// Package proxyproto parses and appends headers of the PROXY protocol, versions 1 and 2. A proxy
// sends such a header before the first byte of a connection. The header contains the addresses of
// the original connection. Comments cite the sections of HAProxy's proxy-protocol.txt.
package proxyproto

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Header is a parsed header.
type Header struct {
	Version int // 1 or 2
	// Local means that the header has no addresses: the sender opened the connection itself
	// (LOCAL), or the addresses are not known (UNKNOWN, UNSPEC, or a transport that is not a
	// stream). The addresses of the connection apply, and the fields below are zero.
	Local bool
	// Source and Destination are the addresses of the original connection.
	Source, Destination Endpoint
}

// Endpoint is the address of one side of a connection.
type Endpoint struct {
	Address netip.AddrPort // IPv4 or IPv6; invalid for unix sockets
	Path    string         // path of a unix socket; a leading "@" means an abstract name; "" for none
}

// Errors of Parse, which returns ErrAbsent or an error that wraps ErrMalformed.
var (
	// ErrAbsent means that the bytes are not the start of a header.
	ErrAbsent = errors.New("no PROXY protocol header")
	// ErrMalformed means that the bytes begin like a header but are not a valid header.
	ErrMalformed = errors.New("malformed PROXY protocol header")
)

// MaxSize is the maximum size of a header, in bytes: version 2 with extensions.
const MaxSize = fixedSize + 1<<16 - 1

// Parse parses the header at the start of b. n is its size in bytes; the bytes after it belong to
// the connection. If n is 0 without an error, more bytes are needed. Parse skips the extensions
// (TLVs) of version 2, including checksums. h owns its strings.
func Parse(b []byte) (h Header, n int, err error) {
	switch Version(b) {
	case 1:
		return parse1(b)
	case 2:
		return parse2(b)
	}
	return Header{}, 0, ErrAbsent
}

// Version returns the version of the header that b may begin with, or 0 if b is not the start of a
// header. If b is short, more bytes may show that there is no header. b must not be empty.
func Version(b []byte) int {
	switch {
	case hasPrefix(b, prefix1):
		return 1
	case hasPrefix(b, signature2):
		return 2
	}
	return 0
}

// hasPrefix reports whether b starts with prefix, or is a prefix of prefix.
func hasPrefix(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// checkFamily returns an error unless both addresses belong to the declared family: IPv4 if isIPv4
// is set, otherwise IPv6.
func checkFamily(source, destination netip.Addr, isIPv4 bool) error {
	if source.Is4() != isIPv4 || destination.Is4() != isIPv4 {
		return malformed("the addresses do not belong to the declared family")
	}
	return nil
}

// isPrintable reports whether s has no control characters, which could break a log line.
func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
