package http2

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// model is a minimal model of the streams and windows of a session (RFC 9113). Its input is the
// frames of both directions and the streams of events. It does not decode header blocks.
type model struct {
	t            *testing.T
	s            *Session
	streams      map[uint32]*modelStream // open and half-closed streams
	lastStreamID uint32                  // the highest stream that either side opened
	unreleased   map[uint32]*Stream      // streams that the engine has not released

	recv, send      int64  // receive and send windows of the connection
	initialWindow   int64  // window for new streams that the peer announced
	settingsAcked   bool   // the peer acknowledged our SETTINGS
	lastProcessedID uint32 // last of our streams that the peer processes, according to its GOAWAY
}

type modelStream struct {
	endedByUs, endedByPeer bool  // we, and the peer, sent END_STREAM
	recv, send             int64 // receive and send windows
}

func newModel(t *testing.T, role Role, streamWindow uint32) *model {
	t.Helper()
	m := &model{
		t:               t,
		s:               NewSession(Config{Role: role, StreamWindow: streamWindow, ConnectionWindow: DefaultWindow, MaxConcurrentStreams: 4}),
		streams:         make(map[uint32]*modelStream),
		unreleased:      make(map[uint32]*Stream),
		recv:            DefaultWindow,
		send:            DefaultWindow,
		initialWindow:   DefaultWindow,
		lastProcessedID: MaxStreamID,
	}
	start := m.s.AppendPreface(nil)
	if role == Client {
		start = start[len(Preface):]
	}
	m.applySent(start)
	m.receive(Frame{Type: FrameSettings})
	return m
}

// receive passes a frame to the session and verifies the result. It returns false if the connection
// has ended.
func (m *model) receive(f Frame) bool {
	m.t.Helper()
	var e Event
	out, err := m.s.Handle(nil, f, epoch, &e)
	if err != nil {
		checkError(m.t, err, f.Stream)
	}
	m.verifyError(f, err)
	var fatal *ConnectionError
	if errors.As(err, &fatal) {
		return false
	}
	m.applyReceived(f, e, err == nil)
	m.applySent(out)
	var streamErr *StreamError
	if errors.As(err, &streamErr) {
		if out, err = m.s.Fail(nil, streamErr, epoch); err != nil {
			checkError(m.t, err, 0)
			return false
		}
		m.applySent(out)
		m.removeUnprocessed(streamErr.ID)
	}
	m.check()
	return true
}

// verifyError compares the error of a frame with the error that the model requires.
func (m *model) verifyError(f Frame, err error) {
	m.t.Helper()
	size := int64(len(f.Payload))
	st := m.streams[f.Stream]
	var flood *ConnectionError
	if errors.As(err, &flood) && flood.Flood != NoFlood {
		return
	}
	switch f.Type {
	case FrameData:
		invalid := f.Stream == 0 || f.Stream%2 == 0 || f.Stream > m.lastStreamID || size > m.recv ||
			st != nil && (st.endedByPeer || size > max(0, st.recv))
		if invalid && err == nil {
			m.t.Fatalf("DATA of %d bytes on stream %d is accepted, want an error; connection window %d, stream %+v", size, f.Stream, m.recv, st)
		}
		if !invalid && err != nil && st != nil && m.unreleased[f.Stream].part == partHead {
			m.t.Fatalf("DATA of %d bytes on stream %d: error %v, want none; connection window %d, stream %+v", size, f.Stream, err, m.recv, st)
		}
	case FrameWindowUpdate:
		increment := int64(binary.BigEndian.Uint32(f.Payload) & MaxWindow)
		window := m.send
		if st != nil {
			window = st.send
		}
		idle := f.Stream != 0 && (f.Stream%2 == 0 || f.Stream > m.lastStreamID)
		closed := f.Stream != 0 && st == nil
		if invalid := idle || !closed && (increment == 0 || window+increment > MaxWindow); invalid != (err != nil) {
			m.t.Fatalf("WINDOW_UPDATE by %d of a window of %d on stream %d: error %v, want an error: %t", increment, window, f.Stream, err, invalid)
		}
	case FrameRSTStream:
		if invalid := f.Stream%2 == 0 || f.Stream > m.lastStreamID; invalid != (err != nil) {
			m.t.Fatalf("RST_STREAM on stream %d of %d: error %v, want an error: %t", f.Stream, m.lastStreamID, err, invalid)
		}
	default:
	}
}

