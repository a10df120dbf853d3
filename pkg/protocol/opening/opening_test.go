package opening

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

// parseReads calls Parse after each read.
func parseReads(b []byte, reads ...int) (h ClientHello, done bool, err error) {
	var s HelloParser
	for _, n := range append(reads, len(b)) {
		if h, done, err = s.Parse(b[:n]); done || err != nil {
			return h, done, err
		}
	}
	return h, done, err
}

// records splits the message of a one-record hello into records of size bytes.
func records(hello []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(hello[recordHeader:], size) {
		out = append(out, recordHandshake, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func equal(a, b ClientHello) bool {
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
			whole := golden(t, name)
			for _, size := range []int{1, 2, 3, 4, 5, 7, 40, len(whole)} {
				b := records(whole, size)
				for at := range len(b) {
					if got, done, err := parseReads(b, at); !done || err != nil || !equal(got, want) {
						t.Fatalf("in records of %d, split at %d: %+v, %v, %v; want %+v", size, at, got, done, err, want)
					}
				}
				every := make([]int, len(b))
				for i := range every {
					every[i] = i
				}
				if got, done, err := parseReads(b, every...); !done || err != nil || !equal(got, want) {
					t.Errorf("in records of %d, byte by byte: %+v, %v, %v; want %+v", size, got, done, err, want)
				}
			}
		})
	}
}

func TestPartialHelloNeedsMore(t *testing.T) {
	for name := range hellos() {
		whole := records(golden(t, name), 11)
		for at := range len(whole) {
			if h, done, err := parseReads(whole[:at]); done || err != nil {
				t.Fatalf("%s: the first %d bytes: %+v, %v, %v; want need more", name, at, h, done, err)
			}
		}
	}
}

func TestNotTLSVersusMalformed(t *testing.T) {
	whole := golden(t, "names")
	changed := func(at int, to byte) []byte {
		b := slices.Clone(whole)
		b[at] = to
		return b
	}
	huge := func(size int) []byte {
		message := append([]byte{messageHello, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...)
		return records(append(make([]byte, recordHeader), message...), 16<<10)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want error
	}{
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), ErrNotTLS},
		{"an alert", []byte{21, 3, 1, 0, 2, 1, 0}, ErrMalformed},
		{"what is no alert either", []byte{21, 3, 1, 0, 3, 1, 0}, ErrNotTLS},
		{"the hello of SSL 2", []byte{0x80, 0x2e, 1, 0, 2}, ErrNotTLS},
		{"no version", changed(1, 0x20), ErrNotTLS},
		{"an empty record", []byte{22, 3, 1, 0, 0, 1}, ErrNotTLS},
		{"a record that is too long", []byte{22, 3, 1, 0xff, 0xff, 1}, ErrNotTLS},
		{"another message", changed(5, 2), ErrNotTLS},
		{"one byte of text", []byte("x"), ErrNotTLS},
		{"an alert between two records", append(records(whole, 60)[:65], 21, 3, 1, 0, 2, 1, 0), ErrMalformed},
		{"a session that is too long", changed(recordHeader+messageHeader+2+32, 255), ErrMalformed},
		{"a message that is too short", records(append(make([]byte, 5), 1, 0, 0, 2, 3, 3), 6), ErrMalformed},
		{"a message above the limit by its length", records(append(make([]byte, 5), 1, 1, 0, 1, 3, 3), 6), ErrTooLarge},
		{"a hello above the limit", huge(MaxHello - messageHeader), ErrTooLarge},
		{"the same extension twice", golden(t, "bad_twice"), ErrMalformed},
		{"two names", golden(t, "bad_two_names"), ErrMalformed},
		{"a name with a last dot", golden(t, "bad_dot"), ErrMalformed},
		{"an empty protocol", golden(t, "bad_protocol"), ErrMalformed},
		{"bytes after the extensions", golden(t, "bad_rest"), ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for at := range min(len(tt.b), 200) {
				if h, done, err := parseReads(tt.b, at); done || !errors.Is(err, tt.want) {
					t.Fatalf("split at %d: %+v, %v, %v; want %v", at, h, done, err, tt.want)
				}
			}
		})
	}
}

// TestLargeHelloTakesLinearTime verifies that the work is linear in the number of bytes, even with tiny
// records and tiny reads.
func TestLargeHelloTakesLinearTime(t *testing.T) {
	message := append([]byte{messageHello, 0, 0x28, 0}, make([]byte, 10<<10)...)
	b := records(append(make([]byte, recordHeader), message...), 1)
	var s HelloParser
	last := 0
	for n := range len(b) {
		before := s.next
		_, done, err := s.Parse(b[:n])
		if done || err != nil {
			break
		}
		if s.next < before || s.next-before > 6 {
			t.Fatalf("with %d bytes the scan went from %d to %d", n, before, s.next)
		}
		last = s.next
	}
	if last < len(b)-20 {
		t.Errorf("the scan ended at %d of %d", last, len(b))
	}
}

