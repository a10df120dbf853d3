package http2

import (
	"encoding/binary"
	"errors"
	"iter"
)

// Role is the side of a connection.
type Role uint8

// The roles of a session.
const (
	Client Role = iota // opens streams
	Server             // responds on streams
)

func (r Role) opposite() Role { return r ^ 1 }

// Config holds the settings and limits of a session. NewSession copies it.
type Config struct {
	Role Role

	// MaxConcurrentStreams is the maximum number of streams that the peer may have open; the
	// session refuses more. It also refuses streams while 2*MaxConcurrentStreams streams, open
	// streams included, have not been released. Servers only. Default 128.
	//
	// A stream that the peer resets before its response is complete takes one of
	// MaxConcurrentStreams reset slots. While all slots are taken, the session refuses streams;
	// these refusals take no token of FloodLimits.MadeYouReset. One slot becomes free every
	// 100 ms / MaxConcurrentStreams, and one when both sides have ended a stream.
	MaxConcurrentStreams uint32
	// MaxLocalStreams is the maximum number of streams that the session opens, in addition to the
	// limit of the peer; 0: no limit.
	MaxLocalStreams uint32
	// StreamWindow is the receive window of a stream in bytes: the maximum that the engine has to
	// buffer for it. Default DefaultWindow.
	StreamWindow uint32
	// ConnectionWindow is the receive window of all streams together. HTTP/2 cannot announce less
	// than DefaultWindow, so a smaller value means DefaultWindow. Default 1 MiB.
	ConnectionWindow uint32
	// MaxFrameSize is the maximum payload of a received frame in bytes. Default MinFrameSize.
	MaxFrameSize uint32
	// HeaderTableSize is the maximum size in bytes of the decoder's dynamic table. Default
	// DefaultTableSize.
	HeaderTableSize uint32
	// MaxHeaderListSize bounds the size of a received header section (RFC 9113 6.5.2). Default 64
	// KiB.
	MaxHeaderListSize uint32
	// MaxFields bounds the number of fields of a received header section, pseudo-header fields
	// included. Default 128.
	MaxFields int
	// EnableConnect allows the peer to use extended CONNECT (RFC 8441). Servers only.
	EnableConnect bool
	// FirstStream is the identifier of the first stream that the session opens; an even value means
	// the next odd one. Lower identifiers are never used (RFC 9113 5.1.1). Clients only. Default 1;
	// a higher value exhausts the identifiers sooner.
	FirstStream uint32

	FloodLimits FloodLimits
}

