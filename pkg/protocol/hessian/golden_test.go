package hessian

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// golden is a line of a file with the output of another implementation.
type golden struct {
	file      string
	dialect   Dialect
	name      string
	kind, arg string // first word of the name, and the rest
	bytes     []byte // nil if the file has only their hash
	size      int    // number of bytes
	sum       string // SHA-256 of the bytes, in hex
}

// hessianLite is the file with the output of hessian-lite, the library of Dubbo.
const hessianLite = "hessian-lite-3.2.13.tsv"

// goldens returns the output of independent implementations.
func goldens(tb testing.TB) []golden {
	tb.Helper()
	var list []golden
	for _, file := range []struct {
		name    string
		dialect Dialect
	}{{hessianLite, Final}, {"dubbo-go-hessian2-1.12.5.tsv", Final}, {"sofa-hessian-3.5.5.tsv", Draft}} {
		text, err := os.ReadFile(filepath.Join("testdata", file.name))
		if err != nil {
			tb.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, output, ok := strings.Cut(strings.TrimSpace(line), "\t")
			if strings.HasPrefix(line, "#") {
				continue
			}
			g := golden{file: file.name, dialect: file.dialect, name: name}
			g.kind, g.arg, _ = strings.Cut(name, " ")
			if !ok {
				tb.Fatalf("%s: %q has no bytes", file.name, line)
			}
			if size, sum, hashed := strings.Cut(output, " "); hashed {
				g.size, err = strconv.Atoi(size)
				g.sum = sum
			} else {
				g.bytes, err = hex.DecodeString(output)
				g.size, g.sum = len(g.bytes), sumOf(g.bytes)
			}
			if err != nil {
				tb.Fatalf("%s: %q: %v", file.name, name, err)
			}
			list = append(list, g)
		}
	}
	return list
}

