package proxyproto

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// signature2 is the start of every version 2 header. No text protocol begins with it (2.2).
const signature2 = "\r\n\r\n\x00\r\nQUIT\n"

const (
	fixedSize = 16 // the signature, version and command, family and transport, length
	pathSize  = 108

	commandLocal = 0x0
	commandProxy = 0x1

	familyUnspec = 0x0
	familyIPv4   = 0x1
	familyIPv6   = 0x2
	familyUnix   = 0x3

	transportUnspec = 0x0
	transportStream = 0x1
	transportDgram  = 0x2
)

// Sizes of the address blocks of the families in bytes (2.2).
const (
	size4    = 2*4 + 4
	size6    = 2*16 + 4
	sizeUnix = 2 * pathSize
)

// parse2 parses the binary header (2.2). It rejects undefined values. As the specification says, it
// treats transports other than a stream as UNSPEC.
func parse2(b []byte) (h Header, n int, err error) {
	if len(b) > len(signature2) {
		if v := b[12] >> 4; v != 2 {
			return Header{}, 0, malformed("unknown version %d of the binary header", v)
		}
		if c := b[12] & 0xf; c > commandProxy {
			return Header{}, 0, malformed("unknown command %d", c)
		}
	}
	if len(b) > len(signature2)+1 && (b[13]>>4 > familyUnix || b[13]&0xf > transportDgram) {
		return Header{}, 0, malformed("unknown family and transport %#02x", b[13])
	}
	if len(b) < fixedSize {
		return Header{}, 0, nil
	}
	size := int(binary.BigEndian.Uint16(b[14:]))
	h = Header{Version: 2}
	family, transport := b[13]>>4, b[13]&0xf
	if b[12]&0xf == commandLocal || family == familyUnspec || transport != transportStream {
		h.Local = true
	} else if minSize := addressSize(family); size < minSize {
		return Header{}, 0, malformed("address block of %d bytes, but the family requires %d", size, minSize)
	}
	if len(b) < fixedSize+size {
		return Header{}, 0, nil
	}
	if !h.Local {
		err = h.setAddresses(family, b[fixedSize:fixedSize+size])
	}
	if err != nil {
		return Header{}, 0, err
	}
	return h, fixedSize + size, nil
}

func addressSize(family byte) int {
	switch family {
	case familyIPv4:
		return size4
	case familyIPv6:
		return size6
	}
	return sizeUnix
}

// setAddresses sets Source and Destination from b, an address block of at least addressSize bytes.
func (h *Header) setAddresses(family byte, b []byte) error {
	if family == familyUnix {
		h.Source.Path, h.Destination.Path = unixPath(b[:pathSize]), unixPath(b[pathSize:sizeUnix])
		if !isPrintable(h.Source.Path) || !isPrintable(h.Destination.Path) {
			return malformed("control characters in a socket path")
		}
		return nil
	}
	width := (addressSize(family) - 4) / 2
	source, _ := netip.AddrFromSlice(b[:width]) // width is 4 or 16
	destination, _ := netip.AddrFromSlice(b[width : 2*width])
	ports := b[2*width:]
	h.Source.Address = netip.AddrPortFrom(source, binary.BigEndian.Uint16(ports))
	h.Destination.Address = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(ports[2:]))
	return nil
}

// unixPath returns the name in a zero-padded field. A name that begins with a zero byte is abstract
// and gets a leading "@".
func unixPath(b []byte) string {
	abstract := b[0] == 0
	if abstract {
		b = b[1:]
	}
	name, _, _ := bytes.Cut(b, []byte{0})
	if abstract && len(name) > 0 {
		return "@" + string(name)
	}
	return string(name)
}

// AppendV2 appends the header of version 2 for a connection from source to destination, as AppendV1
// does; UNSPEC takes the place of UNKNOWN.
func AppendV2(dst []byte, source, destination netip.AddrPort) []byte {
	dst = append(dst, signature2...)
	dst = append(dst, 2<<4|commandProxy)
	s, d, isIPv4, ok := sameFamily(source, destination)
	switch {
	case !ok:
		return append(dst, familyUnspec<<4|transportUnspec, 0, 0)
	case isIPv4:
		dst = append(dst, familyIPv4<<4|transportStream, 0, size4)
	default:
		dst = append(dst, familyIPv6<<4|transportStream, 0, size6)
	}
	dst = append(dst, s.AsSlice()...)
	dst = append(dst, d.AsSlice()...)
	dst = binary.BigEndian.AppendUint16(dst, source.Port())
	return binary.BigEndian.AppendUint16(dst, destination.Port())
}
