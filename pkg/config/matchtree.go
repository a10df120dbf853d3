package config

// MatchTree selects routes of a virtual host by values of the request: by the first of Rules whose
// predicate matches, or by the value of Input. A result that selects nothing, because the tree in it
// has no match, continues with the next rule or the next shorter prefix. If nothing matches, NoMatch
// applies.
type MatchTree struct {
	Rules []MatchRule

	// Instead of Rules:
	Input    MatchInput
	Exact    map[string]MatchResult // by value
	Prefixes map[string]MatchResult // by prefix of the value; the longest one first

	NoMatch *MatchResult // nil: no route
}

// MatchRule is a predicate with its result.
type MatchRule struct {
	Predicate MatchPredicate
	Result    MatchResult
}

// MatchPredicate is a condition: exactly one of Value, All, Any and Not is set. A missing value does
// not match.
type MatchPredicate struct {
	Input MatchInput // of Value
	Value *ValueMatch
	All   []MatchPredicate
	Any   []MatchPredicate
	Not   *MatchPredicate
}

// MatchResult is a tree or, if Tree is nil, the routes of the virtual host from First on. The first of
// these routes whose own conditions match is used.
type MatchResult struct {
	Tree         *MatchTree
	First, Count int
}

// MatchInput is a value of a request.
type MatchInput struct {
	Kind MatchInputKind
	Name string // of a header or a query parameter
}

// MatchInputKind says where a value is.
type MatchInputKind uint8

// The kinds.
const (
	InputHeader         MatchInputKind = iota // values of a repeated header are joined with commas
	InputQueryParameter                       // the first value, decoded
	InputDestinationIP                        // local address of the connection
	InputDestinationPort
	InputSourceIP // client address
	InputSourcePort
	InputDirectSourceIP // address of the connection's peer
	InputServerName     // SNI
	InputURISAN         // of the client certificate
	InputDNSSAN
	InputSubject
)