func sumOf(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func newDecoder(dialect Dialect, b []byte) *Decoder {
	d := &Decoder{Dialect: dialect}
	d.Reset(b)
	return d
}

// walk skips all values of a body and returns their number.
func walk(dialect Dialect, b []byte) (values int, err error) {
	d := newDecoder(dialect, b)
	for d.Kind() != End {
		if err := d.Skip(); err != nil {
			return values, err
		}
		values++
	}
	if d.Offset() != len(b) {
		return values, fmt.Errorf("ends at byte %d of %d", d.Offset(), len(b))
	}
	return values, nil
}

// text returns the string that the name of a golden describes.
func (g *golden) text(tb testing.TB) string {
	tb.Helper()
	points, times, _ := strings.Cut(g.arg, " ")
	var s strings.Builder
	if points != "-" {
		for point := range strings.SplitSeq(points, ".") {
			r, err := strconv.ParseUint(point, 16, 32)
			if err != nil {
				tb.Fatal(err)
			}
			s.WriteRune(rune(r))
		}
	}
	n, err := strconv.Atoi(times)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Repeat(s.String(), n)
}

// integer returns the number that the name of a golden describes.
func (g *golden) integer(tb testing.TB) int64 {
	tb.Helper()
	n, err := strconv.ParseInt(g.arg, 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func TestAppendMatchesJava(t *testing.T) {
	for _, g := range goldens(t) {
		if g.file != hessianLite {
			continue // other writers use different chunk sizes
		}
		var b []byte
		switch g.kind {
		case "null":
			b = AppendNull(nil)
		case "bool":
			b = AppendBool(nil, g.arg == "true")
		case "int":
			b = AppendInt(nil, int32(g.integer(t)))
		case "long":
			b = AppendLong(nil, g.integer(t))
		case "string":
			b = AppendString(nil, g.text(t))
		default:
			continue
		}
		if len(b) != g.size || sumOf(b) != g.sum {
			t.Errorf("%s is written as %d bytes, % x…; want the %d bytes of Java, % x…", g.name, len(b), b[:min(len(b), 20)], g.size, g.bytes[:min(len(g.bytes), 20)])
		}
	}
}

func TestReadGoldenScalars(t *testing.T) {
	for _, g := range goldens(t) {
		b := g.bytes
		if g.kind == "string" && b == nil {
			b = AppendString(nil, g.text(t)) // the same bytes, as TestAppendMatchesJava verifies
		}
		d := newDecoder(g.dialect, b)
		var got, want any
		var err error
		switch g.kind {
		case "bool":
			want = g.arg == "true"
			got, err = d.Bool()
		case "int":
			want = int32(g.integer(t))
			got, err = d.Int()
		case "long":
			want = g.integer(t)
			got, err = d.Long()
		case "double":
			want = uint64(g.integer(t))
			var v float64
			v, err = d.Double()
			got = math.Float64bits(v)
		case "string":
			want = g.text(t)
			var v []byte
			v, err = d.Text()
			got = string(v)
		default:
			continue
		}
		if err != nil || got != want || d.Kind() != End {
			t.Errorf("%s: %s = %.40v, %v, then %v, want %.40v", g.file, g.name, got, err, d.Kind(), want)
		}
	}
}

func TestSkipGoldenValues(t *testing.T) {
	for _, g := range goldens(t) {
		if g.bytes == nil {
			continue
		}
		values, err := walk(g.dialect, g.bytes)
		want := 1
		switch g.name {
		case "list LinkedList 9 twice", "list strings twice", "map TreeMap", "object sql date", "object twice":
			want = 2
		case "list LinkedList":
			want = 1
			if g.dialect == Draft {
				want = 2
			}
		case "list long[] twice", "list long[] thrice", "object Point chain", "object enum":
			want = 3
		case "object classes 20":
			want = 40
		}
		if err != nil || values != want {
			t.Errorf("%s: %s is %d values, %v, want %d", g.file, g.name, values, err, want)
		}
	}
}

// TestTruncatedAnywhere verifies the error of values that are truncated at any byte.
func TestTruncatedAnywhere(t *testing.T) {
	for _, g := range goldens(t) {
		for n := range g.bytes {
			values, err := walk(g.dialect, g.bytes[:n])
			if err == nil && values > 0 {
				continue // between two values
			}
			if n == 0 {
				continue // no value at all
			}
			parseErr, ok := err.(*Error)
			if !ok || parseErr.Rule != ruleTruncated && parseErr.Rule != ruleCount || parseErr.Offset > n {
				t.Fatalf("%s: %s truncated at byte %d of %d: %v, want the error of a truncated body", g.file, g.name, n, len(g.bytes), err)
			}
		}
	}
}

// capture is the body of a captured frame.
type capture struct {
	name    string
	dialect Dialect
	body    []byte
}

// captures returns the bodies of the captured frames.
func captures(tb testing.TB) []capture {
	tb.Helper()
	files, err := filepath.Glob("testdata/*/*.hex")
	if err != nil || len(files) == 0 {
		tb.Fatal("no captures", err)
	}
	var list []capture
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		frame, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		c := capture{name: filepath.Base(file), body: frame[16:]}
		if filepath.Base(filepath.Dir(file)) == "bolt" {
			c.dialect = Draft
			c.body = boltContent(frame)
		}
		list = append(list, c)
	}
	return list
}

func boltContent(frame []byte) []byte {
	version, request := frame[0], frame[1] != 0
	headSize := 20 // of a response in version 1
	if version == 2 {
		headSize, request = 22, frame[2] != 0
	}
	if request {
		headSize += 2
	}
	lengths := frame[headSize-8 : headSize]
	class := int(lengths[0])<<8 | int(lengths[1])
	header := int(lengths[2])<<8 | int(lengths[3])
	content := int(lengths[6])<<8 | int(lengths[7])
	start := headSize + class + header
	return frame[start : start+content]
}

func TestWalkCaptures(t *testing.T) {
	want := map[string]int{
		"01-request-string.hex":                    7,
		"02-response-value-with-attachments.hex":   4,
		"03-request-user-attachment.hex":           7,
		"05-request-pojo-call.hex":                 8,
		"06-response-pojo.hex":                     4,
		"08-response-exception-throwable.hex":      4,
		"12-request-unknown-method.hex":            7,
		"14-request-oneway.hex":                    7,
		"16-heartbeat-request-client.hex":          1,
		"17-heartbeat-response-server.hex":         2,
		"v1-01-c2s-request-crc0-id1.hex":           2,
		"v1-03-c2s-heartbeat-request-crc0-id3.hex": 0,
	}
	for _, c := range captures(t) {
		values, err := walk(c.dialect, c.body)
		n, listed := want[c.name]
		if err != nil || listed && values != n || !listed && c.dialect == Final {
			t.Errorf("%s: %d values, %v, want %d", c.name, values, err, n)
		}
		for size := range c.body {
			_, err := walk(c.dialect, c.body[:size])
			if parseErr, ok := err.(*Error); err != nil && (!ok || parseErr.Rule != ruleTruncated && parseErr.Rule != ruleCount) {
				t.Fatalf("%s truncated at byte %d: %v, want nil or the error of a truncated body", c.name, size, err)
			}
		}
	}
}

func TestReadCapturedRequest(t *testing.T) {
	for _, c := range captures(t) {
		if c.name != "03-request-user-attachment.hex" {
			continue
		}
		d := newDecoder(Final, c.body)
		for _, want := range []string{"2.0.2", "org.example.demo.UserService", "1.0.0", "SayHello", "Ljava/lang/String;"} {
			if got, err := d.Text(); string(got) != want || err != nil {
				t.Fatalf("text = %q, %v, want %q", got, err, want)
			}
		}
		if err := d.Skip(); err != nil {
			t.Fatal(err)
		}
		const want = "interface=org.example.demo.UserService timeout=3000 async=false x-trace=t-42 group=g1 version=1.0.0 environment=dev path=org.example.demo.UserService "
		head, entries := readMap(t, d)
		if string(head) != "H" || entries != want || d.Kind() != End {
			t.Errorf("attachments %q %s, then %v\nwant %s", head, entries, d.Kind(), want)
		}
	}
}

// readMap reads a map and returns its head and its entries as text.
func readMap(tb testing.TB, d *Decoder) (head []byte, entries string) {
	tb.Helper()
	head, err := d.Map()
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	var e Entry
	for {
		more, err := d.Entry(&e)
		if err != nil {
			tb.Fatal(err)
		}
		if !more {
			return head, b.String()
		}
		key, value := string(e.Key), string(e.Value)
		if e.Key == nil {
			key = "?"
		}
		if e.Value == nil {
			value = e.Kind.String() + "?"
		}
		if e.DefinesNumbers {
			value += "+"
		}
		if e.HasReference {
			value += "^"
		}
		fmt.Fprintf(&b, "%s=%s ", key, value)
	}
}
