package http2

import (
	"strconv"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// RequestOptions are properties of a request head that protocol.Request does not hold.
type RequestOptions struct {
	// End: the request has neither a body nor trailers.
	End bool
	// AcceptsTrailers: the client accepts trailers. AppendRequest adds te: trailers, which gRPC
	// servers require.
	AcceptsTrailers bool
}

// AppendRequest opens a stream with a request's head. It appends the pseudo-header fields, Header
// in its order with names in lowercase, and then content-length, expect and te. content-length is
// sent if ContentLength is not negative and the request is not CONNECT. A Scheme of "" is sent as
// http. A request with Upgrade becomes an extended CONNECT (RFC 8441), whatever its method.
// AppendRequest panics on a server.
//
// AppendRequest omits Host and the connection and framing fields in Header: filters do not control
// them. If a part of the request is invalid, the error is a Fault of reason Internal that names the
// part. End with a positive ContentLength is also a Fault of reason Internal. A header section
// larger than the peer accepts is a Fault of reason HeaderTooLarge. Other errors are
// ErrTooManyStreams, ErrGoingAway, ErrStreamIDsExhausted, ErrNoExtendedConnect and
// ErrNotOneProtocol. With any error dst is returned unchanged, and no stream is open.
func (s *Session) AppendRequest(dst []byte, req *protocol.Request, opts RequestOptions) ([]byte, *Stream, error) {
	if err := s.checkCanOpen(req); err != nil {
		return dst, nil, err
	}
	if part := s.invalidPart(req); part != "" {
		return dst, nil, invalidRequestFault(part)
	}
	if opts.End && req.ContentLength > 0 {
		return dst, nil, protocol.Faultf(protocol.Internal, "the request declares a body of %d bytes but has none", req.ContentLength)
	}
	if s.peerSettings.MaxHeaderListSize != unlimited && requestSize(req) > uint64(s.peerSettings.MaxHeaderListSize) {
		return dst, nil, protocol.Faultf(protocol.HeaderTooLarge, "the upstream accepts a header list of at most %d bytes", s.peerSettings.MaxHeaderListSize)
	}
	st := s.newStream(s.nextStreamID)
	st.openedByUs, st.headSent = true, true
	s.nextStreamID += 2
	s.localStreams++
	s.openingStream = st
	start := len(dst)
	before := dst
	dst = s.startBlock(dst)
	dst = s.appendTarget(dst, st, req)
	dst, part := s.appendFields(dst, &req.Header, true)
	if part != "" {
		s.DropBlock()
		return before, nil, invalidRequestFault(part)
	}
	if req.ContentLength >= 0 && st.kind < connectExchange {
		dst = appendLength(dst, req.ContentLength)
	}
	if req.ExpectContinue && !opts.End {
		dst = s.enc.appendField(dst, 35, "expect", "100-continue")
	}
	if opts.AcceptsTrailers {
		dst = s.enc.appendField(dst, 0, "te", "trailers")
	}
	if opts.End {
		st.endLocal()
	}
	dst = s.endBlock(dst, start, st.ID, opts.End)
	s.openingStream = nil
	return dst, st, nil
}

func invalidRequestFault(part string) error {
	return protocol.Faultf(protocol.Internal, "the request %s is not valid in HTTP/2", part)
}

// DropBlock closes the stream that AppendRequest was opening when it panicked or found an invalid
// field. Without such a stream, DropBlock does nothing. The engine sends none of the appended
// bytes.
//
// If a block of AppendRequest, AppendResponse, AppendInterim or AppendTrailer that changed the
// compression table was dropped, the next header block empties the table and the peer's table (RFC
// 7541 4.2). If one of the last three panicked, the engine resets the stream.
func (s *Session) DropBlock() {
	if st := s.openingStream; st != nil {
		s.openingStream = nil
		s.closeStream(st)
		s.nextStreamID = st.ID // the peer has not seen the stream
	}
}

func (s *Session) checkCanOpen(req *protocol.Request) error {
	switch {
	case s.cfg.Role == Server:
		panic("http2: a server cannot open streams")
	case s.goingAway:
		return ErrGoingAway
	case s.nextStreamID > MaxStreamID:
		return ErrStreamIDsExhausted
	case s.localStreams >= s.localStreamLimit():
		return ErrTooManyStreams
	case req.Upgrade != "" && !s.peerSettings.EnableConnectProtocol:
		return ErrNoExtendedConnect
	case req.Upgrade != "" && !isToken(req.Upgrade):
		return ErrNotOneProtocol
	}
	return nil
}

// appendTarget appends the pseudo-header fields, and records the kind of the exchange.
func (s *Session) appendTarget(dst []byte, st *Stream, req *protocol.Request) []byte {
	switch {
	case req.Upgrade != "":
		st.kind = extendedExchange
		dst = s.enc.appendField(dst, staticGet, ":method", "CONNECT")
	case req.Method == "GET":
		dst = appendIndex(dst, staticGet)
	case req.Method == "POST":
		dst = appendIndex(dst, staticPost)
	default:
		if req.Method == "HEAD" {
			st.kind = headExchange
		}
		dst = s.enc.appendField(dst, staticGet, ":method", req.Method)
	}
	if req.Method == "CONNECT" && req.Upgrade == "" {
		st.kind = connectExchange
		return s.enc.appendField(dst, staticAuthority, ":authority", req.Authority)
	}
	if req.Scheme == "https" {
		dst = appendIndex(dst, staticHTTPS)
	} else {
		dst = appendIndex(dst, staticHTTP)
	}
	if req.Path == "/" {
		dst = appendIndex(dst, staticPath)
	} else {
		dst = s.enc.appendField(dst, staticPath, ":path", req.Path)
	}
	if req.Authority != "" {
		dst = s.enc.appendField(dst, staticAuthority, ":authority", req.Authority)
	}
	if req.Upgrade != "" {
		dst = s.enc.appendField(dst, 0, ":protocol", req.Upgrade)
	}
	return dst
}

// invalidPart returns the name of a part of the request, other than its fields, that cannot be
// sent, or "" if there is none.
func (s *Session) invalidPart(req *protocol.Request) string {
	tunnel := req.Method == "CONNECT" && req.Upgrade == ""
	switch {
	case !isToken(req.Method):
		return "method"
	case req.Scheme != "" && req.Scheme != "http" && req.Scheme != "https":
		return "scheme"
	case tunnel && !protocol.IsTunnelTarget(req.Authority), req.Authority != "" && !protocol.IsAuthority(req.Authority):
		return "authority"
	case !tunnel && !isPath(req.Path) && (req.Path != "*" || req.Method != "OPTIONS"):
		return "target"
	}
	return ""
}

// requestSize returns the size of a request's header section (RFC 9113 6.5.2), without :protocol
// and the few regular fields that AppendRequest adds.
func requestSize(req *protocol.Request) uint64 {
	const pseudo = 4*32 + len(":method:scheme:path:authority")
	n := uint64(pseudo + len(req.Method) + len(req.Scheme) + len(req.Path) + len(req.Authority))
	for i := range req.Header.Len() {
		f := req.Header.At(i)
		n += uint64(len(f.Name)) + uint64(len(f.Value)) + 32
	}
	return n
}

// ResponseOptions are properties of a response head that protocol.Response does not hold.
type ResponseOptions struct {
	// End: the response has neither a body nor trailers.
	End bool
	// Server and Date are the values of fields that AppendResponse adds if the response does not
	// have them (RFC 9110 10.2.4, 6.6.1); "" adds none.
	Server, Date string
}

// AppendResponse appends the head of a final response on st: status, Header in its order with names
// in lowercase, the fields of opts, and content-length. content-length is sent if ContentLength is
// not negative and method and status allow it. Status 101 is sent as 200 in response to an extended
// CONNECT; elsewhere it is a Fault of reason Internal, as is a status outside 200 to 999.
//
// Connection and framing fields in Header are omitted. A control character in a value is sent as a
// space, and a field whose name is not a token is omitted. ErrNotOpen: the stream was reset, or its
// response head was sent. With any error dst is returned unchanged.
func (s *Session) AppendResponse(dst []byte, st *Stream, resp *protocol.Response, opts ResponseOptions) ([]byte, error) {
	if !st.awaitsHead() {
		return dst, ErrNotOpen
	}
	status := resp.Status
	if status == 101 && st.kind == extendedExchange {
		status = 200
	}
	if status < 200 || status > 999 {
		return dst, protocol.Faultf(protocol.Internal, "status %d is not valid in an HTTP/2 response", status)
	}
	st.headSent = true
	start := len(dst)
	dst = s.startBlock(dst)
	dst = s.appendStatus(dst, status)
	dst, _ = s.appendFields(dst, &resp.Header, false)
	if opts.Server != "" && !hasField(&resp.Header, "server") {
		dst = s.enc.appendField(dst, 54, "server", opts.Server)
	}
	if opts.Date != "" && !hasField(&resp.Header, "date") {
		dst = s.enc.appendField(dst, 33, "date", opts.Date)
	}
	length := resp.ContentLength
	if length >= 0 && status != 204 && (length > 0 || status != 304) && (st.kind < connectExchange || status >= 300) {
		dst = appendLength(dst, length)
	}
	if opts.End && st.endLocal() {
		s.closeCompleted(st)
	}
	return s.endBlock(dst, start, st.ID, opts.End), nil
}

func hasField(h *protocol.Header, name string) bool {
	_, ok := h.Lookup(name)
	return ok
}

// awaitsHead reports whether the head of a response may be sent on st.
func (st *Stream) awaitsHead() bool {
	return !st.openedByUs && !st.headSent && (st.state == Open || st.state == HalfClosedRemote)
}

// AppendInterim appends an interim response. A status of 101 or outside 100 to 199 is a Fault of
// reason Internal. header may be nil; its fields are sent as in AppendResponse. ErrNotOpen has the
// same meaning as in AppendResponse.
func (s *Session) AppendInterim(dst []byte, st *Stream, status int, header *protocol.Header) ([]byte, error) {
	if !st.awaitsHead() {
		return dst, ErrNotOpen
	}
	if status < 100 || status > 199 || status == 101 {
		return dst, protocol.Faultf(protocol.Internal, "interim status %d is not valid in HTTP/2", status)
	}
	start := len(dst)
	dst = s.startBlock(dst)
	dst = s.appendStatus(dst, status)
	if header != nil {
		dst, _ = s.appendFields(dst, header, false)
	}
	return s.endBlock(dst, start, st.ID, false), nil
}

// AppendTrailer ends the message on st with a trailer section, whose fields are sent as in
// AppendResponse. An empty trailer section becomes an empty DATA frame. The complete body must have
// been sent. ErrNotOpen: the stream was reset, our side has ended it, or its head was not sent.
func (s *Session) AppendTrailer(dst []byte, st *Stream, trailer *protocol.Header) ([]byte, error) {
	if trailer.Len() == 0 {
		dst, _, err := s.ReserveData(dst, st, 0, true)
		return dst, err
	}
	if !st.CanSend() {
		return dst, ErrNotOpen
	}
	start := len(dst)
	dst = s.startBlock(dst)
	dst, _ = s.appendFields(dst, trailer, false)
	if st.endLocal() {
		s.closeCompleted(st)
	}
	return s.endBlock(dst, start, st.ID, true), nil
}

// startBlock reserves space for a frame header and starts a header block. It also restores the
// compression table after a dropped block.
func (s *Session) startBlock(dst []byte) []byte {
	if s.blockStarted { // the previous block was dropped after a panic or an invalid field
		if s.enc.added != s.addedBeforeBlock || s.resizedBeforeBlock {
			s.enc.resetTable()
		}
		s.scratch = nil
	}
	s.blockStarted, s.addedBeforeBlock, s.resizedBeforeBlock = true, s.enc.added, s.enc.sizeChanged
	dst = AppendFrameHeader(dst, 0, FrameHeaders, 0, 0)
	return s.enc.appendSizeUpdates(dst)
}

// endBlock completes the frame header at start. If the block is too large for one frame, endBlock
// splits it into several frames.
func (s *Session) endBlock(dst []byte, start int, id uint32, end bool) []byte {
	s.blockStarted = false
	n := len(dst) - start - FrameHeaderLen
	if n <= int(s.peerSettings.MaxFrameSize) {
		AppendFrameHeader(dst[:start], n, FrameHeaders, endFlag(end)|FlagEndHeaders, id)
		return dst
	}
	s.scratch = append(s.scratch[:0], dst[start+FrameHeaderLen:]...)
	dst = AppendHeaders(dst[:start], id, s.scratch, end, s.peerSettings.MaxFrameSize)
	s.scratch = nil // such a block is rare, so its storage is not kept
	return dst
}

func (s *Session) appendStatus(dst []byte, status int) []byte {
	for i := uint32(staticStatus); i < staticStatus+7; i++ {
		if text := staticTable[i].value; int(text[0]-'0')*100+int(text[1]-'0')*10+int(text[2]-'0') == status {
			return appendIndex(dst, i)
		}
	}
	text := [3]byte{byte('0' + status/100), byte('0' + status/10%10), byte('0' + status%10)}
	return s.enc.appendField(dst, staticStatus, ":status", unsafeString(text[:]))
}

// appendLength appends content-length without adding it to the table, because values rarely repeat.
func appendLength(dst []byte, n int64) []byte {
	var digits [20]byte
	return appendLiteral(dst, staticContentLength, unsafeString(strconv.AppendInt(digits[:0], n, 10)), false)
}

// appendFields appends the fields of h that are forwarded. It replaces control characters in values
// and omits fields whose name is not a token. If strict is set, it stops at the first such field
// and names the field in invalid; the caller then drops the block.
func (s *Session) appendFields(dst []byte, h *protocol.Header, strict bool) (_ []byte, invalid string) {
	for i := range h.Len() {
		f := h.At(i)
		name, value := f.Name, f.Value
		m := s.enc.find(name, value)
		if m.validated {
			dst = appendIndex(dst, m.index)
			continue
		}
		if name == "" || !allInClass(name, nameByte) || !isFieldValue(value) {
			if strict && !(isToken(name) && hasOnlyValueBytes(value)) {
				return dst, "field " + strconv.Quote(name[:min(len(name), 64)])
			}
			var ok bool
			if name, value, ok = s.sanitizeField(name, value); !ok {
				continue
			}
			m = s.enc.find(name, value)
		}
		const minIndexedCookie = 20 // bytes; an attacker could guess a shorter cookie (RFC 7541 7.1.3)
		switch kind := knownFieldKind(name); {
		case !kind.isForwarded():
		case kind == sensitiveField, kind == cookieField && len(value) < minIndexedCookie:
			dst = appendNeverIndexed(dst, name, value)
		default:
			dst = s.enc.appendMatched(dst, uint32(staticNameIndex(name)), name, value, &m, true)
		}
	}
	return dst, ""
}

// sanitizeField returns name in lowercase, and value trimmed, with spaces in place of forbidden
// bytes. The results borrow s.scratch or value. ok is false if name is not a token.
func (s *Session) sanitizeField(name, value string) (lower, cleaned string, ok bool) {
	if !isToken(name) {
		return "", "", false
	}
	value = trimOWS(value)
	b := append(s.scratch[:0], name...)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	lower = unsafeString(b)
	if isFieldValue(value) {
		s.scratch = b
		return lower, value, true
	}
	b = append(b, value...)
	for i, c := range b[len(name):] {
		if byteClasses[c]&valueByte == 0 {
			b[len(name)+i] = ' '
		}
	}
	s.scratch = b
	return lower, trimOWS(unsafeString(b[len(name):])), true
}
