package http2

// EventKind is what a frame means to the engine.
type EventKind uint8

// The kinds of events.
const (
	// Nothing: there is nothing for the engine to do.
	Nothing EventKind = iota
	// HeadersArrived: the head of a request, or of an interim or final response.
	// The engine calls TakeRequest or TakeResponse before the next frame.
	HeadersArrived
	// TrailersArrived: the trailer section; End is set. The engine calls TakeTrailer before the
	// next frame.
	TrailersArrived
	// DataArrived: content, in Data; it may be empty with End. The engine calls Consumed when it is
	// done with the bytes.
	DataArrived
	// StreamReset: the peer reset the stream, with Code.
	StreamReset
	// WindowGrew: more may be sent on Stream, or on all if it is nil.
	WindowGrew
	// SettingsArrived: the peer's settings are applied and acknowledged; every stream's window may
	// have changed.
	SettingsArrived
	// SettingsAcked: the peer acknowledged ours.
	SettingsAcked
	// PingAcked: the peer acknowledged the PING with the data Ping.
	PingAcked
	// GoAwayArrived: the peer accepts none of our streams above Last (Unprocessed). Code and Data,
	// which is for people, say why.
	GoAwayArrived
)

//nolint:gochecknoglobals // a constant table
var eventNames = [...]string{
	"nothing", "headers", "trailers", "data", "reset", "window", "settings", "settings acked", "ping acked", "goaway",
}

// String returns the name of the kind.
func (k EventKind) String() string { return eventNames[k] }

// Event is what one frame means. Kind decides which fields are set.
type Event struct {
	Kind   EventKind
	Stream *Stream
	// End: the peer's message is complete, which may close the stream.
	End bool
	// Data is a view of the frame.
	Data []byte
	Code Code
	Last uint32
	Ping uint64
}
