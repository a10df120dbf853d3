package config

// TargetNormalization says how the targets of HTTP requests are normalized before filters, routes
// and the upstream read them. The zero value leaves them unchanged.
type TargetNormalization struct {
	EscapedSlashes   EscapedSlashes // %2F and %5C in the path; applied before the other rules
	NormalizePath    bool           // RFC 3986 section 6.2.2: dot segments, unneeded and missing percent-encodings, and backslashes; an encoded NUL: 400
	MergeSlashes     bool           // merges consecutive slashes
	StripPort        StripPort      // port to remove from the host; not for CONNECT
	StripTrailingDot bool           // removes one trailing dot of the host, also before a port
}

// EscapedSlashes says how requests with encoded slashes in their paths are handled.
type EscapedSlashes string

// The modes.
const (
	KeepEscapedSlashes     EscapedSlashes = ""         // unchanged
	RejectEscapedSlashes   EscapedSlashes = "reject"   // 400
	RedirectEscapedSlashes EscapedSlashes = "redirect" // 307 to the path with plain slashes
	ForwardPlainSlashes    EscapedSlashes = "forward"  // forwarded with plain slashes
)

// StripPort says which port is removed from the host of a request.
type StripPort string

// The modes.
const (
	KeepPort          StripPort = ""
	StripMatchingPort StripPort = "own" // the port that the client connected to
	StripAnyPort      StripPort = "every"
)

// FilterDisabled disables a stream filter in a Route. It replaces the Route's settings for the
// filter.
type FilterDisabled struct{}

// FilterEnabled replaces a Route's settings for a filter. In that Route it enables a Filter with
// Disabled set, with the settings of the listener.
type FilterEnabled struct{}

// FilterConfigMissing replaces the configuration of a Filter whose configuration has not arrived.
// Requests that the filter would process get an error, because Weft cannot know which requests the
// filter would reject.
type FilterConfigMissing struct{}
