package http2

// EventKind says what a frame meant to the engine.
type EventKind uint8

// The kinds.
const (
	// Nothing: there is nothing for the engine to do.
	Nothing EventKind = iota
	// HeadersArrived: the head of a request, or of an interim or final response.
	// The engine calls TakeRequest or TakeResponse before the next frame.
	HeadersArrived
	// TrailersArrived: the trailer section; End is set. The engine calls TakeTrailer
	// before the next frame.
	TrailersArrived
	// DataArrived: content, in Data; it may be empty with End. The engine tells
	// Consumed when it is done with its bytes.
	DataArrived
	// StreamReset: the peer reset the stream, with Code.
	StreamReset
	// WindowGrew: more may be sent on Stream, or on all if it is nil.
	WindowGrew
	// SettingsArrived: the peer's settings are in force and acknowledged; every
	// stream's window may have changed.
	SettingsArrived
	// SettingsAcked: the peer acknowledged ours.
	SettingsAcked
	// PingAcked: the peer answered the PING with the data Ping.
	PingAcked
	// GoAwayArrived: the peer takes no streams of ours above Last (Unprocessed), and
	// said why in Code and Data, which is for people.
	GoAwayArrived
)

//nolint:gochecknoglobals // a constant table
var eventNames = [...]string{
	"nothing", "headers", "trailers", "data", "reset", "window", "settings", "settings acked", "ping acked", "goaway",
}

// String returns the kind in a word.
func (k EventKind) String() string { return eventNames[k] }

// Event is what one frame meant. Which members are set depends on Kind.
type Event struct {
	Kind   EventKind
	Stream *Stream
	// End: the peer's message is complete. The stream may be closed by it.
	End bool
	// Data is a view of the frame.
	Data []byte
	Code Code
	Last uint32
	Ping uint64
}
