package codectest

import (
	"bytes"
	"math/bits"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// checkMatch checks that Match accepts the frames that a client may send first, and that more bytes
// do not change a final result.
func checkMatch(tb testing.TB, c xprotocol.Codec, s *Suite) {
	if v := c.Match(nil); v != xprotocol.MatchNeedMore {
		tb.Errorf("Match of no bytes = %s, want need more", matchName(v))
	}
	for _, f := range s.Frames {
		checkMatchIsFinal(tb, c, f.Name, f.Bytes)
		head, _ := c.ParseFrame(f.Bytes)
		if !isRequest(head.Kind) && head.Kind != xprotocol.Heartbeat {
			continue // a client does not send this first
		}
		if v := c.Match(f.Bytes); v != xprotocol.MatchYes {
			tb.Errorf("%s: Match = %s, want yes", f.Name, matchName(v))
		}
	}
}

// checkMatchIsFinal checks that more bytes do not change a result other than MatchNeedMore.
func checkMatchIsFinal(tb testing.TB, c xprotocol.Codec, name string, b []byte) {
	previous := xprotocol.MatchNeedMore
	for n := range len(b) + 1 {
		v := c.Match(b[:n])
		if v > xprotocol.MatchNo || previous != xprotocol.MatchNeedMore && v != previous {
			tb.Errorf("%s: Match of %d bytes = %s, want the result for one byte less, %s", name, n, matchName(v), matchName(previous))
			return
		}
		previous = v
	}
}

// foreignStarts are the first bytes of connections of other protocols, with the names of the
// protocols.
//
//nolint:gochecknoglobals // a constant table
var foreignStarts = []struct{ name, first string }{
	{"Http1", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"Http1", "POST /service/method HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"Http1", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"Http1", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"},
	{"Http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
	{"TLS", "\x16\x03\x01\x00\xc4\x01\x00\x00\xc0\x03\x03" + strings.Repeat("\x5a", 32)},
	{"PROXY", "PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n"},
	{"dubbo", "\xda\xbb\xc2\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00"},
	{"bolt", "\x01\x01\x00\x01\x01\x00\x00\x00\x07\x01\x00\x00\x0b\xb8\x00\x00\x00\x00\x00\x00\x00\x00"},
	{"boltv2", "\x02\x01\x01\x00\x01\x01\x00\x00\x00\x07\x01\x00\x00\x00\x0b\xb8\x00\x00\x00\x00\x00\x00\x00\x00"},
	{"nothing", strings.Repeat("\x00", 64)},
	{"noise", strings.Repeat("\xff", 64)},
}

// checkForeign checks that Match and ParseFrame reject the bytes of other protocols.
func checkForeign(tb testing.TB, c xprotocol.Codec, s *Suite) {
	checkRejectedBytes := func(name string, b []byte) {
		checkMatchIsFinal(tb, c, name, b)
		if v := c.Match(b); v != xprotocol.MatchNo {
			tb.Errorf("%s: Match(%q) = %s, want no", name, b, matchName(v))
		}
		if head, err := c.ParseFrame(b); err == nil || head.Size != 0 {
			tb.Errorf("%s: ParseFrame(%q) = %+v, %v, want an error", name, b, head, err)
		}
	}
	for _, f := range foreignStarts {
		if f.name != c.Traits().Name {
			checkRejectedBytes(f.name, []byte(f.first))
		}
	}
	for _, b := range s.ForeignStarts {
		checkRejectedBytes("foreign", b)
	}
	for seed := range uint64(64) {
		b := noise(seed)
		if !sharesFirstByte(s, b) {
			checkRejectedBytes("noise", b)
		}
	}
}

// sharesFirstByte reports whether a golden frame has the same first byte as b.
func sharesFirstByte(s *Suite, b []byte) bool {
	for _, f := range s.Frames {
		if len(f.Bytes) > 0 && f.Bytes[0] == b[0] {
			return true
		}
	}
	return false
}

// noise returns 64 pseudorandom bytes, always the same for a seed (the generator of Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", 2014).
func noise(seed uint64) []byte {
	b := make([]byte, 0, 64)
	for len(b) < cap(b) {
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		b = append(b, byte(z^z>>31))
	}
	return b
}

// checkSplits checks that ParseFrame returns the same frame for each prefix that it can parse, and
// with any bytes after the frame. Only frames that are not messages may change their kind.
func checkSplits(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		complete, err := c.ParseFrame(f.Bytes)
		if err != nil || complete.Size != len(f.Bytes) {
			tb.Errorf("%s: ParseFrame = %+v, %v, want a size of %d", f.Name, complete, err, len(f.Bytes))
			continue
		}
		for n := range len(f.Bytes) {
			got, err := c.ParseFrame(f.Bytes[:n])
			want := complete
			if !isMessage(complete.Kind) {
				want.Kind = got.Kind
			}
			if got.Size == 0 && n < c.Traits().FrameHeaderLen {
				want = xprotocol.Frame{}
			}
			if err != nil || got != want {
				tb.Errorf("%s: ParseFrame of %d bytes = %+v, %v, want %+v", f.Name, n, got, err, want)
				break
			}
		}
		for _, tail := range [][]byte{{0}, {0xff}, f.Bytes} {
			if got, err := c.ParseFrame(append(bytes.Clone(f.Bytes), tail...)); err != nil || got != complete {
				tb.Errorf("%s: ParseFrame with %d bytes after the frame = %+v, %v, want %+v", f.Name, len(tail), got, err, complete)
			}
		}
	}
}

// isMessage reports whether frames of a kind belong to an exchange.
func isMessage(k xprotocol.Kind) bool { return isRequest(k) || k == xprotocol.Response }

// checkOversize checks that ParseFrame applies no limit; the engine does.
func checkOversize(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, h := range s.OversizeHeads {
		got, err := c.ParseFrame(h.Bytes)
		if err != nil || got.Size != h.Size {
			tb.Errorf("ParseFrame(%x) = %+v, %v, want a size of %d", h.Bytes, got, err, h.Size)
		}
	}
}

// checkSetID checks that SetID changes only the id and the checksum.
func checkSetID(tb testing.TB, c xprotocol.Codec, s *Suite) {
	maxID := c.Traits().MaxID
	limit := (bits.Len64(maxID) + 7) / 8
	if s.ChecksumValid != nil {
		limit += 4
	}
	for _, f := range s.Frames {
		original, err := c.ParseFrame(f.Bytes)
		if err != nil {
			tb.Errorf("%s: ParseFrame: %v", f.Name, err)
			continue
		}
		frame := bytes.Clone(f.Bytes)
		changed := map[int]bool{}
		for _, id := range []uint64{0, 1, maxID / 3, maxID - 1, maxID} {
			c.SetID(frame, id)
			want := original
			want.ID = id
			if got, err := c.ParseFrame(frame); err != nil || got != want {
				tb.Errorf("%s: with the id %d ParseFrame = %+v, %v, want %+v", f.Name, id, got, err, want)
			}
			for i := range frame {
				if frame[i] != f.Bytes[i] {
					changed[i] = true
				}
			}
			checkChecksum(tb, s, f.Name, frame)
		}
		if len(changed) > limit {
			tb.Errorf("%s: SetID changes %d bytes, want at most %d", f.Name, len(changed), limit)
		}
		if c.SetID(frame, original.ID); !bytes.Equal(frame, f.Bytes) {
			tb.Errorf("%s: after the original id was restored, the frame is %x, want %x", f.Name, frame, f.Bytes)
		}
	}
}

func checkChecksum(tb testing.TB, s *Suite, name string, frame []byte) {
	if s.ChecksumValid != nil && !s.ChecksumValid(frame) {
		tb.Errorf("%s: ChecksumValid(%x) = false, want true", name, frame)
	}
}

func matchName(v xprotocol.MatchResult) string {
	switch v {
	case xprotocol.MatchNeedMore:
		return "need more"
	case xprotocol.MatchYes:
		return "yes"
	case xprotocol.MatchNo:
		return "no"
	default:
		return "invalid match result"
	}
}
