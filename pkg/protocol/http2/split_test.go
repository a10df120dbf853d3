package http2

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// splitReceiver is a session that receives bytes in arbitrary pieces and logs the results.
type splitReceiver struct {
	r             *scriptRunner
	awaitsPreface bool // the preface has not arrived yet
	pending       []byte
	log           []string
	out           []byte
	finished      bool // an error has ended the connection
}

func newSplitReceiver(role Role) *splitReceiver {
	sr := &splitReceiver{r: newScriptRunner(Config{Role: role}), awaitsPreface: role == Server}
	sr.r.runLine("start")
	if role == Client {
		for _, method := range []string{"GET end", "HEAD end", "POST", "POST"} {
			sr.r.runLine("request " + method)
		}
	}
	return sr
}

// receive processes b, and resets streams that fail, as the engine does.
func (sr *splitReceiver) receive(b []byte) {
	sr.pending = append(sr.pending, b...)
	for !sr.finished {
		n, err := sr.step()
		if err != nil {
			sr.log = append(sr.log, errorText(err))
		}
		if n == 0 {
			return
		}
		sr.pending = sr.pending[n:]
	}
}

// step processes the preface or one frame and returns its length, or 0 if it is incomplete.
func (sr *splitReceiver) step() (int, error) {
	if sr.awaitsPreface {
		n, err := ParsePreface(sr.pending)
		sr.awaitsPreface, sr.finished = n == 0, err != nil
		return n, err
	}
	f, n, err := ParseFrame(sr.pending, sr.r.s.MaxFrameSize())
	if n == 0 || err != nil {
		sr.finished = err != nil
		return 0, err
	}
	var e Event
	sr.out, err = sr.r.s.Handle(sr.out, f, epoch, &e)
	if e.Kind != NoEvent {
		sr.log = append(sr.log, sr.r.eventText(&e)+fmt.Sprintf(" %x", e.Data))
	}
	var streamErr *StreamError
	if errors.As(err, &streamErr) {
		var flood error
		if sr.out, flood = sr.r.s.Fail(sr.out, streamErr, epoch); flood != nil {
			err = flood
		}
	}
	var c *ConnectionError
	sr.finished = errors.As(err, &c)
	return n, err
}

// receiveAll returns a receiver that has received all of b in one piece.
func receiveAll(role Role, b []byte) *splitReceiver {
	sr := newSplitReceiver(role)
	sr.receive(b)
	return sr
}

func (sr *splitReceiver) compare(other *splitReceiver) error {
	if !slices.Equal(sr.log, other.log) {
		return fmt.Errorf("events\n%s\nwant\n%s", strings.Join(sr.log, "\n"), strings.Join(other.log, "\n"))
	}
	if !bytes.Equal(sr.out, other.out) {
		return fmt.Errorf("sent %q, want %q", sr.r.describer.describe(sr.out), other.r.describer.describe(other.out))
	}
	return nil
}

// allFrameTypes returns the bytes that the peer of a session sends on a connection that uses every
// frame type.
func allFrameTypes(t testing.TB, role Role) []byte {
	t.Helper()
	var b []byte
	if role == Server {
		b = append(b, Preface...)
	}
	lines := []string{
		"SETTINGS INITIAL_WINDOW_SIZE=1000 HEADER_TABLE_SIZE=100", "SETTINGS ack", "WINDOW_UPDATE 0 5", "PING 1",
		"HEADERS 1 end GET", "PRIORITY 9 3", "HEADERS 3 more pad=3 priority=1 | :method: POST | :scheme: http | :authority: a",
		"CONTINUATION 3 more | :path: /a", "CONTINUATION 3 | content-length: 5 | cookie: a | cookie: b", "DATA 3 pad=2 3", "DATA 3 0",
		"DATA 3 2", "HEADERS 3 end TRAILER", "HEADERS 5 POST", "WINDOW_UPDATE 5 9", "RST_STREAM 5 CANCEL", "DATA 5 1",
		"HEADERS 7 POST", "DATA 7 end 9", "DATA 7 2", "PRIORITY_UPDATE 0", "RAW 77 255 7 0102", "PING ack 5", "GOAWAY 0 NO_ERROR",
		"HEADERS 9 end | :method: GET | X: 1", "DATA 0 1",
	}
	if role == Client {
		lines = []string{
			"SETTINGS MAX_FRAME_SIZE=20000", "SETTINGS ack", "HEADERS 1 100", "HEADERS 1 end 200", "HEADERS 3 end | :status: 200 | content-length: 7",
			"HEADERS 5 more | :status: 200", "CONTINUATION 5 more | content-length: 4", "RAW 9 4 5", "DATA 5 pad=0 4", "HEADERS 5 end TRAILER",
			"WINDOW_UPDATE 7 8", "RST_STREAM 7 REFUSED_STREAM", "PING 2", "GOAWAY 5 NO_ERROR", "DATA 7 1", "PUSH_PROMISE 1 2",
		}
	}
	for _, line := range lines {
		f, err := makeFrame(line)
		if err != nil {
			t.Fatal(err)
		}
		b = AppendFrameHeader(b, len(f.Payload), f.Type, f.Flags, f.Stream)
		b = append(b, f.Payload...)
	}
	return b
}

