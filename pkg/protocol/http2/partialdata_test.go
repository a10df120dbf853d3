package http2

import (
	"bytes"
	"testing"
)

func TestParsePartialDataSplitsFrame(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 4)
	for _, end := range []bool{false, true} {
		whole := AppendData(nil, 5, content, end)
		for first := 16; first < len(content); first += 7 {
			b := bytes.Clone(whole)
			f, head := ParsePartialData(b[:FrameHeaderLen+first], 16)
			if f.Type != FrameData || f.Stream != 5 || f.Flags != 0 || !bytes.Equal(f.Payload, content[:first]) {
				t.Fatalf("CutData of %d bytes = %+v", first, f)
			}
			b = append(head[:], b[FrameHeaderLen+first:]...)
			rest, m, err := ParseFrame(b, MinFrameSize)
			if err != nil || m != len(b) || rest.Flags.Has(FlagEndStream) != end || rest.Stream != 5 || !bytes.Equal(rest.Payload, content[first:]) {
				t.Fatalf("behind the first %d bytes: %+v, %d, %v", first, rest, m, err)
			}
		}
	}
}

func TestParsePartialDataSkipsOtherFrames(t *testing.T) {
	long := make([]byte, 64)
	for name, b := range map[string][]byte{
		"a header block":         AppendHeaders(nil, 1, long, false, MinFrameSize),
		"padded content":         append(AppendFrameHeader(nil, 64, FrameData, FlagPadded, 1), long...),
		"hardly any content":     AppendData(nil, 1, long, false)[:FrameHeaderLen+15],
		"the header of a frame":  AppendData(nil, 1, long, false)[:FrameHeaderLen],
		"not even the header":    AppendData(nil, 1, long, false)[:FrameHeaderLen-1],
		"nothing":                nil,
		"a frame of other types": AppendGoAway(nil, 1, NoError, string(long)),
	} {
		if f, _ := ParsePartialData(b[:max(0, len(b)-1)], 16); len(f.Payload) > 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
