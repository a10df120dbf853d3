package detect

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// golden returns the bytes of a file with hexadecimal digits. A # starts a comment.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// parseReads calls Parse with prefixes of b, whose lengths are reads, and then with b. It stops at
// the first result.
func parseReads(b []byte, reads ...int) (h ClientHello, done bool, err error) {
	var p HelloParser
	for _, n := range append(reads, len(b)) {
		if h, done, err = p.Parse(b[:n]); done || err != nil {
			return h, done, err
		}
	}
	return h, done, err
}

// splitRecords splits hello, a ClientHello in one record, into records of size bytes.
func splitRecords(hello []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(hello[recordHeaderLen:], size) {
		out = append(out, recordHandshake, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func equalHellos(a, b ClientHello) bool {
	return a.ServerName == b.ServerName && slices.Equal(a.Protocols, b.Protocols)
}

func hellos() map[string]ClientHello {
	return map[string]ClientHello{
		"names":         {ServerName: "shop.example", Protocols: []string{"h2", "http/1.1"}},
		"no_extensions": {},
		"no_name":       {Protocols: []string{"http/1.1"}},
		"other_names":   {ServerName: "a.example"},
	}
}

func TestParseSplitHello(t *testing.T) {
	for name, want := range hellos() {
		t.Run(name, func(t *testing.T) {
			hello := golden(t, name)
			for _, size := range []int{1, 2, 3, 4, 5, 7, 40, len(hello)} {
				b := splitRecords(hello, size)
				for split := range len(b) {
					if got, done, err := parseReads(b, split); !done || err != nil || !equalHellos(got, want) {
						t.Fatalf("records of %d bytes, split at %d: %+v, %v, %v; want %+v", size, split, got, done, err, want)
					}
				}
				splits := make([]int, len(b))
				for i := range splits {
					splits[i] = i
				}
				if got, done, err := parseReads(b, splits...); !done || err != nil || !equalHellos(got, want) {
					t.Errorf("records of %d bytes, byte by byte: %+v, %v, %v; want %+v", size, got, done, err, want)
				}
			}
		})
	}
}

func TestPartialHelloNeedsMore(t *testing.T) {
	for name := range hellos() {
		hello := splitRecords(golden(t, name), 11)
		for n := range len(hello) {
			if h, done, err := parseReads(hello[:n]); done || err != nil {
				t.Fatalf("%s: the first %d bytes: %+v, %v, %v; want an incomplete hello", name, n, h, done, err)
			}
		}
	}
}

func TestNotTLSVersusMalformed(t *testing.T) {
	hello := golden(t, "names")
	changed := func(index int, value byte) []byte {
		b := slices.Clone(hello)
		b[index] = value
		return b
	}
	huge := func(size int) []byte {
		message := append([]byte{messageClientHello, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...)
		return splitRecords(append(make([]byte, recordHeaderLen), message...), 16<<10)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want error
	}{
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), ErrNotTLS},
		{"alert", []byte{21, 3, 1, 0, 2, 1, 0}, ErrMalformed},
		{"alert of wrong length", []byte{21, 3, 1, 0, 3, 1, 0}, ErrNotTLS},
		{"SSL 2 hello", []byte{0x80, 0x2e, 1, 0, 2}, ErrNotTLS},
		{"invalid version", changed(1, 0x20), ErrNotTLS},
		{"empty record", []byte{22, 3, 1, 0, 0, 1}, ErrNotTLS},
		{"record too long", []byte{22, 3, 1, 0xff, 0xff, 1}, ErrNotTLS},
		{"another message type", changed(5, 2), ErrNotTLS},
		{"one byte", []byte("x"), ErrNotTLS},
		{"alert between two records", append(splitRecords(hello, 60)[:65], 21, 3, 1, 0, 2, 1, 0), ErrMalformed},
		{"session ID too long", changed(recordHeaderLen+messageHeaderLen+2+32, 255), ErrMalformed},
		{"message too short", splitRecords(append(make([]byte, 5), 1, 0, 0, 2, 3, 3), 6), ErrMalformed},
		{"declared length above the limit", splitRecords(append(make([]byte, 5), 1, 1, 0, 1, 3, 3), 6), ErrTooLarge},
		{"hello above the limit", huge(MaxHello - messageHeaderLen), ErrTooLarge},
		{"duplicate extension", golden(t, "bad_twice"), ErrMalformed},
		{"two server names", golden(t, "bad_two_names"), ErrMalformed},
		{"server name with trailing dot", golden(t, "bad_dot"), ErrMalformed},
		{"empty ALPN protocol", golden(t, "bad_protocol"), ErrMalformed},
		{"bytes after the extensions", golden(t, "bad_rest"), ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for index := range min(len(tt.b), 200) {
				if h, done, err := parseReads(tt.b, index); done || !errors.Is(err, tt.want) {
					t.Fatalf("split at %d: %+v, %v, %v; want %v", index, h, done, err, tt.want)
				}
			}
		})
	}
}

// TestLargeHelloTakesLinearTime verifies that the work is linear in the number of bytes, even with
// tiny records and tiny reads.
func TestLargeHelloTakesLinearTime(t *testing.T) {
	message := append([]byte{messageClientHello, 0, 0x28, 0}, make([]byte, 10<<10)...)
	b := splitRecords(append(make([]byte, recordHeaderLen), message...), 1)
	var p HelloParser
	last := 0
	for n := range len(b) {
		before := p.next
		_, done, err := p.Parse(b[:n])
		if done || err != nil {
			break
		}
		if p.next < before || p.next-before > 6 {
			t.Fatalf("Parse of %d bytes advanced from %d to %d, want at most 6 bytes", n, before, p.next)
		}
		last = p.next
	}
	if last < len(b)-20 {
		t.Errorf("Parse stopped at byte %d of %d, want at most 20 bytes before the end", last, len(b))
	}
}

// captureHello returns the ClientHello that crypto/tls sends.
func captureHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	server, client := net.Pipe()
	go func() {
		_ = tls.Client(client, config).Handshake() //nolint:noctx // it fails when the pipe closes
		_ = client.Close()
	}()
	defer server.Close()
	var header [recordHeaderLen]byte
	if _, err := io.ReadFull(server, header[:]); err != nil {
		t.Fatal(err)
	}
	record := make([]byte, recordHeaderLen+(int(header[3])<<8|int(header[4])))
	copy(record, header[:])
	if _, err := io.ReadFull(server, record[recordHeaderLen:]); err != nil {
		t.Fatal(err)
	}
	return record
}