func (c *Config) setDefaults() {
	defaults := [...]struct {
		field *uint32
		value uint32
	}{
		{&c.MaxConcurrentStreams, 128},
		{&c.StreamWindow, DefaultWindow},
		{&c.ConnectionWindow, 1 << 20},
		{&c.MaxFrameSize, MinFrameSize},
		{&c.HeaderTableSize, DefaultTableSize},
		{&c.MaxHeaderListSize, 64 << 10},
	}
	for _, d := range defaults {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	c.StreamWindow = min(c.StreamWindow, MaxWindow)
	c.ConnectionWindow = min(max(c.ConnectionWindow, DefaultWindow), MaxWindow)
	c.MaxFrameSize = min(max(c.MaxFrameSize, MinFrameSize), MaxFrameSize)
	if c.MaxFields == 0 {
		c.MaxFields = 128
	}
	c.FloodLimits.setDefaults(c.MaxHeaderListSize)
}

// The errors of opening or using a stream. The frame was not sent.
var (
	// ErrTooManyStreams: the peer's SETTINGS_MAX_CONCURRENT_STREAMS is reached.
	ErrTooManyStreams = errors.New("http2: the peer allows no more concurrent streams")
	// ErrGoingAway: a GOAWAY was sent or received.
	ErrGoingAway = errors.New("http2: GOAWAY was sent or received")
	// ErrStreamIDsExhausted: the stream identifiers are used up (RFC 9113 5.1.1).
	ErrStreamIDsExhausted = errors.New("http2: the connection has no stream identifiers left")
	// ErrNotOpen: the stream's state does not allow this frame: it was reset or ended, or its head
	// was not sent.
	ErrNotOpen = errors.New("http2: the stream is not open for sending")
	// ErrNoExtendedConnect: the peer does not support extended CONNECT (RFC 8441 3).
	ErrNoExtendedConnect = errors.New("http2: the peer does not support extended CONNECT")
	// ErrNotOneProtocol: unlike Upgrade in HTTP/1.1, :protocol has neither several protocols nor a
	// version (RFC 8441 4).
	ErrNotOneProtocol = errors.New("http2: Upgrade is not one protocol without a version")
)

// Session is one side of one connection. Create it with NewSession. It is not safe for concurrent
// use, and it retains none of the bytes that the caller passes.
type Session struct {
	cfg Config // immutable

	peerSettings     Settings // the peer's settings
	settingsReceived bool     // the peer's first SETTINGS arrived
	settingsAcked    bool     // the peer acknowledged our SETTINGS
	unackedSettings  int      // SETTINGS sent and not acknowledged
	unackedPings     int      // PING frames sent and not acknowledged
	dec              decoder
	enc              encoder
	block            headerBlock // the header block that is arriving
	head             *head       // result of the last header block; nil: none yet, or none since Shrink
	sendWindow       int64       // bytes we may send on all streams together
	recvWindow       int64       // bytes the peer may send on all streams together
	pendingCredit    int64       // bytes consumed that no WINDOW_UPDATE has reported

	streams          map[uint32]*Stream // open and half-closed; nil: none yet, or none since Shrink
	freeStreams      []*Stream          // for reuse
	unreleased       uint32             // streams that the peer opened and the engine has not released
	localStreams     uint32             // number of open streams that we opened
	nextStreamID     uint32             // identifier of the next stream that we open
	lastPeerStreamID uint32             // the highest stream that the peer opened
	recentResets     recentResets       // streams that were reset recently
	skippedIDs       skippedRanges      // identifiers that the peer skipped recently

	goAwaySentID     uint32 // last stream of the GOAWAY sent; MaxStreamID: none sent
	goAwayReceivedID uint32 // last stream of the GOAWAY received; MaxStreamID: none received
	goingAway        bool   // a GOAWAY was sent or received

	floodBuckets floodBuckets
	resetSlots   resetSlots
	// charges is the number of events that TakeCharges describes, minus refunds.
	charges         int
	completedStream bool // both sides ended a stream

	// openingStream is the stream that AppendRequest is opening; it stays set if AppendRequest
	// panicked.
	openingStream *Stream
	blockStarted  bool // a header block was started and not ended: it is being appended, or was dropped
	// addedBeforeBlock and resizedBeforeBlock are the values of enc.added and enc.sizeChanged
	// before the last block was started.
	addedBeforeBlock   uint32
	resizedBeforeBlock bool
	scratch            []byte // storage for a sanitized field, or for a block that is split
}

// NewSession returns a session for a new connection.
func NewSession(cfg Config) *Session {
	cfg.setDefaults()
	s := &Session{
		cfg:              cfg,
		peerSettings:     defaultSettings(),
		sendWindow:       DefaultWindow,
		recvWindow:       DefaultWindow,
		nextStreamID:     min(cfg.FirstStream, MaxStreamID) | 1,
		goAwaySentID:     MaxStreamID,
		goAwayReceivedID: MaxStreamID,
	}
	s.dec = decoder{
		maxListSize:  cfg.MaxHeaderListSize,
		maxFields:    cfg.MaxFields,
		maxTableSize: max(DefaultTableSize, cfg.HeaderTableSize),
	}
	s.dec.table.max = DefaultTableSize
	s.enc.max = DefaultTableSize
	return s
}

// AppendPreface appends the first bytes that a side sends: the preface of a client, SETTINGS, and a
// WINDOW_UPDATE if the connection's window is larger than the default (RFC 9113 3.4). The engine
// calls it once, before all other methods that append.
func (s *Session) AppendPreface(dst []byte) []byte {
	settings := [...]Setting{
		{SettingHeaderTableSize, s.cfg.HeaderTableSize},
		{SettingInitialWindowSize, s.cfg.StreamWindow},
		{SettingMaxFrameSize, s.cfg.MaxFrameSize},
		{SettingMaxHeaderListSize, s.cfg.MaxHeaderListSize},
		{},
		{},
	}
	list := settings[:4]
	if s.cfg.Role == Client {
		dst = append(dst, Preface...)
		list = append(list, Setting{SettingEnablePush, 0})
	} else {
		list = append(list, Setting{SettingMaxConcurrentStreams, s.cfg.MaxConcurrentStreams})
		if s.cfg.EnableConnect {
			list = append(list, Setting{SettingEnableConnectProtocol, 1})
		}
	}
	dst = AppendSettings(dst, list...)
	s.unackedSettings++
	if increment := int64(s.cfg.ConnectionWindow) - s.recvWindow; increment > 0 {
		s.recvWindow += increment
		dst = AppendWindowUpdate(dst, 0, uint32(increment))
	}
	return dst
}

// ParsePreface returns the length of the client's preface that b starts with, or 0 if b contains
// only a part of it. The error is a *ConnectionError if b does not start with the preface. A server
// calls it before it parses the first frame.
func ParsePreface(b []byte) (int, error) {
	n := min(len(b), len(Preface))
	if string(b[:n]) != Preface[:n] {
		return 0, connectionError(ProtocolError, "no HTTP/2 preface (RFC 9113 3.4)")
	}
	if n < len(Preface) {
		return 0, nil
	}
	return n, nil
}

// AdoptUpgrade opens stream 1 for an HTTP/1.1 request with "Upgrade: h2c" (RFC 7540 3.2; RFC 9113
// dropped it). settings is the decoded HTTP2-Settings field, a SETTINGS payload. The returned
// stream is half-closed (remote), because the request arrived in HTTP/1.1. The error is nil or a
// *ConnectionError. The engine of a server calls it before the first frame.
func (s *Session) AdoptUpgrade(settings []byte) (*Stream, error) {
	if err := s.applySettings(settings); err != nil {
		return nil, err
	}
	st := s.newStream(1)
	st.part = partTrailer
	st.state = HalfClosedRemote
	s.lastPeerStreamID = 1
	s.unreleased++
	return st, nil
}

// TakeCharges returns and resets the charges if there are at least threshold, and otherwise returns
// 0. Each of these events is one charge: a RST_STREAM of the peer within 50 ms of the stream's head
// or on a closed stream, a stream that Fail had to reset, a refused stream, and a CONTINUATION
// frame. Fail and RST_STREAM charge nothing for open streams that the session opened. Each stream
// that both sides ended refunds one charge. The engine adds up the charges of many connections.
func (s *Session) TakeCharges(threshold int) int {
	n := s.charges
	if n < threshold {
		return 0
	}
	s.charges = 0
	return n
}

// Charges returns the charges without resetting them.
func (s *Session) Charges() int { return s.charges }

// HasCompletedStream reports whether both sides have ever ended a stream. For a server, that stream
// got its complete response.
func (s *Session) HasCompletedStream() bool { return s.completedStream }

// PeerSettings returns the peer's settings.
func (s *Session) PeerSettings() Settings { return s.peerSettings }

// MaxFrameSize returns the limit for ParseFrame.
func (s *Session) MaxFrameSize() uint32 { return s.cfg.MaxFrameSize }

// Stream returns the stream with identifier id if it is open or half-closed, and otherwise nil.
func (s *Session) Stream(id uint32) *Stream { return s.streams[id] }

// Streams yields the streams that are open or half-closed, in no particular order. The loop may
// close streams.
func (s *Session) Streams() iter.Seq[*Stream] {
	return func(yield func(*Stream) bool) {
		for _, st := range s.streams {
			if !yield(st) {
				return
			}
		}
	}
}

// Len returns the number of streams that are open or half-closed.
func (s *Session) Len() int { return len(s.streams) }

// AvailableStreams returns how many streams the session may open now: the limit of the peer or of
// MaxLocalStreams minus the open streams that the session opened, or the number of unused identifiers
// if that is smaller. It returns 0 once GOAWAY was sent or received.
func (s *Session) AvailableStreams() int {
	limit := s.localStreamLimit()
	if s.goingAway || s.localStreams >= limit || s.nextStreamID > MaxStreamID {
		return 0
	}
	remaining := (MaxStreamID-s.nextStreamID)/2 + 1
	return int(min(limit-s.localStreams, remaining))
}

// localStreamLimit returns the maximum number of open streams that the session opened.
func (s *Session) localStreamLimit() uint32 {
	if s.cfg.MaxLocalStreams > 0 {
		return min(s.cfg.MaxLocalStreams, s.peerSettings.MaxConcurrentStreams)
	}
	return s.peerSettings.MaxConcurrentStreams
}

// Exhausted reports whether the session can never open a stream again; the engine then replaces the
// connection.
func (s *Session) Exhausted() bool { return s.goingAway || s.nextStreamID > MaxStreamID }

// Unprocessed reports whether the session opened st and the peer's GOAWAY shows that the peer did
// not process it: the request may be sent elsewhere, whatever its method (RFC 9113 6.8).
func (s *Session) Unprocessed(st *Stream) bool { return st.openedByUs && st.ID > s.goAwayReceivedID }

// newStream returns an open stream and adds it to s.streams.
func (s *Session) newStream(id uint32) *Stream {
	var st *Stream
	if n := len(s.freeStreams); n > 0 {
		st = s.freeStreams[n-1]
		s.freeStreams[n-1] = nil
		s.freeStreams = s.freeStreams[:n-1]
	} else {
		st = new(Stream)
	}
	*st = Stream{
		ID:            id,
		state:         Open,
		contentLength: -1,
		sendWindow:    int64(s.peerSettings.InitialWindowSize),
		recvWindow:    s.initialRecvWindow(),
	}
	if s.streams == nil {
		s.streams = make(map[uint32]*Stream)
	}
	s.streams[id] = st
	return st
}

func (s *Session) closeStream(st *Stream) {
	st.state = Closed
	delete(s.streams, st.ID)
	if st.openedByUs {
		s.localStreams--
	}
}

// Release releases a stream that the engine no longer uses. If the stream is still open, Release
// resets it with code. Received bytes that were not consumed count as consumed. The engine calls it
// once for each stream that it got from an event, AppendRequest or AdoptUpgrade.
func (s *Session) Release(dst []byte, st *Stream, code Code) []byte {
	if st.state != Closed {
		dst = s.Reset(dst, st, code)
	}
	dst = s.creditConnection(dst, st.unconsumed)
	if !st.openedByUs {
		s.unreleased--
	}
	*st = Stream{state: Closed}
	const maxFreeStreams = 64
	if len(s.freeStreams) < maxFreeStreams {
		s.freeStreams = append(s.freeStreams, st)
	}
	return dst
}

// Reset ends a stream immediately. It appends nothing if the stream is already closed or
// Unprocessed.
func (s *Session) Reset(dst []byte, st *Stream, code Code) []byte {
	if st.state == Closed {
		return dst
	}
	s.closeStream(st)
	if s.Unprocessed(st) {
		return dst
	}
	s.recentResets.add(st.ID, byUs)
	return AppendRSTStream(dst, st.ID, code)
}

// Shrink releases the storage that only an active connection needs. It does nothing while a stream
// is open, a stream of the peer is unreleased, or a header block is incomplete. The engine calls it
// when it expects no request soon. The message of the last event becomes invalid.
func (s *Session) Shrink() {
	if len(s.streams) > 0 || s.unreleased > 0 || s.block.streamID != 0 {
		return
	}
	s.streams, s.freeStreams, s.scratch, s.head, s.block.fragments = nil, nil, nil, nil, nil
	s.dec.fields, s.dec.text.b = nil, nil
	s.enc.recentHashes = nil
}

// AppendShutdownNotice appends a GOAWAY that announces a shutdown; a server still accepts the
// streams that the peer opens meanwhile (RFC 9113 6.8). The engine calls AppendGoAway a round trip
// later.
func (s *Session) AppendShutdownNotice(dst []byte) []byte {
	s.goingAway = s.goingAway || s.cfg.Role == Client
	return AppendGoAway(dst, s.goAwaySentID, NoError, "")
}

// AppendGoAway appends a GOAWAY: no stream above the last one that the peer opened is accepted.
// With NoError, the earlier streams still get responses. debug is a text that the peer may log.
func (s *Session) AppendGoAway(dst []byte, code Code, debug string) []byte {
	s.goingAway = true
	s.goAwaySentID = min(s.goAwaySentID, s.lastPeerStreamID)
	return AppendGoAway(dst, s.goAwaySentID, code, debug)
}

// AppendPing appends a PING; its acknowledgement is an event with the same data.
func (s *Session) AppendPing(dst []byte, data uint64) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], data)
	s.unackedPings++
	return AppendPing(dst, false, b)
}
