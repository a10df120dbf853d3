package frame

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// captured returns a frame that a real application sent, from testdata.
func captured(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// find returns the protocol with the name, or fails the test.
func find(t *testing.T, name string) *Protocol {
	t.Helper()
	p, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// withID returns a copy of the frame with the id.
func withID(enc encoding, b []byte, id uint64) []byte {
	b = bytes.Clone(b)
	enc.setID(b, id)
	return b
}

// TestAppendMatchesCapturedFrames verifies that the encoders reproduce the captured frames.
func TestAppendMatchesCapturedFrames(t *testing.T) {
	user := "org.example.demo.UserService"
	dubboRequest := dubboCall{
		service: user, version: "1.0.0", method: "SayHello", argument: "world",
		attachments: []pair{
			{"environment", "dev"}, {"path", user}, {"interface", user}, {"group", "g1"},
			{"version", "1.0.0"}, {"timeout", "3000"}, {"async", "false"},
		},
	}.frame()
	const hello = "com.alipay.sofa.rpc.quickstart.HelloService:1.0"
	call := boltMessage{
		kind: boltRequest, command: boltCall, timeout: 3000, class: boltRequestClass,
		header: boltHeader(pair{"service", hello}), content: boltArguments(hello, "sayHello", "0a0fe8f1", "peter"),
	}
	response := boltMessage{kind: boltResponse, command: boltReturn, class: boltResponseClass, content: boltValue("hello peter !")}
	v1, v2 := bolt{version: 1}, bolt{version: 2}
	tests := []struct {
		file  string
		enc   encoding
		frame []byte
		id    uint64
	}{
		{"dubbo-request", dubbo{}, dubboRequest, 2},
		{"dubbo-ping", dubbo{}, find(t, "dubbo").ping, 0x4c},
		{"bolt-request", v1, v1.frame(call), 1},
		{"bolt-response", v1, v1.frame(response), 1},
		{"bolt-ping", v1, find(t, "bolt").ping, 3},
		{"bolt-pong", v1, find(t, "bolt").pong, 3},
		{"boltv2-request", v2, v2.frame(call), 1},
		{"boltv2-response", v2, v2.frame(response), 1},
		{"boltv2-ping", v2, find(t, "boltv2").ping, 3},
		{"boltv2-pong", v2, find(t, "boltv2").pong, 3},
	}
	for _, test := range tests {
		t.Run(test.file, func(t *testing.T) {
			want := captured(t, test.file)
			if got := withID(test.enc, test.frame, test.id); !bytes.Equal(got, want) {
				t.Errorf("encoded %x, want the captured frame %x", got, want)
			}
		})
	}
}

func TestParseCapturedFrames(t *testing.T) {
	tests := []struct {
		file string
		kind Kind
		id   uint64
		text string
	}{
		{"dubbo-request", Request, 2, "world"},
		{"dubbo-response", Response, 2, "hello world"},
		{"dubbo-ping", Ping, 0x4c, ""},
		{"dubbo-pong", Pong, 0x4c, ""},
		{"bolt-ping", Ping, 3, ""},
		{"bolt-pong", Pong, 3, ""},
		{"boltv2-ping", Ping, 3, ""},
		{"boltv2-pong", Pong, 3, ""},
	}
	for _, test := range tests {
		t.Run(test.file, func(t *testing.T) {
			b := captured(t, test.file)
			name, _, _ := strings.Cut(test.file, "-")
			n, f, err := find(t, name).Parse(b)
			if err != nil || n != len(b) || f.Kind != test.kind || f.ID != test.id || string(f.Text) != test.text {
				t.Errorf("Parse(%x) = %d, %+v, %v, want %d, kind %d, id %d, %q", b, n, f, err, len(b), test.kind, test.id, test.text)
			}
		})
	}
}

// TestRoundTrip verifies that Parse decodes the frames that each protocol encodes.
func TestRoundTrip(t *testing.T) {
	text := Text{Hold: 0x0badcafe, Token: 0x0123456789abcdef}
	for _, p := range All() {
		t.Run(p.Name(), func(t *testing.T) {
			for _, id := range []uint64{0, 1, 0x01020304, p.LargestID()} {
				request := p.AppendRequest([]byte("before"), id, text)[len("before"):]
				n, f, err := p.Parse(request)
				if err != nil || n != len(request) || f.Kind != Request || f.ID != id || !p.HasText(f.Text, text) {
					t.Fatalf("request %d: Parse = %d, %+v, %v; want the request", id, n, f, err)
				}
				if hold, err := ReadHold(f.Text); hold != text.Hold || err != nil {
					t.Errorf("ReadHold(%.30q) = %#x, %v, want %#x", f.Text, hold, err, text.Hold)
				}
				response := p.AppendResponse([]byte("before"), id, f.Text)[len("before"):]
				n, f, err = p.Parse(response)
				if err != nil || n != len(response) || f.Kind != Response || f.ID != id || !p.HasText(f.Text, text) {
					t.Fatalf("response %d: Parse = %d, %+v, %v; want the response", id, n, f, err)
				}
				for kind, b := range map[Kind][]byte{Ping: p.AppendPing(nil, id), Pong: p.AppendPong(nil, id)} {
					if n, f, err := p.Parse(b); err != nil || n != len(b) || f.Kind != kind || f.ID != id {
						t.Errorf("kind %d: Parse(%x) = %d, %+v, %v, want id %d", kind, b, n, f, err, id)
					}
				}
			}
			if size := len(p.request); size < Size || size > 2*Size {
				t.Errorf("a request has %d bytes, want about %d", size, Size)
			}
		})
	}
}

// TestParseIncompleteFrame verifies that Parse waits for the rest of an incomplete frame and
// ignores the bytes after a frame.
func TestParseIncompleteFrame(t *testing.T) {
	for _, p := range All() {
		for _, b := range [][]byte{p.request, p.response, p.ping, p.pong} {
			for size := range b {
				if n, _, err := p.Parse(b[:size]); n != 0 || err != nil {
					t.Fatalf("%s: Parse of %d bytes of %d = %d, %v, want 0 and no error", p.Name(), size, len(b), n, err)
				}
			}
			if n, _, err := p.Parse(append(bytes.Clone(b), b...)); n != len(b) || err != nil {
				t.Errorf("%s: Parse of two frames = %d, %v, want %d", p.Name(), n, err, len(b))
			}
		}
	}
}

func TestHasText(t *testing.T) {
	p := find(t, "dubbo")
	text := Text{Hold: 1, Token: 2}
	valid := p.AppendRequest(nil, 0, text)[p.requestTextOffset:][:Size]
	if !p.HasText(valid, text) {
		t.Fatalf("HasText(%.40q) = false for %+v, want true", valid, text)
	}
	for i := range valid {
		changed := bytes.Clone(valid)
		changed[i] ^= 1
		if p.HasText(changed, text) {
			t.Errorf("HasText accepts a text with byte %d changed", i)
		}
	}
	for _, other := range []Text{{Hold: 1, Token: 3}, {Hold: 2, Token: 2}} {
		if p.HasText(valid, other) {
			t.Errorf("HasText(%.40q) = true for %+v, want false", valid, other)
		}
	}
	if p.HasText(valid[:Size-1], text) {
		t.Error("HasText accepts a shorter string")
	}
	for _, text := range []string{"", strings.Repeat("x", Size)} {
		if _, err := ReadHold([]byte(text)); err == nil {
			t.Errorf("ReadHold(%.10q): no error", text)
		}
	}
}

func TestParseErrors(t *testing.T) {
	frameOf := func(name string, change func(p *Protocol) []byte) func() (*Protocol, []byte) {
		return func() (*Protocol, []byte) {
			p := find(t, name)
			return p, change(p)
		}
	}
	withBytes := func(b []byte, i int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[i:], v)
		return b
	}
	tests := []struct {
		name    string
		frame   func() (*Protocol, []byte)
		wantErr string
	}{
		{"dubbo: other bytes", frameOf("dubbo", func(*Protocol) []byte { return []byte("HTTP/1.1") }), "begins with 4854"},
		{"dubbo: long body", frameOf("dubbo", func(p *Protocol) []byte { return withBytes(p.response, 12, 0x7f) }), "a body of 21"},
		{"dubbo: error status", frameOf("dubbo", func(p *Protocol) []byte { return withBytes(p.response, 3, 100) }), "status 100"},
		{"dubbo: exception", frameOf("dubbo", func(*Protocol) []byte { return captured(t, "dubbo-exception") }), "without a value"},
		{"dubbo: one-way request", frameOf("dubbo", func(p *Protocol) []byte { return withBytes(p.request, 2, 0x82) }), "one-way request"},
		{"dubbo: no value", frameOf("dubbo", func(p *Protocol) []byte { return withBytes(p.response, 16, 0x90) }), "without a value"},
		{"dubbo: no string", frameOf("dubbo", func(p *Protocol) []byte { return withBytes(p.request, 16, 'T') }), "not a string"},
		{"dubbo: string too long", frameOf("dubbo", func(p *Protocol) []byte { return withBytes(p.response, 18, 0x70) }), "a string of 28"},
		{"bolt: other bytes", frameOf("bolt", func(*Protocol) []byte { return []byte("x") }), "begins with 0x78"},
		{"bolt: unknown type", frameOf("bolt", func(p *Protocol) []byte { return withBytes(p.request, 1, 7) }), "type 7"},
		{"bolt: error status", frameOf("bolt", func(p *Protocol) []byte { return withBytes(p.response, 10, 0, 6) }), "status 6"},
		{"bolt: long content", frameOf("bolt", func(p *Protocol) []byte { return withBytes(p.response, 16, 1) }), "content of 167"},
		{"bolt: another trailer", frameOf("bolt", func(p *Protocol) []byte { return withBytes(p.response, len(p.response)-1, 'F') }), "does not end with"},
		{"boltv2: another checksum", frameOf("boltv2", func(p *Protocol) []byte { return withBytes(p.response, 300, '!') }), "checksum"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, b := test.frame()
			if n, _, err := p.Parse(b); err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("Parse(%.60x) = %d, %v, want an error with %q", b, n, err, test.wantErr)
			}
		})
	}
}

