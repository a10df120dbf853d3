package protocol

import (
	"net/netip"
	"strings"
)

// IsAuthority reports whether s is a host that is not empty, with an optional port and no user
// information (RFC 9110 4.2.1, 7.2; RFC 9113 8.3.1; RFC 3986 3.2.2).
func IsAuthority(s string) bool {
	_, ok := splitAuthority(s)
	return ok
}

// IsTunnelTarget reports whether s is a valid target of CONNECT: a host with a port, because
// CONNECT has no default port (RFC 9112 3.2.3; RFC 9113 8.5).
func IsTunnelTarget(s string) bool {
	port, ok := splitAuthority(s)
	return ok && len(port) > 1
}

// splitAuthority returns the port of a valid authority with its colon, or "" if it has none.
func splitAuthority(s string) (port string, ok bool) {
	n := regNameLen(s)
	if s != "" && s[0] == '[' {
		n = ipLiteralLen(s)
	}
	if n == 0 {
		return "", false
	}
	port = s[n:]
	return port, port == "" || port[0] == ':' && isPort(port[1:])
}

// regNameLen returns the length of the reg-name or IPv4 address that s starts with.
func regNameLen(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case isRegNameByte(c):
		case c == '%' && i+2 < len(s) && isHexDigit(s[i+1]) && isHexDigit(s[i+2]):
			i += 2
		default:
			return i
		}
	}
	return len(s)
}

// ipLiteralLen returns the length of the IP literal that s starts with, or 0 if s starts with none.
// It rejects zones and literals of future versions (RFC 3986 3.2.2).
func ipLiteralLen(s string) int {
	end := strings.IndexAny(s, "]%")
	if end < 0 || s[end] == '%' {
		return 0
	}
	if addr, err := netip.ParseAddr(s[1:end]); err != nil || !addr.Is6() {
		return 0
	}
	return end + 1
}

// isPort reports whether s is a port number, or empty, which RFC 3986 3.2.3 allows.
func isPort(s string) bool {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		if n = n*10 + int(s[i]-'0'); n > 65535 {
			return false
		}
	}
	return true
}

// regNameBytes has a bit for each byte below 128 that a reg-name may contain: unreserved and
// sub-delims (RFC 3986 2.2, 2.3).
//
//nolint:gochecknoglobals // a constant table
var regNameBytes = func() (bits [2]uint64) {
	const chars = "-._~!$&'()*+,;=0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for i := range len(chars) {
		bits[chars[i]/64] |= 1 << (chars[i] % 64)
	}
	return bits
}()

func isRegNameByte(c byte) bool { return c < 128 && regNameBytes[c/64]&(1<<(c%64)) != 0 }

// isHexDigit reports whether c is a HEXDIG, in either case (RFC 5234 B.1).
func isHexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}