// TestResultsDoNotDependOnReadBoundaries verifies that results do not depend on where reads end,
// and that the session waits for missing bytes.
func TestResultsDoNotDependOnReadBoundaries(t *testing.T) {
	for _, role := range []Role{Client, Server} {
		b := allFrameTypes(t, role)
		want := receiveAll(role, b)
		if !want.finished || len(want.log) < 10 {
			t.Fatalf("the log of role %d is too short: %q", role, want.log)
		}
		single := newSplitReceiver(role)
		for i := range b {
			sr := newSplitReceiver(role)
			sr.receive(b[:i])
			if i < len(b)-10 && sr.finished {
				t.Fatalf("role %d, the first %d bytes: results %q, want no connection error", role, i, sr.log)
			}
			sr.receive(b[i:])
			if err := sr.compare(want); err != nil {
				t.Fatalf("role %d, split at %d: %v", role, i, err)
			}
			single.receive(b[i : i+1])
		}
		if err := single.compare(want); err != nil {
			t.Fatalf("role %d, byte by byte: %v", role, err)
		}
	}
}

// TestShortenedFrames shortens the payload and the length of frames. It verifies that the session
// never reads beyond the payload.
func TestShortenedFrames(t *testing.T) {
	for _, role := range []Role{Client, Server} {
		rest := bytes.TrimPrefix(allFrameTypes(t, role), []byte(Preface))
		var previous []byte
		if role == Server {
			previous = []byte(Preface)
		}
		for len(rest) > 0 {
			f, n, err := ParseFrame(rest, MaxFrameSize)
			if err != nil || n == 0 {
				t.Fatalf("ParseFrame = %d, %v; want a complete frame", n, err)
			}
			for size := range len(f.Payload) {
				sr := newSplitReceiver(role)
				sr.receive(previous)
				out := len(sr.out)
				sr.receive(append(AppendFrameHeader(nil, size, f.Type, f.Flags, f.Stream), f.Payload[:size]...))
				if len(sr.pending) > 0 && !sr.finished {
					t.Fatalf("%v of %d bytes instead of %d: %d bytes are pending, want 0", f.Type, size, len(f.Payload), len(sr.pending))
				}
				if fixedSize := f.Type == FramePing || f.Type == FrameWindowUpdate || f.Type == FrameRSTStream; fixedSize && (!sr.finished || len(sr.out) > out) {
					t.Fatalf("%v of %d bytes instead of %d: results %q, want an error", f.Type, size, len(f.Payload), sr.log)
				}
			}
			previous = append(previous, rest[:n]...)
			rest = rest[n:]
		}
	}
}

// TestOversizedFrameIsRejectedByItsHeader verifies that a frame above the limit is rejected by its
// header, before its payload arrives.
func TestOversizedFrameIsRejectedByItsHeader(t *testing.T) {
	for ty := range FrameType(20) {
		header := AppendFrameHeader(nil, MinFrameSize+1, ty, 0, 1)
		var c *ConnectionError
		if _, _, err := ParseFrame(header, MinFrameSize); !errors.As(err, &c) || c.Code != FrameSizeError {
			t.Errorf("%v of %d bytes: %v, want FRAME_SIZE_ERROR", ty, MinFrameSize+1, err)
		}
		if _, n, err := ParseFrame(header, MinFrameSize+1); n != 0 || err != nil {
			t.Errorf("%v of %d bytes within the limit: %d, %v, want incomplete", ty, MinFrameSize+1, n, err)
		}
	}
}