func TestParseCryptoTLSHello(t *testing.T) {
	for _, want := range []ClientHello{
		{}, {ServerName: "a.example"}, {ServerName: "b.example", Protocols: []string{"h2", "http/1.1"}}, {Protocols: []string{"x"}},
	} {
		config := &tls.Config{ServerName: want.ServerName, NextProtos: want.Protocols, InsecureSkipVerify: true} //nolint:gosec // the test verifies no certificate
		if got, done, err := parseReads(captureHello(t, config)); !done || err != nil || !equalHellos(got, want) {
			t.Errorf("Parse = %+v, %v, %v; want %+v", got, done, err, want)
		}
	}
}

// cryptoTLSHello returns the ClientHello that crypto/tls parses from b; ok is false if crypto/tls
// rejects b.
func cryptoTLSHello(b []byte) (h ClientHello, ok bool) {
	config := &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		h, ok = ClientHello{strings.ToLower(info.ServerName), info.SupportedProtos}, true
		return nil, errors.New("the ClientHello was parsed")
	}}
	_ = tls.Server(&cannedConn{Reader: bytes.NewReader(b)}, config).HandshakeContext(context.Background())
	return h, ok
}

// cannedConn is a net.Conn that reads from a bytes.Reader and discards writes.
type cannedConn struct {
	*bytes.Reader
	net.Conn
}

