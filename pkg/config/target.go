package config

// TargetRules say how targets of HTTP requests are written before anything looks at them:
// filters, routes and the upstream see the same. The zero value leaves them as they are.
type TargetRules struct {
	EscapedSlashes EscapedSlashes // %2F and %5C in the path; before what follows
	Normalize      bool           // RFC 3986 6.2.2: dot segments, what needs no encoding, what needs one, and backslashes; an encoded NUL: 400
	MergeSlashes   bool           // several in a row are one
	StripPort      StripPort      // of the host; not of CONNECT
	StripDot       bool           // one trailing dot of the host, before a port, too
}

// EscapedSlashes is what happens to requests with encoded slashes in their paths.
type EscapedSlashes string

// The ways.
const (
	KeepEscapedSlashes     EscapedSlashes = ""         // nothing
	RejectEscapedSlashes   EscapedSlashes = "reject"   // 400
	RedirectEscapedSlashes EscapedSlashes = "redirect" // 307 to the path with plain ones
	ForwardPlainSlashes    EscapedSlashes = "forward"  // they go on with plain ones
)

// StripPort is which port in a request's host counts for nothing.
type StripPort string

// The ports.
const (
	KeepPort       StripPort = ""
	StripOwnPort   StripPort = "own" // that the caller connected to
	StripEveryPort StripPort = "every"
)

// FilterOff leaves a stream filter that runs inside routes out of a Route, in the place of
// settings that this has for it.
type FilterOff struct{}

// FilterOn has a Filter that is Off run in a Route, with the listener's settings, in the
// place of settings that this has for it.
type FilterOn struct{}

// FilterMissing stands in the place of a Filter's settings that nobody has told: what would
// meet the filter is answered with an error, for what it would have refused is not known.
type FilterMissing struct{}
