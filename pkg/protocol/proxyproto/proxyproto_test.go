package proxyproto

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// binaryHeader returns a version 2 header with payload.
func binaryHeader(command, family byte, payload string) string {
	return signature2 + string([]byte{command, family, byte(len(payload) >> 8), byte(len(payload))}) + payload
}

// pathField returns path, padded with zeros.
func pathField(path string) string { return path + strings.Repeat("\x00", pathSize-len(path)) }

const (
	content4 = "\xc0\x00\x02\x01\xc0\x00\x02\x02\xdc\x04\x01\xbb"
	content6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb"
)

func endpoint(s string) Endpoint { return Endpoint{Address: netip.MustParseAddrPort(s)} }

var (
	four = Header{Source: endpoint("192.0.2.1:56324"), Destination: endpoint("192.0.2.2:443")}
	six  = Header{Source: endpoint("[2001:db8::1]:56324"), Destination: endpoint("[2001:db8::2]:443")}
)

func withVersion(v int, h Header) Header {
	h.Version = v
	return h
}

// headers returns valid headers and their parsed form.
func headers() []struct {
	name, text string
	want       Header
} {
	local := Header{Local: true}
	paths := Header{Source: Endpoint{Path: "/run/a"}, Destination: Endpoint{Path: "@b"}}
	tlv := "\x04\x00\x03abc"
	return []struct {
		name, text string
		want       Header
	}{
		{"text, IPv4", "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", withVersion(1, four)},
		{"text, IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", withVersion(1, six)},
		{"text, longest IPv6", "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
			Header{Version: 1, Source: endpoint("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"), Destination: endpoint("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")}},
		{"text, unknown", "PROXY UNKNOWN\r\n", withVersion(1, local)},
		{"text, longest unknown with other data", "PROXY UNKNOWN " + strings.Repeat("x", 91) + "\r\n", withVersion(1, local)},
		{"binary, IPv4", binaryHeader(0x21, 0x11, content4), withVersion(2, four)},
		{"binary, IPv6", binaryHeader(0x21, 0x21, content6), withVersion(2, six)},
		{"binary, unix", binaryHeader(0x21, 0x31, pathField("/run/a")+pathField("\x00b")), withVersion(2, paths)},
		{"binary, unix without a name", binaryHeader(0x21, 0x31, pathField("")+pathField(strings.Repeat("p", pathSize))),
			Header{Version: 2, Destination: Endpoint{Path: strings.Repeat("p", pathSize)}}},
		{"binary, with extensions", binaryHeader(0x21, 0x11, content4+tlv), withVersion(2, four)},
		{"binary, maximum size", binaryHeader(0x21, 0x11, content4+strings.Repeat("x", 1<<16-1-size4)), withVersion(2, four)},
		{"binary, local", binaryHeader(0x20, 0x00, ""), withVersion(2, local)},
		{"binary, local with addresses", binaryHeader(0x20, 0x11, content4), withVersion(2, local)},
		{"binary, unspecified family", binaryHeader(0x21, 0x00, tlv), withVersion(2, local)},
		{"binary, datagrams", binaryHeader(0x21, 0x12, content4), withVersion(2, local)},
		{"binary, unspecified transport", binaryHeader(0x21, 0x10, content4), withVersion(2, local)},
	}
}

func TestParseSplitHeaders(t *testing.T) {
	for _, tt := range headers() {
		input := tt.text + "\nPROXY next bytes"
		h, n, err := Parse([]byte(input))
		if err != nil || n != len(tt.text) || h != tt.want {
			t.Errorf("%s: Parse = %+v, %d, %v, want %+v, %d", tt.name, h, n, err, tt.want, len(tt.text))
		}
		step := 1 + len(tt.text)/1000
		for size := 0; size < len(tt.text); size += step {
			if h, n, err := Parse([]byte(input[:size])); err != nil || n != 0 {
				t.Errorf("%s: Parse of its first %d bytes = %+v, %d, %v, want incomplete", tt.name, size, h, n, err)
			}
		}
	}
}

