package http2

import (
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// requestWriter is a client session that sends requests, and the peer's decoder, which decodes
// them.
type requestWriter struct {
	t *testing.T
	s *Session
	d *hpack.Decoder
}

func newRequestWriter(t *testing.T) *requestWriter {
	return &requestWriter{t, NewSession(Config{Role: Client}), hpack.NewDecoder(DefaultTableSize, nil)}
}

// write sends a request with fields, which alternate between name and value. It returns the regular
// fields that the peer decodes, or an error.
func (w *requestWriter) write(opts RequestOptions, fields ...string) (string, error) {
	w.t.Helper()
	req := &protocol.Request{Method: "GET", Scheme: "http", Path: "/items", Authority: "shop.test"}
	req.ContentLength, req.ExpectContinue = -1, !opts.End
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	out, st, err := w.s.AppendRequest(nil, req, opts)
	if err != nil {
		if len(out) > 0 || st != nil || w.s.Len() > 0 {
			w.t.Fatalf("%d bytes, stream %v, %d open streams after %v, want none", len(out), st, w.s.Len(), err)
		}
		return "", err
	}
	decoded, err := w.d.DecodeFull(out[FrameHeaderLen:])
	if err != nil {
		w.t.Fatalf("the peer cannot read the block: %v", err)
	}
	w.s.Reset(nil, st, Cancel)
	w.s.Release(nil, st, Cancel)
	var b strings.Builder
	for _, f := range decoded[4:] { // after the pseudo-header fields
		b.WriteString(f.Name + ": " + f.Value + "\n")
	}
	return b.String(), nil
}

// TestHeaderCannotSendReservedFields verifies that a Header cannot send fields that only this
// package may send, even if they are in the compression table. An entry skips validation only if it
// came from a Header.
func TestHeaderCannotSendReservedFields(t *testing.T) {
	w := newRequestWriter(t)
	for range 3 {
		if got, err := w.write(RequestOptions{AcceptsTrailers: true}); err != nil || got != "expect: 100-continue\nte: trailers\n" {
			t.Fatalf("read %q, %v; want only expect and te", got, err)
		}
	}
	for _, name := range []string{":path", "te", "expect", ":authority"} {
		if m := w.s.enc.find(name, map[string]string{":path": "/items", "te": "trailers", "expect": "100-continue", ":authority": "shop.test"}[name]); m.index == 0 {
			t.Fatalf("%s is not in the table, which this test requires", name)
		}
	}
	for range 3 {
		if got, err := w.write(RequestOptions{End: true}, "te", "trailers", "expect", "100-continue", "x-kept", "1"); err != nil || got != "x-kept: 1\n" {
			t.Errorf("read %q, %v, want only x-kept", got, err)
		}
		for _, f := range [][2]string{{":path", "/items"}, {":authority", "shop.test"}} {
			if got, err := w.write(RequestOptions{End: true}, f[0], f[1]); protocol.ReasonOf(err) != protocol.Internal {
				t.Errorf("a field %s is read as %q, %v, want an internal error", f[0], got, err)
			}
		}
	}
}

// TestInvalidFieldKeepsTablesInSync sends requests whose last field is invalid, after earlier
// fields of the request were added to the compression table. It verifies that the peer decodes the
// next requests correctly, and that they use the same stream identifier.
func TestInvalidFieldKeepsTablesInSync(t *testing.T) {
	w := newRequestWriter(t)
	fields := []string{"x-a", "first", "x-b", "second"}
	const want = "x-a: first\nx-b: second\n"
	for round := range 4 {
		if _, err := w.write(RequestOptions{End: true}, append(fields, "x-late", "third", "x-late", "third", "x-bad", "a\nb")...); protocol.ReasonOf(err) != protocol.Internal || !strings.Contains(err.Error(), `"x-bad"`) {
			t.Fatalf("round %d: %v, want an internal error that names x-bad", round, err)
		}
		next := w.s.nextStreamID
		for range round {
			if got, err := w.write(RequestOptions{End: true}, fields...); err != nil || got != want {
				t.Fatalf("round %d: read %q, %v, want %q", round, got, err, want)
			}
		}
		if got := w.s.nextStreamID; got != next+2*uint32(round) {
			t.Fatalf("round %d: next stream %d, want %d", round, got, next+2*uint32(round))
		}
	}
}

// TestInvalidFieldWithoutInsertKeepsTable verifies that an invalid field does not empty the
// compression table if its block added nothing to it.
func TestInvalidFieldWithoutInsertKeepsTable(t *testing.T) {
	w := newRequestWriter(t)
	for range 3 {
		if _, err := w.write(RequestOptions{End: true}, "x-a", "first"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := w.write(RequestOptions{End: true}, "x-a", "first", "x-bad", "a\nb"); err == nil {
			t.Fatal("the invalid field was sent")
		}
		if m := w.s.enc.find("x-a", "first"); m.index == 0 || w.s.enc.sizeChanged {
			t.Fatal("the table was emptied")
		}
		if got, err := w.write(RequestOptions{End: true}, "x-a", "first"); err != nil || got != "x-a: first\n" {
			t.Fatalf("read %q, %v; want only x-a", got, err)
		}
	}
}

// TestHasOnlyValueBytesMatchesByteClasses compares hasOnlyValueBytes with the byte classes, for
// each byte at each position of strings up to 24 bytes long.
func TestHasOnlyValueBytesMatchesByteClasses(t *testing.T) {
	for n := range 25 {
		for i := range n {
			for c := range 256 {
				for _, filler := range []byte{' ', 'a', 0x7e, 0x80, 0xff} {
					b := []byte(strings.Repeat(string([]byte{filler}), n))
					b[i] = byte(c)
					if got, want := hasOnlyValueBytes(string(b)), allInClass(string(b), valueByte); got != want {
						t.Fatalf("hasOnlyValueBytes(%q) = %v, want %v", b, got, want)
					}
				}
			}
		}
	}
}

// TestHashesDiffer verifies that the hash of a string depends on each of its bytes and on its
// length.
func TestHashesDiffer(t *testing.T) {
	seen := map[uint32]string{}
	for n := range 40 {
		for i := range n + 1 {
			b := []byte(strings.Repeat("a", n))
			if i < n {
				b[i] = 'b'
			}
			h := hashText(0, string(b))
			if other, ok := seen[h]; ok {
				t.Fatalf("%q and %q have the hash %x, want different hashes", b, other, h)
			}
			seen[h] = string(b)
		}
	}
}