func (c *cannedConn) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c *cannedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *cannedConn) Close() error                     { return nil }
func (c *cannedConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzHello verifies that Parse returns the same server name and protocols as crypto/tls, or an
// error. So Weft never selects a filter chain by another server name than the handshake has.
func FuzzHello(f *testing.F) {
	for name := range hellos() {
		f.Add(golden(f, name), uint16(9))
	}
	for _, name := range []string{"bad_twice", "bad_two_names", "bad_dot", "bad_protocol", "bad_rest"} {
		f.Add(golden(f, name), uint16(0))
	}
	f.Add(splitRecords(golden(f, "names"), 30), uint16(33))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, split uint16) {
		got, done, err := parseReads(b)
		if h, splitDone, splitErr := parseReads(b, min(int(split), len(b))); !equalHellos(h, got) || splitDone != done || !errors.Is(splitErr, err) {
			t.Fatalf("split at %d: %+v, %v, %v; want the result of one read: %+v, %v, %v", split, h, splitDone, splitErr, got, done, err)
		}
		want, ok := cryptoTLSHello(b)
		if ok && done && !equalHellos(got, want) {
			t.Errorf("Parse = %+v, but crypto/tls parses %+v", got, want)
		}
		if ok && errors.Is(err, ErrNotTLS) {
			t.Errorf("ErrNotTLS for a handshake: crypto/tls parses %+v", want)
		}
	})
}

func TestDetectHTTP(t *testing.T) {
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\n":                          HTTP11,
		"GET / HTTP/1.0\r\nHost: a\r\n\r\n":           HTTP10,
		"GET / HTTP/1.9\n":                            HTTP11,
		"\r\n\r\nPOST /a b HTTP/1.1\r\n":              HTTP11,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":            H2C,
		"PRI * HTTP/1.1\r\n":                          HTTP11,
		"PRIVATE /a HTTP/1.1\r\n":                     HTTP11,
		"GET / HTTP/2.0\r\n":                          "",
		"GET / HTTP/1.11\r\n":                         "",
		"GET /\r\n":                                   "",
		"GET  HTTP/1.1\r\n":                           "",
		"GET\r\n":                                     "",
		" / HTTP/1.1\r\n":                             "",
		"SSH-2.0-OpenSSH_9\r\n":                       "",
		"\xda\xbb\xc2\x00":                            "",
		"{\"a\":":                                     "",
		"GET /" + strings.Repeat("a", MaxRequestLine): "",
	} {
		if got, final := HTTP([]byte(text)); got != want || !final {
			t.Errorf("HTTP(%.40q) = %q, %v; want %q, true", text, got, final, want)
		}
		// No prefix may have a different final result.
		for n := range min(len(text), 100) {
			if got, final := HTTP([]byte(text[:n])); final && got != want {
				t.Errorf("HTTP(%q) = %q, true, a prefix of %q; want %q", text[:n], got, text, want)
			}
		}
	}
}

func TestPartialRequestLineNeedsMore(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "\r\nGET / HTTP/1.0\n"} {
		for n := range len(text) {
			if got, final := HTTP([]byte(text[:n])); got != "" || final {
				t.Errorf("HTTP(%q) = %q, %v; want \"\", false", text[:n], got, final)
			}
		}
	}
}

func FuzzHTTP(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint16(3))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), uint16(9))
	f.Fuzz(func(t *testing.T, b []byte, split uint16) {
		want, _ := HTTP(b)
		got, final := HTTP(b[:min(int(split), len(b))])
		if final && got != want {
			t.Errorf("HTTP(%q) = %q, true; HTTP(%q) = %q", b[:min(int(split), len(b))], got, b, want)
		}
	})
}

func BenchmarkHello(b *testing.B) {
	hello := golden(b, "names")
	b.ReportAllocs()
	for b.Loop() {
		var p HelloParser
		if _, done, err := p.Parse(hello); !done || err != nil {
			b.Fatalf("Parse: done = %v, error %v; want a complete ClientHello", done, err)
		}
	}
}
