package http2

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	// NoEvent: there is nothing for the engine to do.
	NoEvent EventKind = iota
	// HeadersArrived: the head of a request, or of an interim or final response. The engine calls
	// TakeRequest or TakeResponse before the next frame.
	HeadersArrived
	// TrailersArrived: the trailer section; End is set. The engine calls TakeTrailer before the
	// next frame.
	TrailersArrived
	// DataArrived: bytes of the body, in Data, which may be empty if End is set. The engine calls
	// ReportConsumed when it has consumed the bytes.
	DataArrived
	// StreamReset: the peer reset the stream, with Code.
	StreamReset
	// WindowGrew: the send window of Stream grew, or the window of the connection if Stream is nil.
	WindowGrew
	// SettingsArrived: the peer's settings are applied and acknowledged; every stream's window may
	// have changed.
	SettingsArrived
	// SettingsAcked: the peer acknowledged our settings.
	SettingsAcked
	// PingAcked: the peer acknowledged a PING; Ping is the data of the acknowledgement.
	PingAcked
	// GoAwayArrived: the peer does not process our streams above LastStreamID
	// (Session.Unprocessed). Code is the reason; Data is debug text.
	GoAwayArrived
)

//nolint:gochecknoglobals // a constant table
var eventNames = [...]string{
	"nothing", "headers", "trailers", "data", "reset", "window", "settings", "settings acked", "ping acked", "goaway",
}

// String returns the name of the kind.
func (k EventKind) String() string { return eventNames[k] }

// Event is the meaning of one frame for the engine. Kind determines which fields are set.
type Event struct {
	Kind   EventKind
	Stream *Stream
	// End: the peer's message is complete, which may close the stream.
	End bool
	// Data borrows the frame's payload.
	Data         []byte
	Code         Code
	LastStreamID uint32
	Ping         uint64
}
