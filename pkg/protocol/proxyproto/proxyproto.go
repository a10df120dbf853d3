// Package proxyproto owns the syntax of the PROXY protocol, versions 1 and 2: the
// header by which a proxy says, before the first byte of a connection, from where to
// where the connection was that it carries on. It is defined by HAProxy's
// proxy-protocol.txt, whose sections comments cite.
package proxyproto

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Header is what the beginning of a connection says.
type Header struct {
	Version int // 1 or 2
	// Local: the header names nobody, because the sender speaks for itself (LOCAL) or
	// does not tell (UNKNOWN, UNSPEC, or a transport that is no stream). The
	// connection's own addresses are meant, and the fields below are zero.
	Local bool
	// Source is who opened the connection that is carried on, Destination what it was
	// opened to.
	Source, Destination Endpoint
}

// Endpoint is one end of a connection.
type Endpoint struct {
	Address netip.AddrPort // IPv4 or IPv6; invalid for unix sockets
	Path    string         // of a unix socket; "@" begins an abstract name; "" for none
}

// Errors of Parse. Others wrap ErrMalformed.
var (
	// ErrAbsent: the bytes are not the beginning of a header.
	ErrAbsent = errors.New("no PROXY protocol header")
	// ErrMalformed: they begin as a header does, and are none.
	ErrMalformed = errors.New("malformed PROXY protocol header")
)

// MaxSize is the largest header, in bytes: one of version 2 with all of its extensions.
const MaxSize = fixedSize + 1<<16 - 1

// Parse reads the header that b begins with. n is its size in bytes; what follows
// belongs to the connection. n of 0 without an error asks for more bytes: how a header
// was split on its way changes nothing. Extensions (TLVs) of version 2 are skipped,
// checksums included. h owns its strings.
func Parse(b []byte) (h Header, n int, err error) {
	switch Version(b) {
	case 1:
		return parse1(b)
	case 2:
		return parse2(b)
	}
	return Header{}, 0, ErrAbsent
}

// Version returns the version of the header whose first bytes b begins with, which may
// yet turn out to be none; 0 if it is none for sure. b is not empty.
func Version(b []byte) int {
	switch {
	case hasPrefix(b, prefix1):
		return 1
	case hasPrefix(b, signature2):
		return 2
	}
	return 0
}

// hasPrefix reports whether b is the beginning of what starts with mark, as far as b goes.
func hasPrefix(b []byte, mark string) bool {
	n := min(len(b), len(mark))
	return string(b[:n]) == mark[:n]
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// checkFamily refuses a pair of addresses of which one is not of the family: v4, or not.
func checkFamily(source, destination netip.Addr, v4 bool) error {
	if source.Is4() != v4 || destination.Is4() != v4 {
		return malformed("the addresses do not belong to the declared family")
	}
	return nil
}

// printable reports whether nothing in s can break a line of a log.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