func (m *model) applyReceived(f Frame, e Event, accepted bool) {
	end := f.Flags.Has(FlagEndStream)
	st := m.streams[f.Stream]
	switch f.Type {
	case FrameData:
		m.recv -= int64(len(f.Payload))
		if accepted && st != nil {
			st.recv -= int64(len(f.Payload))
			m.applyEnd(f.Stream, false, end)
		}
	case FrameHeaders:
		if m.s.cfg.Role == Server && f.Stream > m.lastStreamID {
			m.lastStreamID = f.Stream
		}
		if e.Kind == HeadersArrived && st == nil {
			m.addStream(e.Stream)
		}
		if accepted {
			m.applyEnd(f.Stream, false, end)
		}
	case FrameRSTStream:
		delete(m.streams, f.Stream)
	case FrameWindowUpdate:
		increment := int64(binary.BigEndian.Uint32(f.Payload) & MaxWindow)
		if f.Stream == 0 {
			m.send += increment
		} else if st != nil {
			st.send += increment
		}
	case FrameSettings:
		m.applySettings(f)
	case FrameGoAway:
		if m.s.cfg.Role == Client {
			m.lastProcessedID = binary.BigEndian.Uint32(f.Payload)
		}
	default:
	}
}

func (m *model) applySettings(f Frame) {
	delta := int64(0)
	if f.Flags.Has(FlagAck) && !m.settingsAcked {
		m.settingsAcked = true
		for _, st := range m.streams {
			st.recv += int64(m.s.cfg.StreamWindow) - DefaultWindow
		}
	}
	if len(f.Payload) == settingLen {
		value := int64(binary.BigEndian.Uint32(f.Payload[2:]))
		delta, m.initialWindow = value-m.initialWindow, value
	}
	for _, st := range m.streams {
		st.send += delta
	}
}

func (m *model) addStream(st *Stream) {
	recv := int64(DefaultWindow)
	if m.settingsAcked {
		recv = int64(m.s.cfg.StreamWindow)
	}
	m.streams[st.ID] = &modelStream{recv: recv, send: m.initialWindow}
	m.unreleased[st.ID] = st
	m.lastStreamID = max(m.lastStreamID, st.ID)
}

func (m *model) applyEnd(id uint32, local, end bool) {
	st := m.streams[id]
	if st == nil || !end {
		return
	}
	if local {
		st.endedByUs = true
	} else {
		st.endedByPeer = true
	}
	if st.endedByUs && st.endedByPeer {
		delete(m.streams, id)
	}
}

// applySent applies sent frames to the model, and fails if the session must not send them.
func (m *model) applySent(b []byte) {
	m.t.Helper()
	for len(b) > 0 {
		f, n, err := ParseFrame(b, MinFrameSize)
		if n == 0 || err != nil {
			m.t.Fatalf("the session sends %x: %v, want complete frames", b, err)
		}
		b = b[n:]
		st := m.streams[f.Stream]
		if f.Type == FrameData || f.Type == FrameHeaders {
			if st == nil || st.endedByUs {
				m.t.Fatalf("the session sends %v on stream %d with the state %+v, want none", f.Type, f.Stream, st)
			}
			m.applyEnd(f.Stream, true, f.Flags.Has(FlagEndStream))
		}
		switch f.Type {
		case FrameData:
			size := int64(len(f.Payload))
			m.send -= size
			st.send -= size
			if size > 0 && (m.send < 0 || st.send < 0) {
				m.t.Fatalf("the session exceeds the windows by %d bytes, want 0", -min(m.send, st.send))
			}
		case FrameRSTStream:
			delete(m.streams, f.Stream)
		case FrameWindowUpdate:
			increment := int64(binary.BigEndian.Uint32(f.Payload))
			if increment == 0 {
				m.t.Fatal("the session sends WINDOW_UPDATE with an increment of 0")
			}
			if f.Stream == 0 {
				m.recv += increment
			} else if st != nil {
				st.recv += increment
			}
		default:
		}
	}
}

