package http1

import (
	"math"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// chunkState is the position of the next byte in the coding (RFC 9112 7.1):
//
//	   .--------------------------------------------------.
//	   v                                                  |
//	 size --> blank --> name --> extension                |
//	   |                               |                  |
//	   +---------------<---------------'                  |
//	   v  CR                                              |
//	sizeLF --> data --> dataCR --> dataLF ----------------'
//	   |
//	   '--> trailer --> end
//
// A size that is followed immediately by ";" skips blank.
type chunkState uint8

const (
	chunkSize      chunkState = iota
	chunkBlank                // after the size, before ";"
	chunkName                 // after ";", before the extension's name
	chunkExtension            // in an extension
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailer
	chunkEnd
)

// maxSizeDigits bounds the digits of a chunk size, leading zeros included.
const maxSizeDigits = 16

// ChunkReader decodes the chunked coding incrementally. The zero value is ready for a request.
type ChunkReader struct {
	// Reason is the reason of the Faults that Next returns: UpstreamMalformed for a response. The
	// zero value, ReasonNone, is for a request, whose Faults are MalformedRequest, or
	// HeaderTooLarge when a limit is exceeded.
	Reason protocol.Reason
	// ConnectionOptions is Framing.ConnectionOptions of the message's head. Next drops trailer
	// fields with these names.
	ConnectionOptions []string

	state     chunkState
	digits    int   // digits of the size read so far
	remaining int64 // bytes of the chunk that have not arrived
	excess    int64 // bytes by which extensions exceed the body so far
	consumed  int   // number of bytes consumed, for error texts
}

// Reset makes c ready for the next body. It keeps only Reason.
func (c *ChunkReader) Reset() { *c = ChunkReader{Reason: c.Reason} }

// Next consumes n bytes from the start of b, which begins with the first byte that the previous
// call did not consume. data is the body bytes among them; it borrows b and may be empty. Call Next
// until done is true; if n is 0, call it again with more bytes.
//
// done reports that Next consumed the last chunk and the trailer section; data is then empty. Next
// consumes a trailer section only when b holds all of it; lim.Head and lim.Fields bound the
// section. Next adds the fields, which borrow b, to trailer, unless trailer is nil. It drops
// ConnectionOptions, and fields that are not allowed in a trailer section (RFC 9110 6.5.1).
//
// Next skips chunk extensions, which may exceed the body by lim.Head bytes. Errors are Faults; the
// connection cannot be reused after one.
func (c *ChunkReader) Next(b []byte, lim Limits, trailer *protocol.Header) (n int, data []byte, done bool, err error) {
	n, data, v := c.next(b, lim, trailer)
	c.consumed += n
	if v == nil {
		return n, data, c.state == chunkEnd, nil
	}
	if c.Reason != protocol.ReasonNone {
		return n, nil, false, protocol.Faultf(c.Reason, "chunked body, at byte %d: %s", v.offset, v.rule)
	}
	return n, nil, false, protocol.Faultf(v.reason, "chunked body, at byte %d: %s", v.offset, v.rule)
}

func (c *ChunkReader) next(b []byte, lim Limits, trailer *protocol.Header) (n int, data []byte, v *syntaxError) {
	for n < len(b) {
		switch c.state {
		case chunkData:
			size := int(min(c.remaining, int64(len(b)-n)))
			data = b[n : n+size]
			return n + size + c.consumeData(b[n+size:], size), data, nil
		case chunkTrailer:
			size, v := c.readTrailers(b[n:], lim, trailer)
			if v != nil {
				v.offset += c.consumed + n
			}
			return n + size, nil, v
		case chunkEnd:
			return n, nil, nil
		default:
			if rule := c.step(b[n]); rule != "" {
				return n, nil, malformed(c.consumed+n, rule)
			}
			if lim.Head > 0 && c.excess > int64(lim.Head) {
				return n, nil, &syntaxError{protocol.HeaderTooLarge, c.consumed + n, "chunk extensions exceed their limit (RFC 9112 7.1.1)", nil}
			}
			n++
		}
	}
	return n, nil, nil
}

// consumeData records that size bytes of data were consumed. If rest starts with the CRLF that ends
// the chunk, it consumes the CRLF too and returns 2, and otherwise 0.
func (c *ChunkReader) consumeData(rest []byte, size int) int {
	c.remaining -= int64(size)
	c.excess = max(0, c.excess-int64(size))
	if c.remaining > 0 {
		return 0
	}
	if len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n' {
		c.state = chunkSize
		return 2
	}
	c.state = chunkDataCR
	return 0
}

// step consumes one framing byte. It returns the rule that the byte violates, or "".
func (c *ChunkReader) step(b byte) (rule string) {
	switch c.state {
	case chunkSize:
		return c.stepSize(b)
	case chunkBlank:
		c.excess++
		if b == ';' {
			c.state = chunkName
			return ""
		}
		if !isBlank(b) {
			return "whitespace after the chunk size (RFC 9112 7.1)"
		}
	case chunkName:
		c.excess++
		if isBlank(b) { // a recipient must accept whitespace here (RFC 9112 7.1.1)
			return ""
		}
		if byteClasses[b]&tokenByte == 0 {
			return "chunk extension without a name (RFC 9112 7.1.1)"
		}
		c.state = chunkExtension
	case chunkExtension:
		c.excess++
		if b == '\r' {
			c.state = chunkSizeLF
			return ""
		}
		if byteClasses[b]&valueByte == 0 {
			return "bare LF or control character in a chunk extension (RFC 9112 7.1.1)"
		}
	case chunkSizeLF:
		if b != '\n' {
			return "bare CR (RFC 9112 7.1)"
		}
		c.digits = 0
		c.state = chunkData
		if c.remaining == 0 {
			c.state = chunkTrailer
		}
	case chunkDataCR:
		if b != '\r' {
			return "chunk is longer than its size, or ends without CRLF (RFC 9112 7.1)"
		}
		c.state = chunkDataLF
	default: // chunkDataLF, because next handles the other states
		if b != '\n' {
			return "bare CR (RFC 9112 7.1)"
		}
		c.state = chunkSize
	}
	return ""
}

