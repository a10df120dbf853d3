package config

// ExchangeFilter is a condition on an exchange that has a response or has ended. It selects the
// exchanges that an access log records. Exactly one field is set.
type ExchangeFilter struct {
	All []ExchangeFilter // every filter of the list matches
	Any []ExchangeFilter // one filter of the list matches

	Status         *Comparison // the status of the response; 0 if there is none
	Duration       *Comparison // the time since the start of the request, in milliseconds
	GRPCStatus     *GRPCStatusFilter
	Flags          *FlagFilter
	Header         *HeaderMatch // a header of the request
	Metadata       *MetadataFilter
	LogTypes       *LogTypeFilter
	Sample         *SampleFilter
	NotHealthCheck bool // the health_check filter did not match the request
}

// Comparison compares a number with Value.
type Comparison struct {
	Op    ComparisonOp
	Value uint32
}

// ComparisonOp is the operator of a Comparison.
type ComparisonOp uint8

// The operators.
const (
	EqualTo ComparisonOp = iota
	NotEqualTo
	AtLeast
	AtMost
)

// GRPCStatusFilter compares the gRPC status of the response: its grpc-status or, without one, the
// status that gRPC assigns to the HTTP status.
type GRPCStatusFilter struct {
	Statuses []int
	Exclude  bool // matches the statuses that are not in the list
}

// FlagFilter matches an exchange that has one of the response flags.
type FlagFilter struct {
	Flags []string // as in an access log: "UH"; empty: any flag
}

// MetadataFilter compares a metadata value that a filter has set.
type MetadataFilter struct {
	Namespace      string
	Path           []string // of the value in the namespace
	Matcher        ValueMatch
	Invert         bool // negates the result of Matcher, if there is a value
	MatchIfMissing bool // the result if there is no such value
}

// LogTypeFilter compares the event for which an access log writes a line.
type LogTypeFilter struct {
	Types   []string // as in %ACCESS_LOG_TYPE%: "DownstreamEnd"
	Exclude bool     // matches the types that are not in the list
}

// SampleFilter matches a random sample of the exchanges.
type SampleFilter struct {
	PerMillion uint32
	// ByRequestID derives the sample from the UUID in X-Request-Id, if the request has one, so that
	// all proxies on the path of a request decide alike.
	ByRequestID bool
}
