package dubbo

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// capture is a frame that another implementation wrote.
type capture struct {
	name  string
	frame []byte
}

// captures returns the frames of testdata/captures, from dubbo-go and Java.
func captures(tb testing.TB) []capture {
	tb.Helper()
	files, err := filepath.Glob("testdata/captures/*.hex")
	if err != nil || len(files) == 0 {
		tb.Fatal("no captures", err)
	}
	list := make([]capture, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		frame, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		list = append(list, capture{strings.TrimSuffix(filepath.Base(file), ".hex"), frame})
	}
	for _, release := range []string{"dubbo-2.7.23", "dubbo-3.3.5"} {
		for _, columns := range readTable(tb, release+".tsv") {
			frame, err := hex.DecodeString(columns[1])
			if err != nil {
				tb.Fatalf("%s: %s: %v", release, columns[0], err)
			}
			list = append(list, capture{release + " " + columns[0], frame})
		}
	}
	return list
}

// readTable returns the lines of a file in testdata as columns, without comments.
func readTable(tb testing.TB, name string) [][]string {
	tb.Helper()
	var rows [][]string
	for _, line := range readLines(tb, name) {
		if !strings.HasPrefix(line, "#") {
			rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		}
	}
	return rows
}

// readComments returns the comment lines of a file in testdata.
func readComments(tb testing.TB, name string) []string {
	tb.Helper()
	return slices.DeleteFunc(readLines(tb, name), func(line string) bool { return !strings.HasPrefix(line, "#") })
}

func readLines(tb testing.TB, name string) []string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(text)))
}

// findCapture returns the capture whose name starts with prefix.
func findCapture(tb testing.TB, prefix string) []byte {
	tb.Helper()
	for _, c := range captures(tb) {
		if strings.HasPrefix(c.name, prefix) {
			return bytes.Clone(c.frame)
		}
	}
	tb.Fatalf("no capture %s", prefix)
	return nil
}

// newFrame returns a frame with the ID 7.
func newFrame(flags, status byte, body ...[]byte) []byte {
	b := []byte{magic >> 8, magic & 0xff, flags, status, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0}
	for _, part := range body {
		b = append(b, part...)
	}
	binary.BigEndian.PutUint32(b[lengthOffset:], uint32(len(b)-headSize))
	return b
}

const (
	twoWay        = flagRequest | flagTwoWay | serializationHessian
	responseFlags = serializationHessian
)

func hessianStrings(values ...string) []byte {
	var b []byte
	for _, s := range values {
		b = hessian.AppendString(b, s)
	}
	return b
}

// mapOf returns a Hessian map of strings from alternating keys and values.
func mapOf(keysAndValues ...string) []byte {
	return hessian.AppendMapEnd(append(hessian.AppendMapStart(nil), hessianStrings(keysAndValues...)...))
}

// requestOf returns a request for org.example.A.m in version 1.0.0 with one string argument.
func requestOf(attachments []byte) []byte {
	return newFrame(twoWay, 0, hessianStrings("2.0.2", "org.example.A", "1.0.0", "m", "Ljava/lang/String;", "argument"), attachments)
}

// request is a request with the storage that its view refers to.
type request struct {
	protocol.Request
	view xprotocol.FrameView
}

func readRequest(tb testing.TB, frame []byte) *request {
	tb.Helper()
	var r request
	if err := (Codec{}).ReadRequest(frame, &r.Request, &r.view); err != nil {
		tb.Fatalf("ReadRequest(%x): %v", frame, err)
	}
	if r.Header.Changed() {
		tb.Fatal("Header.Changed() = true after reading, want false")
	}
	return &r
}

func readResponse(tb testing.TB, frame []byte) *protocol.Response {
	tb.Helper()
	var r protocol.Response
	var v xprotocol.FrameView
	if err := (Codec{}).ReadResponse(frame, &r, &v); err != nil {
		tb.Fatalf("ReadResponse(%x): %v", frame, err)
	}
	if r.Header.Changed() {
		tb.Fatal("Header.Changed() = true after reading, want false")
	}
	return &r
}

// fields returns a header as text: "name=value name=value".
func fields(h *protocol.Header) string {
	list := make([]string, 0, h.Len())
	for name, value := range h.All() {
		list = append(list, name+"="+value)
	}
	return strings.Join(list, " ")
}
