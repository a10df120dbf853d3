package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// FrameWriter sends frames, valid or not, on a connection whose prefaces have been sent. Errors do
// not matter: what arrives shows the effect. Only the script's goroutine may call its methods.
type FrameWriter struct {
	conn    net.Conn
	id      string
	encoder *hpack.Encoder
	block   bytes.Buffer // output of encoder

	mu     sync.Mutex    // held while a frame is written
	framer *http2.Framer // guarded by mu
}

// Frame sends a frame with any type, flags, stream and payload.
func (w *FrameWriter) Frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.framer.WriteRawFrame(kind, flags, stream, []byte(payload))
}

// Bytes sends bytes that need not be a frame.
func (w *FrameWriter) Bytes(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = io.WriteString(w.conn, text)
}

// Settings sends a SETTINGS frame.
func (w *FrameWriter) Settings(settings ...http2.Setting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.framer.WriteSettings(settings...)
}

// Block returns fields, which are alternating names and values, as a header block. The value {case}
// stands for the ID of the case.
func (w *FrameWriter) Block(namesAndValues ...string) string {
	w.block.Reset()
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		value := strings.ReplaceAll(namesAndValues[i+1], Placeholder, w.id)
		_ = w.encoder.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: value}) // writes to memory do not fail
	}
	return w.block.String()
}

// Request sends HEADERS with a GET request for / and further fields.
func (w *FrameWriter) Request(stream uint32, end bool, namesAndValues ...string) {
	w.Headers(stream, end, append(RequestFields(), namesAndValues...)...)
}

// RequestFields returns the fields of a GET request for / as alternating names and values.
func RequestFields() []string {
	return []string{
		":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a.test",
		strings.ToLower(wire.CaseField), Placeholder,
	}
}

// Headers sends fields in one HEADERS frame.
func (w *FrameWriter) Headers(stream uint32, end bool, namesAndValues ...string) {
	flags := http2.FlagHeadersEndHeaders
	if end {
		flags |= http2.FlagHeadersEndStream
	}
	w.Frame(http2.FrameHeaders, flags, stream, w.Block(namesAndValues...))
}

// Data sends a DATA frame.
func (w *FrameWriter) Data(stream uint32, end bool, data string) {
	var flags http2.Flags
	if end {
		flags = http2.FlagDataEndStream
	}
	w.Frame(http2.FrameData, flags, stream, data)
}

// Reset sends RST_STREAM.
func (w *FrameWriter) Reset(stream uint32, code http2.ErrCode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.framer.WriteRSTStream(stream, code)
}

// WindowUpdate sends WINDOW_UPDATE.
func (w *FrameWriter) WindowUpdate(stream, increment uint32) {
	w.Frame(http2.FrameWindowUpdate, 0, stream, string([]byte{
		byte(increment >> 24), byte(increment >> 16), byte(increment >> 8), byte(increment),
	}))
}

// Pause waits, so that the proxy processes earlier frames first.
func (w *FrameWriter) Pause(d time.Duration) { time.Sleep(d) }

// runFrames sends the prefaces and the frames of a script, and reads until nothing arrives any
// more. It acknowledges SETTINGS and returns no credit.
func runFrames(conn net.Conn, s *Script, id string, begin, deadline time.Time) Outcome {
	w := &FrameWriter{conn: conn, id: id, framer: http2.NewFramer(conn, conn)}
	w.encoder = hpack.NewEncoder(&w.block)
	w.framer.AllowIllegalWrites = true
	w.Bytes(http2.ClientPreface)
	r := &frameReader{conn: conn, writer: w, received: map[string][]string{}, last: time.Now()}
	sent := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		defer close(sent)
		s.Frames(w)
	})
	quiet := s.CloseWait
	if quiet == 0 {
		quiet = silence
	}
	closed := r.readAll(sent, quiet, deadline)
	sender.Wait()
	return Outcome{Frames: r.received, Closed: closed, Elapsed: r.last.Sub(begin)}
}

// frameReader describes frames.
type frameReader struct {
	conn     net.Conn
	writer   *FrameWriter
	buf      []byte              // not consumed
	received map[string][]string // by stream
	last     time.Time           // of the last frame that is described
	decoder  *hpack.Decoder
}