// hello returns the ClientHello that crypto/tls sends.
func hello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(theirs, c).Handshake() //nolint:noctx // it fails when the pipe closes
		_ = theirs.Close()
	}()
	defer ours.Close()
	var head [recordHeader]byte
	if _, err := io.ReadFull(ours, head[:]); err != nil {
		t.Fatal(err)
	}
	record := make([]byte, recordHeader+(int(head[3])<<8|int(head[4])))
	copy(record, head[:])
	if _, err := io.ReadFull(ours, record[recordHeader:]); err != nil {
		t.Fatal(err)
	}
	return record
}

func TestParseCryptoTLSHello(t *testing.T) {
	for _, want := range []ClientHello{
		{}, {ServerName: "a.example"}, {ServerName: "b.example", Protocols: []string{"h2", "http/1.1"}}, {Protocols: []string{"x"}},
	} {
		c := &tls.Config{ServerName: want.ServerName, NextProtos: want.Protocols, InsecureSkipVerify: true} //nolint:gosec // the test verifies no certificate
		if got, done, err := parseReads(hello(t, c)); !done || err != nil || !equal(got, want) {
			t.Errorf("scan = %+v, %v, %v; want %+v", got, done, err, want)
		}
	}
}

// cryptoTLSHello returns the ClientHello that crypto/tls parses from b; ok is false if it fails.
func cryptoTLSHello(b []byte) (h ClientHello, ok bool) {
	config := &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		h, ok = ClientHello{strings.ToLower(info.ServerName), info.SupportedProtos}, true
		return nil, errors.New("that is all")
	}}
	_ = tls.Server(&cannedConn{Reader: bytes.NewReader(b)}, config).HandshakeContext(context.Background())
	return h, ok
}

// cannedConn is a connection that returns fixed bytes and discards writes.
type cannedConn struct {
	*bytes.Reader
	net.Conn
}

func (c *cannedConn) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c *cannedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *cannedConn) Close() error                     { return nil }
func (c *cannedConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzHello verifies that Parse returns the same as crypto/tls, or an error, so that the filter chain is
// never chosen by another server name than that of the handshake.
func FuzzHello(f *testing.F) {
	for name := range hellos() {
		f.Add(golden(f, name), uint16(9))
	}
	for _, name := range []string{"bad_twice", "bad_two_names", "bad_dot", "bad_protocol", "bad_rest"} {
		f.Add(golden(f, name), uint16(0))
	}
	f.Add(records(golden(f, "names"), 30), uint16(33))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		got, done, err := parseReads(b)
		if split, sdone, serr := parseReads(b, min(int(at), len(b))); !equal(split, got) || sdone != done || !errors.Is(serr, err) {
			t.Fatalf("split at %d: %+v, %v, %v; whole: %+v, %v, %v", at, split, sdone, serr, got, done, err)
		}
		want, ok := cryptoTLSHello(b)
		if ok && done && !equal(got, want) {
			t.Errorf("scan = %+v, crypto/tls understands %+v", got, want)
		}
		if ok && errors.Is(err, ErrNotTLS) {
			t.Errorf("a handshake is taken for something else: crypto/tls understands %+v", want)
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
		if got, sure := HTTP([]byte(text)); got != want || !sure {
			t.Errorf("HTTP(%.40q) = %q, %v; want %q, for sure", text, got, sure, want)
		}
		// No prefix may have had a different final result.
		for at := range min(len(text), 100) {
			if got, sure := HTTP([]byte(text[:at])); sure && got != want {
				t.Errorf("HTTP(%q) = %q for sure, of %q", text[:at], got, text)
			}
		}
	}
}

func TestPartialRequestLineNeedsMore(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "\r\nGET / HTTP/1.0\n"} {
		for at := range len(text) {
			if got, sure := HTTP([]byte(text[:at])); got != "" || sure {
				t.Errorf("HTTP(%q) = %q, %v; want need more", text[:at], got, sure)
			}
		}
	}
}

func FuzzHTTP(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint16(3))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), uint16(9))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		whole, _ := HTTP(b)
		part, sure := HTTP(b[:min(int(at), len(b))])
		if sure && part != whole {
			t.Errorf("HTTP(%q) = %q for sure, of %q it is %q", b[:min(int(at), len(b))], part, b, whole)
		}
	})
}

func BenchmarkHello(b *testing.B) {
	whole := golden(b, "names")
	b.ReportAllocs()
	for b.Loop() {
		var s HelloParser
		if _, done, err := s.Parse(whole); !done || err != nil {
			b.Fatal(done, err)
		}
	}
}