// stepSize is step for a byte of a chunk's size, or the byte that ends the size.
func (c *ChunkReader) stepSize(b byte) (rule string) {
	switch {
	case byteClasses[b]&hexByte != 0:
		if c.digits == maxSizeDigits || c.remaining > math.MaxInt64>>4 {
			return "chunk size overflows (RFC 9112 7.1)"
		}
		c.digits++
		c.remaining = c.remaining<<4 | int64(hexValue(b))
	case c.digits == 0:
		return "chunk size is not a hexadecimal number (RFC 9112 7.1)"
	case b == '\r':
		c.state = chunkSizeLF
	case b == ';':
		c.state = chunkName
	case isBlank(b):
		c.state = chunkBlank
	case b == '\n':
		return "bare LF (RFC 9112 7.1)"
	default:
		return "chunk size is not a hexadecimal number (RFC 9112 7.1)"
	}
	return ""
}

func hexValue(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// readTrailers consumes the trailer section at the start of b if it is complete (RFC 9112 7.1.2).
func (c *ChunkReader) readTrailers(b []byte, lim Limits, trailer *protocol.Header) (int, *syntaxError) {
	window, truncated := clip(b, 0, lim.Head, lim.Head)
	isResponse := c.Reason == protocol.UpstreamMalformed
	end := 0
	for count := 0; ; count++ {
		l, v := readFieldLine(window, end, isResponse)
		switch {
		case v != nil:
			return 0, v
		case l.next == 0 && truncated, lim.Fields > 0 && l.name != "" && count == lim.Fields:
			return 0, &syntaxError{protocol.HeaderTooLarge, end, "trailer section exceeds its limit", nil}
		case l.next == 0:
			return 0, nil
		}
		end = l.next
		if l.name == "" {
			break
		}
	}
	c.state = chunkEnd
	if trailer == nil {
		return end, nil
	}
	for i := 0; ; {
		l, _ := readFieldLine(b, i, isResponse) // the loop above has validated the line
		if l.name == "" {
			return end, nil
		}
		if allowedInTrailer(l.name) && !c.isConnectionOption(l.name) {
			trailer.Add(l.name, l.value)
		}
		i = l.next
	}
}

// isConnectionOption reports whether the Connection header of the message names the field.
func (c *ChunkReader) isConnectionOption(name string) bool {
	return slices.ContainsFunc(c.ConnectionOptions, func(n string) bool { return protocol.EqualFold(n, name) })
}

// allowedInTrailer reports whether a field is allowed in a trailer section. Fields that frame or
// route the message, authenticate, control the response or describe the body are not allowed (RFC
// 9110 6.5.1), because they take effect before the body.
func allowedInTrailer(name string) bool {
	if kindOf(name) != regularField {
		return false
	}
	const forwarded = "X-Forwarded-"
	if len(name) > len(forwarded) && protocol.EqualFold(name[:len(forwarded)], forwarded) {
		return false
	}
	for forbidden := range strings.FieldsSeq(trailerForbidden) {
		if protocol.EqualFold(name, forbidden) {
			return false
		}
	}
	return true
}

// trailerForbidden lists the regular fields that allowedInTrailer rejects.
const trailerForbidden = `
Authorization Proxy-Authorization WWW-Authenticate Proxy-Authenticate
Authentication-Info Proxy-Authentication-Info Cookie Set-Cookie
Content-Encoding Content-Type Content-Range Content-Language Content-Location
Cache-Control Pragma Age Expires Vary Warning Location Retry-After
Trailer Max-Forwards Range If-Match If-None-Match If-Modified-Since
If-Unmodified-Since If-Range Via Forwarded X-Real-IP`

// AppendChunkHead appends the size line of a chunk. size must not be zero; the caller appends the
// data and its CRLF.
func AppendChunkHead(dst []byte, size int) []byte {
	const digits = "0123456789abcdef"
	shift := 0
	for size>>shift > 0xf {
		shift += 4
	}
	for ; shift >= 0; shift -= 4 {
		dst = append(dst, digits[size>>shift&0xf])
	}
	return append(dst, '\r', '\n')
}

// AppendLastChunk appends the last chunk with a trailer section; trailer may be nil. It omits
// fields that are not allowed in a trailer section, as Next does, and writes the others as
// AppendResponse does.
func AppendLastChunk(dst []byte, trailer *protocol.Header) []byte {
	dst = append(dst, "0\r\n"...)
	if trailer != nil {
		for i := range trailer.Len() {
			if f := trailer.At(i); allowedInTrailer(f.Name) {
				dst = appendSanitized(dst, f)
			}
		}
	}
	return append(dst, '\r', '\n')
}