// readAll reads until the connection ends, or nothing arrives for some time after sent is closed.
func (r *frameReader) readAll(sent <-chan struct{}, quiet time.Duration, deadline time.Time) (closed bool) {
	r.decoder = hpack.NewDecoder(4096, nil)
	piece := make([]byte, 64<<10)
	for {
		select {
		case <-sent:
		default:
			r.last = time.Now()
		}
		end := earlier(r.last.Add(quiet), deadline)
		if !time.Now().Before(end) {
			return false
		}
		if err := r.conn.SetReadDeadline(earlier(end, time.Now().Add(50*time.Millisecond))); err != nil {
			return true
		}
		n, err := r.conn.Read(piece)
		r.buf = append(r.buf, piece[:n]...)
		r.parse()
		var timeout net.Error
		if err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
			return true
		}
	}
}

// parse consumes complete frames.
func (r *frameReader) parse() {
	const head = 9
	for len(r.buf) >= head {
		size := int(r.buf[0])<<16 | int(r.buf[1])<<8 | int(r.buf[2])
		if len(r.buf) < head+size {
			return
		}
		framer := http2.NewFramer(io.Discard, bytes.NewReader(r.buf[:head+size]))
		framer.AllowIllegalReads = true
		frame, err := framer.ReadFrame()
		if err != nil {
			r.add(0, "malformed: "+err.Error())
		} else {
			r.describe(frame)
		}
		r.buf = r.buf[head+size:]
	}
}

// describe adds a frame to what arrived. It joins the lengths of DATA frames, whose sizes are a
// matter of time, and ignores WINDOW_UPDATE and SETTINGS.
func (r *frameReader) describe(frame http2.Frame) {
	stream := frame.Header().StreamID
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			r.writer.mu.Lock()
			_ = r.writer.framer.WriteSettingsAck() // the end of the connection shows a failure
			r.writer.mu.Unlock()
		}
	case *http2.WindowUpdateFrame:
	case *http2.HeadersFrame:
		r.headers(f)
	case *http2.DataFrame:
		r.data(stream, len(f.Data()))
		if f.StreamEnded() {
			r.add(stream, "END_STREAM")
		}
	case *http2.RSTStreamFrame:
		r.add(stream, "RST_STREAM "+strconv.Itoa(int(f.ErrCode)))
	case *http2.GoAwayFrame:
		r.add(0, fmt.Sprintf("GOAWAY %d", f.ErrCode))
	case *http2.PingFrame:
		r.add(0, fmt.Sprintf("PING ack=%v %q", f.IsAck(), f.Data[:]))
	default:
		r.add(stream, frame.Header().Type.String())
	}
}

func (r *frameReader) headers(f *http2.HeadersFrame) {
	decoded, err := r.decoder.DecodeFull(f.HeaderBlockFragment())
	if err != nil {
		r.add(f.StreamID, "HEADERS "+err.Error())
		return
	}
	text := "trailers"
	for _, field := range decoded {
		if field.Name == ":status" {
			text = field.Value
		}
		if field.Name == "grpc-status" {
			text += " grpc-status=" + field.Value
		}
	}
	r.add(f.StreamID, "HEADERS "+text)
	if f.StreamEnded() {
		r.add(f.StreamID, "END_STREAM")
	}
}

// data adds bytes to the last DATA frame of a stream.
func (r *frameReader) data(stream uint32, n int) {
	list := r.received[streamName(stream)]
	if len(list) > 0 {
		if text, found := strings.CutPrefix(list[len(list)-1], "DATA "); found {
			if before, err := strconv.Atoi(text); err == nil {
				list[len(list)-1] = fmt.Sprintf("DATA %d", before+n)
				r.last = time.Now()
				return
			}
		}
	}
	if n > 0 {
		r.add(stream, fmt.Sprintf("DATA %d", n))
	}
}

func (r *frameReader) add(stream uint32, text string) {
	r.last = time.Now()
	r.received[streamName(stream)] = append(r.received[streamName(stream)], text)
}

func streamName(stream uint32) string {
	if stream == 0 {
		return "connection"
	}
	return "stream " + strconv.FormatUint(uint64(stream), 10)
}