func TestParseOneWay(t *testing.T) {
	readOnly := dubboFrame(dubboRequest|dubboEvent, 0, []byte("\x01R"))
	v := bolt{version: 1}
	oneWay := v.frame(boltMessage{kind: boltRequest, command: 100})
	oneWay[1] = boltOneWay
	for name, b := range map[string][]byte{"dubbo": readOnly, "bolt": oneWay} {
		if n, f, err := find(t, name).Parse(b); err != nil || n != len(b) || f.Kind != OneWay {
			t.Errorf("%s: Parse(%x) = %d, %+v, %v, want a one-way message", name, b, n, f, err)
		}
	}
}

func TestFirstBytesDiffer(t *testing.T) {
	for _, p := range All() {
		for _, other := range All() {
			if got := other.StartsWith(p.request[0]); got != (p.Name() == other.Name()) {
				t.Errorf("%s starts with the first byte of %s: %v, want %v", other.Name(), p.Name(), got, p.Name() == other.Name())
			}
		}
		if p.StartsWith('G') || p.StartsWith('P') {
			t.Errorf("%s starts with the first byte of GET or POST, want neither", p.Name())
		}
	}
	if _, err := Find("tars"); err == nil {
		t.Error("Find(tars): no error")
	}
}

func TestAppendAndParseDoNotAllocate(t *testing.T) {
	for _, p := range All() {
		b := make([]byte, 0, 8<<10)
		text := Text{Token: 7}
		if n := testing.AllocsPerRun(100, func() {
			b = p.AppendRequest(b[:0], 1, text)
			_, f, err := p.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			b = p.AppendResponse(b, 1, f.Text)
			if _, err := ReadHold(f.Text); err != nil || !p.HasText(f.Text, text) {
				t.Fatal("not the string")
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations per request, want none", p.Name(), n)
		}
	}
}
