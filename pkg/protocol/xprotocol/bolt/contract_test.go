package bolt

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/tools/txtar"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest"
)

var update = flag.Bool("update", false, "rewrite testdata/*-views.txt")

// codecs returns the codec of each version. The keys are the prefixes of the names of its captures.
func codecs() map[string]Codec { return map[string]Codec{"v1": V1(), "v2": V2()} }

// captures returns the captured frames of peers; the key is the name of the capture. version is v1
// or v2.
func captures(t testing.TB, version string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/" + version + "*.hex")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures", err)
	}
	frames := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(file, err)
		}
		frames[strings.TrimSuffix(filepath.Base(file), ".hex")] = frame
	}
	return frames
}

// builtFrames returns frames that no capture contains.
func builtFrames(c Codec) map[string][]byte {
	frames := map[string][]byte{
		"one-way":     newFrame(c, typeOneWay, commandRequest, 0, "class", entries("service", "s", "sofa_head_method_name", "m"), "content"),
		"SOFARPC":     newFrame(c, typeRequest, commandRequest, 0, "class", entries("service", "x", keyTarget, "a.B:2.0:u", keyMethod, "m", "k", "v"), "content"),
		"no header":   newFrame(c, typeRequest, commandRequest, 0, "class", nil, "content"),
		"null value":  newFrame(c, typeRequest, commandRequest, 0, "c", append(entries("service", "s"), nullEntry("trace")...), "x"),
		"field names": newFrame(c, typeRequest, commandRequest, 0, "c", entries("service", "s", "method", "not a field", "Group", "nor this", "", "a field"), "x"),
		"error":       newFrame(c, typeResponse, commandResponse, 6, "", entries("why", "not"), ""),
		"GOAWAY":      c.AppendGoAway(nil, 7),
		"other":       newFrame(c, typeRequest, 99, 0, "", nil, ""),
		"heartbeat":   c.AppendHeartbeat(nil, 8),
		"unsolicited": newFrame(c, typeResponse, commandHeartbeat, 0, "", nil, ""),
	}
	return frames
}

func entries(keysAndValues ...string) []byte {
	var b []byte
	for i := 0; i < len(keysAndValues); i += 2 {
		b = appendEntry(b, keysAndValues[i], keysAndValues[i+1])
	}
	return b
}

func nullEntry(key string) []byte { return appendNull(appendText(nil, key)) }

// newFrame returns a frame with the ID 9.
func newFrame(c Codec, frameType byte, command, status int, class string, header []byte, content string) []byte {
	b := []byte{c.version}
	if c.typeOffset > 1 {
		b = append(b, 1)
	}
	b = append(b, frameType)
	b = binary.BigEndian.AppendUint16(b, uint16(command))
	b = append(b, 1, 0, 0, 0, 9, 1)
	if c.switchesOffset > 0 {
		b = append(b, 0)
	}
	if frameType == typeResponse {
		b = binary.BigEndian.AppendUint16(b, uint16(status))
	} else {
		b = binary.BigEndian.AppendUint32(b, 5000)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(class)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	b = append(b, class...)
	b = append(b, header...)
	return append(b, content...)
}

// TestCodecContract runs the codec tests with every capture and every built frame. Their views are
// in testdata/*-views.txt.
func TestCodecContract(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		c := codecs()[version]
		t.Run(version, func(t *testing.T) {
			oversize := newFrame(c, typeRequest, commandRequest, 0, "", nil, "")
			binary.BigEndian.PutUint32(oversize[len(oversize)-4:], math.MaxInt32)
			codectest.Run(t, c, codectest.Suite{
				Frames:        goldenFrames(t, version),
				OversizeHeads: []codectest.Head{{Bytes: oversize, Size: c.requestHeadSize + math.MaxInt32}},
				ForeignStarts: [][]byte{
					{c.version, 9}, {3}, {0},
					otherCodec(c).AppendHeartbeat(nil, 1),
				},
				Code:          func(t *protocol.ReasonSpec) int { return int(t.Bolt) },
				RoutingFields: []string{"service", "method", "group"},
				DerivedFields: []string{"version"},
				Authority: func(service string) string {
					name, _, _ := strings.Cut(service, ":")
					return name
				},
				SpecialFields: []string{keyTarget, keyMethod},
				ChecksumValid: c.checksumValid,

				ErrorText: func(response []byte) (string, error) { return errorTextOf(c, response) },
			})
		})
	}
}

// errorTextOf returns the error text in the header of an error response, and compares it with the
// exception in the content, if there is one.
func errorTextOf(c Codec, response []byte) (string, error) {
	var r protocol.Response
	var v xprotocol.FrameView
	if err := c.ReadResponse(response, &r, &v); err != nil {
		return "", err
	}
	text, ok := r.Header.Lookup(keyErrorText)
	if !ok {
		return "", errors.New("the header has no text")
	}
	content := response[v.ContentOffset : len(response)-int(v.TrailerLen)]
	if len(content) == 0 {
		return text, nil
	}
	exception, err := exceptionText(content)
	if err == nil && exception != text {
		err = fmt.Errorf("the header has the text %q, the exception %q", text, exception)
	}
	return text, err
}

// exceptionText reads the first string of an object in the draft of Hessian 2: 'S', the number of
// UTF-16 units, and the units, each encoded like a rune in UTF-8.
func exceptionText(content []byte) (string, error) {
	_, text, found := bytes.Cut(content, []byte("o\x90S"))
	if !found || len(text) < 2 {
		return "", errors.New("no object")
	}
	var units []uint16
	remaining := int(binary.BigEndian.Uint16(text))
	for text = text[2:]; remaining > 0; remaining-- {
		switch {
		case len(text) >= 1 && text[0] < 0x80:
			units, text = append(units, uint16(text[0])), text[1:]
		case len(text) >= 2 && text[0]&0xe0 == 0xc0:
			units, text = append(units, uint16(text[0]&0x1f)<<6|uint16(text[1]&0x3f)), text[2:]
		case len(text) >= 3 && text[0]&0xf0 == 0xe0:
			units, text = append(units, uint16(text[0])<<12|uint16(text[1]&0x3f)<<6|uint16(text[2]&0x3f)), text[3:]
		default:
			return "", fmt.Errorf("%d units are missing", remaining)
		}
	}
	if len(text) == 0 || text[0] != 'V' { // the stack trace
		return "", fmt.Errorf("%q follows the text, want the stack trace", text)
	}
	return string(utf16.Decode(units)), nil
}

func otherCodec(c Codec) Codec {
	if c == V1() {
		return V2()
	}
	return V1()
}

func goldenFrames(t *testing.T, version string) []codectest.Frame {
	t.Helper()
	c := codecs()[version]
	byName := captures(t, version)
	for name, frame := range builtFrames(c) {
		byName["built "+name] = frame
	}
	file := "testdata/" + version + "-views.txt"
	if *update {
		var views txtar.Archive
		for _, name := range sortedKeys(byName) {
			views.Files = append(views.Files, txtar.File{Name: name, Data: []byte(codectest.View(c, byName[name]))})
		}
		if err := os.WriteFile(file, txtar.Format(&views), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	views, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(views.Files) != len(byName) {
		t.Fatalf("%s has %d views, want one for each of %d frames", file, len(views.Files), len(byName))
	}
	var frames []codectest.Frame
	for _, view := range views.Files {
		frames = append(frames, codectest.Frame{Name: view.Name, Bytes: byName[view.Name], View: string(view.Data)})
	}
	return frames
}
