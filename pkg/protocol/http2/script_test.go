package http2

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestScripts runs testdata/*.script. A line is an input of a session; the indented lines below it
// are the expected results: "=" an event, "!" an error, "<" a sent frame.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.script")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".script"), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, path, runScript(string(b)))
		})
	}
}

// runScript returns the script with the actual results of its lines.
func runScript(text string) string {
	var out strings.Builder
	var r *scriptRunner
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line)
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "client"), strings.HasPrefix(line, "server"):
			r = newScriptRunner(configOf(line))
			if !strings.HasSuffix(line, " shown") {
				r.start(line)
				continue
			}
			line = "start"
		}
		for _, s := range r.runLine(line) {
			out.WriteString("  " + s + "\n")
		}
	}
	return out.String()
}

// start starts the session. If the line ends in "ready", the session also receives the peer's first
// SETTINGS.
func (r *scriptRunner) start(line string) {
	r.runLine("start")
	if strings.HasSuffix(line, " ready") {
		r.runLine("> SETTINGS")
	}
}

// configOf parses a line such as "server max-streams=2 ready".
func configOf(line string) Config {
	words := strings.Fields(line)
	cfg := Config{Role: Client}
	if words[0] == "server" {
		cfg.Role = Server
	}
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			continue
		}
		n := number(value)
		switch key {
		case "max-streams":
			cfg.MaxConcurrentStreams = uint32(n)
		case "stream-window":
			cfg.StreamWindow = uint32(n)
		case "connection-window":
			cfg.ConnectionWindow = uint32(n)
		case "table":
			cfg.HeaderTableSize = uint32(n)
		case "max-list":
			cfg.MaxHeaderListSize = uint32(n)
		case "max-fields":
			cfg.MaxFields = n
		case "connect":
			cfg.EnableConnect = n == 1
		default:
			panic("no such key: " + w)
		}
	}
	return cfg
}

// scriptRunner is a session, a reader of the frames that it sends, and the streams that it had.
type scriptRunner struct {
	s         *Session
	describer *frameDescriber
	streams   map[uint32]*Stream
	now       time.Time
	streamErr *StreamError
}

func newScriptRunner(cfg Config) *scriptRunner {
	return &scriptRunner{s: NewSession(cfg), describer: newFrameDescriber(), streams: make(map[uint32]*Stream), now: epoch}
}

// state returns the state of stream id, or Idle if the session had no such stream.
func (r *scriptRunner) state(id uint32) State {
	if st := r.streams[id]; st != nil {
		return st.State()
	}
	return Idle
}

// runLine runs one line and returns its results.
func (r *scriptRunner) runLine(line string) []string {
	if frame, ok := strings.CutPrefix(line, "> "); ok {
		return r.receive(frame, 1)
	}
	head, fields, _ := strings.Cut(line, "|")
	words := strings.Fields(head)
	if words[0] == "repeat" {
		_, frame, _ := strings.Cut(line, "> ")
		return r.receive(frame, number(words[1]))
	}
	var flags []string
	var args []string
	for _, w := range words[1:] {
		if w == "end" {
			flags = append(flags, w)
		} else {
			args = append(args, w)
		}
	}
	out, err := r.callMethod(words[0], args, len(flags) > 0, headerOf(fields))
	var lines []string
	if err != nil {
		lines = append(lines, "! "+err.Error())
	}
	return append(lines, r.describeSent(out)...)
}

func (r *scriptRunner) describeSent(out []byte) []string {
	lines := r.describer.describe(out)
	for i := range lines {
		lines[i] = "< " + lines[i]
	}
	return lines
}

func headerOf(fields string) *protocol.Header {
	h := new(protocol.Header)
	if fields == "" {
		return h
	}
	for f := range strings.SplitSeq(fields, "|") {
		name, value, _ := strings.Cut(strings.TrimSpace(f), ": ")
		h.Add(name, unquote(value))
	}
	return h
}

// receive passes a frame to the session n times, or until the session returns an error, and returns
// the last result.
func (r *scriptRunner) receive(text string, n int) []string {
	f, err := makeFrame(text)
	if err != nil {
		panic(err)
	}
	var lines []string
	for i := range n {
		var e Event
		out, err := r.s.Handle(nil, f, r.now, &e)
		lines = lines[:0]
		switch {
		case err != nil:
			if n > 1 {
				lines = append(lines, fmt.Sprintf("# number %d", i+1))
			}
			lines = append(lines, "! "+errorText(err))
			_ = errors.As(err, &r.streamErr)
		case e.Kind != NoEvent:
			lines = append(lines, "= "+r.eventText(&e))
		}
		lines = append(lines, r.describeSent(out)...)
		if err != nil {
			break
		}
	}
	return lines
}

func errorText(err error) string {
	var c *ConnectionError
	if errors.As(err, &c) && c.Flood != NoFlood {
		return fmt.Sprintf("%v [%v]", err, c.Flood)
	}
	return err.Error()
}

// eventText describes an event, and takes its message from the session.
func (r *scriptRunner) eventText(e *Event) string {
	s := e.Kind.String()
	if e.Stream != nil {
		r.streams[e.Stream.ID] = e.Stream
		s += fmt.Sprintf(" %d", e.Stream.ID)
	}
	if e.End {
		s += " end"
	}
	switch e.Kind {
	case HeadersArrived:
		s += r.headText(e)
	case TrailersArrived:
		var h protocol.Header
		r.s.TakeTrailer(&h, nil)
		s += headerText(&h)
	case DataArrived:
		s += fmt.Sprintf(" %d", len(e.Data))
	case StreamReset:
		s += " " + e.Code.String()
	case PingAcked:
		s += fmt.Sprintf(" %d", e.Ping)
	case GoAwayArrived:
		s += fmt.Sprintf(" %d %v", e.LastStreamID, e.Code)
		var unprocessed []string
		for st := range r.s.Streams() {
			if r.s.Unprocessed(st) {
				unprocessed = append(unprocessed, fmt.Sprintf(" unprocessed: %d", st.ID))
			}
		}
		slices.Sort(unprocessed)
		s += strings.Join(unprocessed, "")
	}
	return s
}

func (r *scriptRunner) headText(e *Event) string {
	var x protocol.Exchange
	x.Reset()
	if r.s.cfg.Role == Client {
		r.s.TakeResponse(e.Stream, &x.Response, nil)
		return fmt.Sprintf(" %d", x.Response.Status) + lengthText(x.Response.ContentLength) + headerText(&x.Response.Header)
	}
	req := &x.Request
	_, err := r.s.TakeRequest(req, nil)
	s := fmt.Sprintf(" %s %s://%s %s", req.Method, req.Scheme, req.Authority, req.Path) + lengthText(req.ContentLength)
	if req.Upgrade != "" {
		s += " upgrade to " + req.Upgrade
	}
	if req.ExpectContinue {
		s += " expects 100"
	}
	if r.s.AcceptsTrailers() {
		s += " wants trailers"
	}
	s += headerText(&req.Header)
	if err != nil {
		s += " ! " + err.Error()
	}
	return s
}

func lengthText(n int64) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", n)
}

func headerText(h *protocol.Header) string {
	var s strings.Builder
	for name, value := range h.All() {
		fmt.Fprintf(&s, " | %s: %s", name, value)
	}
	return s.String()
}

// callMethod calls the method of the session that verb names.
func (r *scriptRunner) callMethod(verb string, args []string, end bool, h *protocol.Header) (out []byte, err error) {
	var st *Stream
	if len(args) > 0 && verb != "ping" && isDigit(args[0][0]) {
		st = r.streams[uint32(number(args[0]))]
		args = args[1:]
	}
	switch verb {
	case "start":
		return r.s.AppendPreface(nil), nil
	case "request":
		return r.request(args, end, h)
	case "response":
		resp := newResponse(number(args[0]), -1)
		if len(args) > 1 {
			resp.ContentLength = int64(number(args[1]))
		}
		resp.Header = *h
		return r.s.AppendResponse(nil, st, resp, ResponseOptions{End: end})
	case "interim":
		return r.s.AppendInterim(nil, st, number(args[0]), h)
	case "data":
		var n int
		size := number(args[0])
		if out, n, err = r.s.AppendData(nil, st, make([]byte, size), end); err == nil && n < size {
			err = fmt.Errorf("%d of %d bytes", n, size)
		}
		return out, err
	case "trailer":
		return r.s.AppendTrailer(nil, st, h)
	case "consume":
		return r.s.ReportConsumed(nil, st, number(args[0])), nil
	case "reset":
		return r.s.Reset(nil, st, code(args[0])), nil
	case "release":
		return r.s.Release(nil, st, Cancel), nil
	case "fail":
		return r.s.Fail(nil, r.streamErr, r.now)
	case "goaway":
		return r.s.AppendGoAway(nil, code(args[0]), ""), nil
	case "shutdown":
		return r.s.AppendShutdownNotice(nil), nil
	case "ping":
		return r.s.AppendPing(nil, uint64(number(args[0]))), nil
	case "wait":
		d, err := time.ParseDuration(args[0])
		r.now = r.now.Add(d)
		return nil, err
	case "exhaust":
		r.s.nextStreamID = MaxStreamID
		return nil, nil
	}
	panic("no such line: " + verb)
}

// request runs "request METHOD path length"; path and length are optional.
func (r *scriptRunner) request(args []string, end bool, h *protocol.Header) ([]byte, error) {
	req := newGetRequest("/")
	req.Method = args[0]
	if len(args) > 1 {
		req.Path = args[1]
	}
	if len(args) > 2 {
		req.ContentLength = int64(number(args[2]))
	}
	if upgrade := h.Get("Upgrade"); upgrade != "" {
		req.Upgrade = upgrade
		h.Del("Upgrade")
	}
	req.Header = *h
	out, st, err := r.s.AppendRequest(nil, req, RequestOptions{End: end})
	if st != nil {
		r.streams[st.ID] = st
	}
	return out, err
}