func TestMalformedHeadersAreRejected(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       error
	}{
		{"another protocol", "GET / HTTP/1.1\r\n", ErrAbsent},
		{"method with the same prefix", "PROPFIND / HTTP/1.1\r\n", ErrAbsent},
		{"lower case", "proxy TCP4", ErrAbsent},
		{"TLS", "\x16\x03\x01", ErrAbsent},
		{"almost the signature", "\r\n\r\n\x00\r\nQUIX", ErrAbsent},
		{"empty lines", "\r\n\r\nGET", ErrAbsent},

		{"no family", "PROXY \r\n", ErrMalformed},
		{"empty line", "PROXY \n", ErrMalformed},
		{"another family", "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n", ErrMalformed},
		{"LF without CR", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n", ErrMalformed},
		{"two spaces", "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n", ErrMalformed},
		{"trailing space", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n", ErrMalformed},
		{"too few words", "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", ErrMalformed},
		{"no words", "PROXY TCP4\r\n", ErrMalformed},
		{"IPv6 declared as IPv4", "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", ErrMalformed},
		{"IPv4 declared as IPv6", "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n", ErrMalformed},
		{"mixed families", "PROXY TCP4 192.0.2.1 2001:db8::2 1 2\r\n", ErrMalformed},
		{"zone", "PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n", ErrMalformed},
		{"leading zeros of an address", "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n", ErrMalformed},
		{"host name", "PROXY TCP4 localhost 192.0.2.2 1 2\r\n", ErrMalformed},
		{"port too large", "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n", ErrMalformed},
		{"signed port", "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n", ErrMalformed},
		{"leading zeros of a port", "PROXY TCP4 192.0.2.1 192.0.2.2 1 02\r\n", ErrMalformed},
		{"unterminated line", "PROXY UNKNOWN " + strings.Repeat("x", 93), ErrMalformed},
		{"line too long", "PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", ErrMalformed},

		{"version 1 in binary", signature2 + "\x11", ErrMalformed},
		{"version 3 in binary", signature2 + "\x31", ErrMalformed},
		{"another command", signature2 + "\x22", ErrMalformed},
		{"another family in binary", signature2 + "\x21\x41", ErrMalformed},
		{"another transport", signature2 + "\x21\x13", ErrMalformed},
		{"IPv4 addresses too short", binaryHeader(0x21, 0x11, content4[1:]), ErrMalformed},
		{"IPv6 addresses too short", binaryHeader(0x21, 0x21, content6[1:]), ErrMalformed},
		{"paths too short", binaryHeader(0x21, 0x31, pathField("/a")), ErrMalformed},
		{"path with a newline", binaryHeader(0x21, 0x31, pathField("/a\nb")+pathField("/c")), ErrMalformed},
	} {
		if h, n, err := Parse([]byte(tt.text)); !errors.Is(err, tt.want) || n != 0 || h != (Header{}) {
			t.Errorf("%s: Parse(%q) = %+v, %d, %v, want %v", tt.name, tt.text, h, n, err, tt.want)
		}
	}
}

func TestAppendParseRoundTrip(t *testing.T) {
	for _, tt := range []struct{ name, source, destination, wantSource, wantDestination string }{
		{"IPv4", "192.0.2.1:1", "192.0.2.2:65535", "", ""},
		{"IPv6", "[2001:db8::1]:1", "[::1]:2", "", ""},
		{"IPv4 in IPv6", "[::ffff:192.0.2.1]:1", "192.0.2.2:2", "192.0.2.1:1", ""},
		{"mixed families", "192.0.2.1:1", "[2001:db8::1]:2", "[::ffff:192.0.2.1]:1", ""},
		{"zone", "[fe80::1%lo]:1", "[fe80::2]:2", "[fe80::1]:1", ""},
	} {
		source, destination := netip.MustParseAddrPort(tt.source), netip.MustParseAddrPort(tt.destination)
		want := Header{Source: Endpoint{Address: source}, Destination: Endpoint{Address: destination}}
		if tt.wantSource != "" {
			want.Source = endpoint(tt.wantSource)
		}
		if tt.wantDestination != "" {
			want.Destination = endpoint(tt.wantDestination)
		}
		for i, b := range [][]byte{AppendV1(nil, source, destination), AppendV2(nil, source, destination)} {
			h, n, err := Parse(b)
			if err != nil || n != len(b) || h != withVersion(i+1, want) {
				t.Errorf("%s: Parse(%q) = %+v, %d, %v, want %+v", tt.name, b, h, n, err, withVersion(i+1, want))
			}
		}
	}
}

func TestAppendWithoutAddress(t *testing.T) {
	for i, b := range [][]byte{AppendV1(nil, four.Source.Address, netip.AddrPort{}), AppendV2(nil, netip.AddrPort{}, four.Source.Address)} {
		if h, n, err := Parse(b); err != nil || n != len(b) || h != (Header{Version: i + 1, Local: true}) {
			t.Errorf("Parse(%q) = %+v, %d, %v, want a header without addresses", b, h, n, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, h := range headers() {
		if len(h.text) < 1000 {
			f.Add([]byte(h.text))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Parse(b)
		if n < 0 || n > len(b) || n > MaxSize || err != nil && n != 0 {
			t.Fatalf("Parse(%q) = %+v, %d, %v; want n within the input and MaxSize, and 0 with an error", b, h, n, err)
		}
		if n == 0 {
			return
		}
		for size := range min(n, 300) {
			if _, m, err := Parse(b[:size]); err != nil || m != 0 {
				t.Fatalf("Parse(%q) = %d, %v; want 0, nil, because with more bytes n = %d", b[:size], m, err, n)
			}
		}
		if h.Local || !h.Source.Address.IsValid() {
			return
		}
		reparsed, _, err := Parse(AppendV2(nil, h.Source.Address, h.Destination.Address))
		want := [2]netip.Addr{h.Source.Address.Addr().Unmap(), h.Destination.Address.Addr().Unmap()}
		got := [2]netip.Addr{reparsed.Source.Address.Addr().Unmap(), reparsed.Destination.Address.Addr().Unmap()}
		if err != nil || got != want {
			t.Fatalf("Parse(%q) = %+v; AppendV2 and Parse of the result = %+v, %v; want the same addresses", b, h, reparsed, err)
		}
	})
}