// check compares the session with the model, and verifies that the session's byte counts are
// consistent.
func (m *model) check() {
	m.t.Helper()
	s := m.s
	if s.recvWindow != m.recv || s.sendWindow != m.send || m.recv < 0 {
		m.t.Fatalf("windows of the connection %d, %d, want %d, %d", s.recvWindow, s.sendWindow, m.recv, m.send)
	}
	if s.Len() != len(m.streams) {
		m.t.Fatalf("%d streams are open, want %d", s.Len(), len(m.streams))
	}
	sum := s.recvWindow + s.pendingCredit
	for id, st := range m.unreleased {
		sum += st.unconsumed
		if st.unconsumed < 0 {
			m.t.Fatalf("stream %d has %d unconsumed bytes, want at least 0", id, st.unconsumed)
		}
		m.checkStream(id, st)
	}
	if sum != DefaultWindow {
		m.t.Fatalf("window, pending credit and unconsumed bytes add up to %d, want %d", sum, DefaultWindow)
	}
}

func (m *model) checkStream(id uint32, st *Stream) {
	m.t.Helper()
	want := Closed
	expected := m.streams[id]
	if expected != nil {
		want = map[[2]bool]State{{}: Open, {true, false}: HalfClosedLocal, {false, true}: HalfClosedRemote}[[2]bool{expected.endedByUs, expected.endedByPeer}]
	}
	if st.State() != want {
		m.t.Fatalf("stream %d is %v, want %v", id, st.State(), want)
	}
	if expected == nil {
		return
	}
	if st.sendWindow != expected.send || st.recvWindow != expected.recv {
		m.t.Fatalf("windows of stream %d are %d, %d, want %d, %d", id, st.recvWindow, st.sendWindow, expected.recv, expected.send)
	}
	window := int64(DefaultWindow)
	if m.settingsAcked {
		window = int64(m.s.cfg.StreamWindow)
	}
	if sum := st.recvWindow + st.pendingCredit + st.unconsumed; !expected.endedByPeer && sum != window {
		m.t.Fatalf("window, pending credit and unconsumed bytes of stream %d add up to %d, want %d", id, sum, window)
	}
}

// callMethod calls a method of the session as an engine may. op selects the method; n determines
// sizes and flags.
func (m *model) callMethod(op, n byte, id uint32) {
	m.t.Helper()
	var out []byte
	var err error
	st := m.unreleased[id]
	if st == nil {
		if m.s.cfg.Role == Client && op%8 == 0 {
			out, st, err = m.s.AppendRequest(nil, newGetRequest("/"), RequestOptions{End: n%2 == 0})
			if err == nil {
				m.addStream(st)
			}
		}
	} else {
		switch op % 8 {
		case 0:
			if m.s.cfg.Role == Server {
				out, err = m.s.AppendResponse(nil, st, newResponse(200, -1), ResponseOptions{End: n%2 == 0})
			}
		case 1, 2:
			out, _, err = m.s.AppendData(nil, st, make([]byte, int(n)*300), op%2 == 0)
		case 3:
			out, err = m.s.AppendTrailer(nil, st, new(protocol.Header))
		case 4:
			out = m.s.Reset(nil, st, Cancel)
			m.removeUnprocessed(id)
		case 5:
			out = m.s.Release(nil, st, Cancel)
			delete(m.unreleased, id)
			m.removeUnprocessed(id)
		default:
			out = m.s.ReportConsumed(nil, st, int(min(st.unconsumed, int64(n)*100)))
		}
	}
	if err != nil && len(out) > 0 {
		m.t.Fatalf("%x was appended with the error %v, want nothing", out, err)
	}
	m.applySent(out)
	m.check()
}

