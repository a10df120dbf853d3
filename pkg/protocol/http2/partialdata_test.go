package http2

import (
	"bytes"
	"testing"
)

func TestParsePartialDataSplitsFrame(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 4)
	for _, end := range []bool{false, true} {
		frame := AppendData(nil, 5, body, end)
		for split := 16; split < len(body); split += 7 {
			b := bytes.Clone(frame)
			f, head := ParsePartialData(b[:FrameHeaderLen+split], 16)
			if f.Type != FrameData || f.Stream != 5 || f.Flags != 0 || !bytes.Equal(f.Payload, body[:split]) {
				t.Fatalf("ParsePartialData of %d bytes = %+v, want DATA on stream 5 with these bytes", split, f)
			}
			b = append(head[:], b[FrameHeaderLen+split:]...)
			remainder, m, err := ParseFrame(b, MinFrameSize)
			if err != nil || m != len(b) || remainder.Flags.Has(FlagEndStream) != end || remainder.Stream != 5 || !bytes.Equal(remainder.Payload, body[split:]) {
				t.Fatalf("after the first %d bytes: ParseFrame = %+v, %d, %v; want DATA on stream 5 with the other bytes", split, remainder, m, err)
			}
		}
	}
}

func TestParsePartialDataSkipsOtherFrames(t *testing.T) {
	payload := make([]byte, 64)
	for name, b := range map[string][]byte{
		"header block":           AppendHeaders(nil, 1, payload, false, MinFrameSize),
		"padded data":            append(AppendFrameHeader(nil, 64, FrameData, FlagPadded, 1), payload...),
		"less than the minimum":  AppendData(nil, 1, payload, false)[:FrameHeaderLen+15],
		"frame header only":      AppendData(nil, 1, payload, false)[:FrameHeaderLen],
		"truncated frame header": AppendData(nil, 1, payload, false)[:FrameHeaderLen-1],
		"empty":                  nil,
		"another frame type":     AppendGoAway(nil, 1, NoError, string(payload)),
	} {
		if f, _ := ParsePartialData(b[:max(0, len(b)-1)], 16); len(f.Payload) > 0 {
			t.Errorf("%s: frame %+v, want no payload", name, f)
		}
	}
}
