package http2

import (
	"net/netip"
	"strings"
)

// isAuthority reports whether s is a host that is not empty, with an optional
// port and no user information (RFC 9113 8.3.1; RFC 3986 3.2.2).
func isAuthority(s string) bool {
	_, ok := splitAuthority(s)
	return ok
}

// isTunnelTarget reports whether s is a host with a port, as CONNECT needs it
// (RFC 9113 8.5).
func isTunnelTarget(s string) bool {
	port, ok := splitAuthority(s)
	return ok && len(port) > 1
}

// splitAuthority returns the port of a valid authority with its colon; "" if it
// has none.
func splitAuthority(s string) (port string, ok bool) {
	n := nameLen(s)
	if s != "" && s[0] == '[' {
		n = literalLen(s)
	}
	if n == 0 {
		return "", false
	}
	port = s[n:]
	return port, port == "" || port[0] == ':' && isPort(port[1:])
}

// nameLen returns the length of the reg-name or IPv4 address that s starts with.
func nameLen(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case classes[c]&hostByte != 0:
		case c == '%' && i+2 < len(s) && classes[s[i+1]]&classes[s[i+2]]&hexByte != 0:
			i += 2
		default:
			return i
		}
	}
	return len(s)
}

// literalLen returns the length of the IPv6 literal that s starts with, 0 if it
// is none. Zones are refused.
func literalLen(s string) int {
	end := strings.IndexAny(s, "]%")
	if end < 0 || s[end] == '%' {
		return 0
	}
	if addr, err := netip.ParseAddr(s[1:end]); err != nil || !addr.Is6() {
		return 0
	}
	return end + 1
}

// isPort reports whether s is a port number, or empty, which RFC 3986 3.2.3
// allows.
func isPort(s string) bool {
	n := 0
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
		if n = n*10 + int(s[i]-'0'); n > 65535 {
			return false
		}
	}
	return true
}