// removeUnprocessed removes stream id if the peer's GOAWAY has excluded it, because the session
// closes such a stream without a frame.
func (m *model) removeUnprocessed(id uint32) {
	if id > m.lastProcessedID {
		delete(m.streams, id)
	}
}

// FuzzSession verifies that a session has the stream states and windows of the model, and that its
// errors are well-formed, whatever the peer and the engine do. Each step has four bytes: method or
// frame type, flags, stream, size.
func FuzzSession(f *testing.F) {
	f.Add(true, false, []byte{0x21, 5, 1, 0, 0x20, 0, 1, 9, 0x10, 0, 1, 1, 0x11, 0, 1, 9, 0x16, 0, 1, 9, 0x20, 1, 1, 5, 0x12, 0, 1, 3})
	f.Add(true, true, []byte{0x24, 1, 0, 0, 0x21, 4, 1, 0, 0x20, 8, 1, 9, 0x23, 0, 1, 0, 0x20, 0, 1, 9, 0x15, 0, 1, 0})
	f.Add(false, false, []byte{0x10, 0, 1, 1, 0x11, 0, 1, 200, 0x28, 0, 1, 7, 0x28, 0, 0, 7, 0x24, 0, 0, 3, 0x21, 5, 1, 0, 0x12, 0, 1, 1})
	f.Add(false, true, []byte{0x10, 0, 1, 1, 0x10, 0, 3, 0, 0x27, 0, 1, 0, 0x15, 0, 3, 0, 0x21, 4, 1, 0, 0x20, 0, 1, 80, 0x16, 0, 1, 80})
	f.Fuzz(func(t *testing.T, server, small bool, steps []byte) {
		role, window := Client, uint32(DefaultWindow)
		if server {
			role = Server
		}
		if small {
			window = 1000
		}
		m := newModel(t, role, window)
		for ; len(steps) >= 4; steps = steps[4:] {
			op, flags, id, n := steps[0], steps[1], uint32(steps[2]%16), steps[3]
			if op&0x20 == 0 {
				m.callMethod(op&15, n, id)
				continue
			}
			if !m.receive(peerFrame(role, FrameType(op&15), Flags(flags), id, n)) {
				return
			}
		}
	})
}

// peerFrame returns a frame for a session of role. The syntax of the frame is usually correct.
func peerFrame(role Role, t FrameType, flags Flags, id uint32, n byte) Frame {
	f := Frame{Type: t, Flags: flags, Stream: id}
	switch t {
	case FrameData:
		f.Payload = make([]byte, 1+int(n)*64)
		f.Payload[0] = n % 64 // length of the padding, if FlagPadded is set
		if n == 0 {
			f.Flags, f.Payload = flags&FlagEndStream, nil
		}
	case FrameHeaders:
		f.Flags = flags&FlagEndStream | FlagEndHeaders
		f.Payload = [][]byte{{0x88}, {0x83, 0x86, 0x84, 0x01, 1, 'a'}, {0x00, 1, 'x', 1, 'y'}}[(int(role)+int(n)/128*2)%3]
	case FrameRSTStream:
		f.Payload = []byte{0, 0, 0, 8}
	case FrameSettings:
		f.Stream = 0
		if flags&FlagAck == 0 {
			f.Payload = AppendSettings(nil, Setting{SettingInitialWindowSize, uint32(n) * 1000})[FrameHeaderLen:]
		}
	case FramePing:
		f.Stream, f.Payload = 0, make([]byte, 8)
	case FrameGoAway:
		f.Stream, f.Payload = 0, []byte{0, 0, 0, n % 16, 0, 0, 0, 0}
	case FrameWindowUpdate:
		f.Payload = binary.BigEndian.AppendUint32(nil, uint32(n)<<(n%26))
	default:
		f.Payload = make([]byte, n)
	}
	return f
}