// FuzzBytes verifies that events, frames and errors do not depend on how the input is split.
func FuzzBytes(f *testing.F) {
	for _, role := range []Role{Client, Server} {
		f.Add(allFrameTypes(f, role), []byte{1, 9, 30}, role == Server)
	}
	f.Fuzz(func(t *testing.T, b, sizes []byte, server bool) {
		role := Client
		if server {
			role = Server
		}
		want := receiveAll(role, b)
		sr := newSplitReceiver(role)
		rest := b
		for _, c := range sizes {
			n := min(int(c), len(rest))
			sr.receive(rest[:n])
			rest = rest[n:]
		}
		sr.receive(rest)
		if err := sr.compare(want); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzHeads verifies that every request that a server accepts can be sent, and that the receiver
// gets the same request.
func FuzzHeads(f *testing.F) {
	for _, text := range []string{
		":method: GET\n:scheme: http\n:path: /\n:authority: a",
		":method: POST\n:scheme: https\n:path: /a?b\nhost: a:80\ncookie: a\nx: y\ncookie: b\ncontent-length: 7\nte: trailers\nexpect: 100-continue",
		":method: CONNECT\n:authority: a:443",
		":method: CONNECT\n:scheme: http\n:path: /\n:authority: [::1]\n:protocol: websocket",
		":method: OPTIONS\n:scheme: http\n:path: *\n:authority: a%41\nset-cookie: a\ntrailer: x",
	} {
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, end bool) {
		var block []byte
		for line := range strings.SplitSeq(text, "\n") {
			colon := strings.IndexByte(line[min(1, len(line)):], ':') + 1
			block = append(block, 0)
			block = appendText(appendText(block, line[:colon]), strings.TrimPrefix(line[colon:], ": "))
		}
		if len(block) > MinFrameSize {
			return
		}
		first, trailers := readHead(t, block, end)
		if first == nil {
			return
		}
		checkRequest(t, first)
		first.ExpectContinue = first.ExpectContinue && !end // there is no body to delay
		client := NewSession(Config{Role: Client})
		client.peerSettings.EnableConnectProtocol = true
		b, _, err := client.AppendRequest(nil, first, RequestOptions{End: end, AcceptsTrailers: trailers})
		if err != nil {
			t.Fatalf("the accepted request %q: AppendRequest: %v, want no error", text, err)
		}
		frame, n, err := ParseFrame(b, MaxFrameSize)
		if err != nil || n != len(b) {
			t.Fatalf("ParseFrame = %d, %v; want %d", n, err, len(b))
		}
		second, secondTrailers := readHead(t, frame.Payload, end)
		if second == nil {
			t.Fatalf("the accepted request %q is sent as %x, which a server rejects", text, b)
		}
		if got, want := requestText(second), requestText(first); got != want || trailers != secondTrailers {
			t.Fatalf("%q is received again as\n%s, want\n%s", text, got, want)
		}
	})
}

// readHead parses a request as a server does; req is nil if it is rejected.
func readHead(t *testing.T, block []byte, end bool) (req *protocol.Request, trailers bool) {
	t.Helper()
	s := NewSession(Config{Role: Server, EnableConnect: true})
	s.settingsReceived = true
	var e Event
	_, err := s.Handle(nil, Frame{Type: FrameHeaders, Flags: FlagEndHeaders | endFlag(end), Stream: 1, Payload: block}, epoch, &e)
	if err != nil {
		checkError(t, err, 1)
		return nil, false
	}
	if e.Kind != HeadersArrived {
		t.Fatalf("event %v, want headers", e.Kind)
	}
	var x protocol.Exchange
	x.Reset()
	if _, err := s.TakeRequest(&x.Request, nil); err != nil {
		return nil, false
	}
	return &x.Request, s.AcceptsTrailers()
}

// checkRequest fails if r has a part that must not be written to HTTP/1.1.
func checkRequest(t *testing.T, r *protocol.Request) {
	t.Helper()
	tunnel := r.Method == "CONNECT"
	if !isToken(r.Method) || !tunnel && r.Path != "*" && !isPath(r.Path) || strings.ContainsAny(r.Authority, "\r\n\x00 @") || r.Authority == "" {
		t.Fatalf("request %s %q at %q, want parts that are valid in HTTP/1.1", r.Method, r.Path, r.Authority)
	}
	for name, value := range r.Header.All() {
		if name == "te" && value == "trailers" {
			continue
		}
		if !allInClass(name, nameByte) || name == "" || !isFieldValue(value) || !knownFieldKind(name).isForwarded() {
			t.Fatalf("field %q: %q, want an end-to-end field that is valid in HTTP/1.1", name, value)
		}
	}
}

func requestText(r *protocol.Request) string {
	return fmt.Sprintln(r.Method, r.Scheme, r.Authority, r.Path, r.Upgrade, r.ContentLength, r.ExpectContinue) + fieldsText(&r.Header)
}

// checkError fails unless err is a well-formed *ConnectionError, or a *StreamError of stream.
func checkError(t *testing.T, err error, stream uint32) {
	t.Helper()
	var c *ConnectionError
	var st *StreamError
	switch {
	case errors.As(err, &c) && c.Code != NoError && int(c.Code) < len(codeNames) && c.Reason != "" && (c.Flood == NoFlood) == (c.Code != EnhanceYourCalm):
	case errors.As(err, &st) && st.Code != NoError && int(st.Code) < len(codeNames) && st.Reason != "" && st.ID == stream && stream != 0:
	default:
		t.Fatalf("error %#v (%v) for a frame on stream %d, want a *ConnectionError, or a *StreamError of the stream", err, err, stream)
	}
}
