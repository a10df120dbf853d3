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
	oversize := newFrame(twoWay, 0)
	binary.BigEndian.PutUint32(oversize[lengthOffset:], math.MaxUint32)
	codectest.Run(t, Codec{}, codectest.Suite{
		Frames:        goldenFrames(t),
		OversizeHeads: []codectest.Head{{Bytes: oversize, Size: headSize + math.MaxUint32}},
		ForeignStarts: [][]byte{{magic >> 8, 0}, {0, magic & 0xff}},
		Code:          func(t *protocol.ReasonSpec) int { return int(t.Dubbo) },
		Content:       content,
		SpecialFields: []string{attachmentInterface, attachmentPath, serviceTimeout, callTimeout, callTimeoutLower},
	})
}

// goldenFrames returns the captures with their views.
func goldenFrames(t *testing.T) []codectest.Frame {
	t.Helper()
	const file = "testdata/captures.txt"
	list := captures(t)
	if *update {
		var views txtar.Archive
		for _, c := range list {
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
	if len(views.Files) != len(list) {
		t.Fatalf("%s has %d views, want one for each of %d captures", file, len(views.Files), len(list))
	}
	// Reading these frames allocates: numeric attachments become texts, and Java encodes some
	// characters differently from Go.
	mayAllocate := []string{"dubbo-2.7.23 request object attachments", "dubbo-2.7.23 request unicode"}
	frames := make([]codectest.Frame, 0, len(list))
	for i, c := range list {
		if views.Files[i].Name != c.name {
			t.Fatalf("%s has a view of %q, want %q", file, views.Files[i].Name, c.name)
		}
		frames = append(frames, codectest.Frame{
			Name: c.name, Bytes: c.frame, View: string(views.Files[i].Data),
			Unchangeable: isUnchangeable(c.frame), MayAllocate: slices.Contains(mayAllocate, c.name),
		})
	}
	return frames
}

// isUnchangeable reports whether the fields of a frame cannot be changed.
func isUnchangeable(frame []byte) bool {
	return !isHessian(frame) || frame[flagsOffset]&flagRequest == 0 && frame[statusOffset] != statusOK
}

// content returns the arguments of a request with their types, or the result of a response.
func content(frame []byte, _ *xprotocol.FrameView) []byte {
	if isUnchangeable(frame) {
		return frame[headSize:]
	}
	var d hessian.Decoder
	body := frame[headSize:]
	if frame[flagsOffset]&flagRequest != 0 {
		var c call
		if c.read(&d, body) != nil {
			return nil
		}
		return body[c.method.end:c.attachments]
	}
	var res result
	if res.read(&d, body) != nil || res.skipValue(&d) != nil {
		return nil
	}
	return body[res.value:d.Offset()]
}
