package dubbo

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest"
)

// TestCodecContract runs the codec tests with every capture and its view in testdata/captures.txt.
func TestCodecContract(t *testing.T) {
	oversize := frameOf(twoWay, 0)
	binary.BigEndian.PutUint32(oversize[lengthAt:], math.MaxUint32)
	codectest.Run(t, Codec{}, codectest.Suite{
		Frames:        goldenFrames(t),
		Oversize:      []codectest.Head{{Bytes: oversize, Size: headSize + math.MaxUint32}},
		Foreign:       [][]byte{{magic >> 8, 0}, {0, magic & 0xff}},
		Code:          func(t *protocol.ReasonSpec) int { return int(t.Dubbo) },
		Content:       content,
		SpecialFields: []string{attachmentInterface, attachmentPath, timeoutOfService, timeoutOfCall, timeoutOfCallLower},
	})
}

// goldenFrames returns the captures with their views.
func goldenFrames(t *testing.T) []codectest.Frame {
	t.Helper()
	const file = "testdata/captures.txt"
	all := captures(t)
	if *update {
		var views txtar.Archive
		for _, c := range all {
			views.Files = append(views.Files, txtar.File{Name: c.name, Data: []byte(codectest.View(Codec{}, c.frame))})
		}
		if err := os.WriteFile(file, txtar.Format(&views), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	views, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(views.Files) != len(all) {
		t.Fatalf("%s has %d views of %d captures", file, len(views.Files), len(all))
	}
	// Numeric attachments become texts, and Java encodes some characters differently from Go.
	rare := []string{"dubbo-2.7.23 request object attachments", "dubbo-2.7.23 request unicode"}
	frames := make([]codectest.Frame, 0, len(all))
	for i, c := range all {
		if views.Files[i].Name != c.name {
			t.Fatalf("%s has a view of %q in the place of %q", file, views.Files[i].Name, c.name)
		}
		frames = append(frames, codectest.Frame{
			Name: c.name, Bytes: c.frame, View: string(views.Files[i].Data),
			Unchangeable: isUnchangeable(c.frame), MayAllocate: slices.Contains(rare, c.name),
		})
	}
	return frames
}

// isUnchangeable reports whether the fields of a frame cannot be changed.
func isUnchangeable(frame []byte) bool {
	return !isHessian(frame) || frame[flagsAt]&flagRequest == 0 && frame[statusAt] != statusOK
}

// content returns the arguments of a request with their types, or the result of a response.
func content(frame []byte, _ *xprotocol.FrameView) []byte {
	if isUnchangeable(frame) {
		return frame[headSize:]
	}
	var d hessian.Decoder
	body := frame[headSize:]
	if frame[flagsAt]&flagRequest != 0 {
		var c call
		if c.read(&d, body) != nil {
			return nil
		}
		return body[c.method.end:c.attachments]
	}
	var a result
	if a.read(&d, body) != nil || a.skipValue(&d) != nil {
		return nil
	}
	return body[a.value:d.Offset()]
}
