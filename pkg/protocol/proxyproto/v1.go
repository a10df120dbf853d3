package proxyproto

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
)

const (
	prefix1 = "PROXY "
	// maxSize1 is the maximum size of a version 1 header, including CR LF (2.1).
	maxSize1 = 107
)

// parse1 parses the text header (2.1), whose words are separated by exactly one space:
//
//	PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n
func parse1(b []byte) (h Header, n int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxSize1)], '\n')
	switch {
	case end < 0 && len(b) >= maxSize1:
		return Header{}, 0, malformed("the line is longer than %d bytes", maxSize1)
	case end < 0:
		return Header{}, 0, nil
	case end < len(prefix1) || b[end-1] != '\r':
		return Header{}, 0, malformed("the line does not end with CR LF")
	}
	family, args, hasArgs := strings.Cut(string(b[len(prefix1):end-1]), " ")
	h = Header{Version: 1}
	switch family {
	case "UNKNOWN": // the rest of the line is ignored
		h.Local = true
		return h, end + 1, nil
	case "TCP4", "TCP6":
	default:
		return Header{}, 0, malformed("unknown family %q", family)
	}
	words := strings.Split(args, " ")
	if !hasArgs || len(words) != 4 {
		return Header{}, 0, malformed("%s requires two addresses and two ports", family)
	}
	if h.Source.Address, err = parseEndpoint1(words[0], words[2]); err != nil {
		return Header{}, 0, err
	}
	if h.Destination.Address, err = parseEndpoint1(words[1], words[3]); err != nil {
		return Header{}, 0, err
	}
	if err = checkFamily(h.Source.Address.Addr(), h.Destination.Address.Addr(), family == "TCP4"); err != nil {
		return Header{}, 0, err
	}
	return h, end + 1, nil
}

// parseEndpoint1 parses an address, which has no zone, and a port, which has no leading zeros.
func parseEndpoint1(address, port string) (netip.AddrPort, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Zone() != "" {
		return netip.AddrPort{}, malformed("%q is not a valid address", address)
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil || strconv.FormatUint(p, 10) != port {
		return netip.AddrPort{}, malformed("%q is not a valid port", port)
	}
	return netip.AddrPortFrom(ip, uint16(p)), nil
}

// AppendV1 appends the header of version 1 for a connection from source to destination. If the
// families differ, both addresses are written as IPv6. If an address is invalid, as for unix
// sockets, the header says UNKNOWN.
func AppendV1(dst []byte, source, destination netip.AddrPort) []byte {
	s, d, isIPv4, ok := sameFamily(source, destination)
	switch {
	case !ok:
		return append(dst, "PROXY UNKNOWN\r\n"...)
	case isIPv4:
		dst = append(dst, "PROXY TCP4 "...)
	default:
		dst = append(dst, "PROXY TCP6 "...)
	}
	dst = s.AppendTo(dst)
	dst = append(dst, ' ')
	dst = d.AppendTo(dst)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(source.Port()), 10)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(destination.Port()), 10)
	return append(dst, "\r\n"...)
}

// sameFamily converts two addresses to one family. ok is false if one of them is invalid.
func sameFamily(source, destination netip.AddrPort) (s, d netip.Addr, isIPv4, ok bool) {
	s, d = source.Addr().Unmap().WithZone(""), destination.Addr().Unmap().WithZone("")
	switch {
	case !s.IsValid() || !d.IsValid():
		return s, d, false, false
	case s.Is4() && d.Is4():
		return s, d, true, true
	}
	return netip.AddrFrom16(s.As16()), netip.AddrFrom16(d.As16()), false, true
}
