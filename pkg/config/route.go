package config

import "time"

// RouteTable is what router_config_name refers to.
type RouteTable struct {
	Name         string
	VirtualHosts []*VirtualHost
	IgnorePort   bool // the port that a request names counts for nothing
	// LiteralDomains: domains and authorities are compared as they are written but for
	// case, as Envoy does: a domain without a port is not for an authority with one, nor one
	// without a trailing dot for one with it, and "host:*" is a prefix. Otherwise the
	// standard port of the scheme and a trailing dot make no difference, as in MOSN.
	LiteralDomains bool
	Request        HeaderMutation // applied to requests, after the route's and the virtual host's
	Response       HeaderMutation
	OnDemand       OnDemand // of all of it; never configured
}

// VirtualHost is a set of domains and their routes, tried in order.
type VirtualHost struct {
	Name     string
	Domains  []string // "host", "host:port", "host:*", "*.suffix", "*.suffix:port", "prefix.*", "*"; lower case
	Routes   []*Route
	Request  HeaderMutation
	Response HeaderMutation
}

// Route matches requests and says what becomes of them: exactly one of Forward,
// Redirect and Direct is set.
type Route struct {
	Name     string // unique in its table: given, or "virtualhost/3"
	Match    Match
	Forward  *Forward
	Redirect *Redirect
	Direct   *DirectResponse

	Response HeaderMutation // of the answers of Redirect and Direct; Forward has its own

	// Filters is per_filter_config: filter name -> its checked config, FilterOff or FilterOn.
	Filters  map[string]any
	Metadata map[string]any
}

// PathKind is how Match.Path is compared with the request's path without its
// query.
type PathKind uint8

// The kinds.
const (
	PathAny PathKind = iota
	PathPrefix
	PathExact
	PathRegex    // the whole path, unanchored as the expression says
	PathSegments // the path, or what is below it: "/a" is for "/a" and "/a/b", not for "/ab"
)

// Match is the condition of a route; all of it must hold.
type Match struct {
	PathKind   PathKind
	Path       string
	IgnoreCase bool // of ASCII letters in Path; not of PathRegex
	Headers    []HeaderMatch
	Variables  []VariableMatch
	Query      []QueryMatch
	Arguments  []ArgumentMatch // of a call of RPC
	// Chance is the percentage of requests, chosen at random, that the route is for;
	// nil: all.
	Chance *float64
}

// HeaderMatch compares the fields of a name, each by itself: it holds if one of them
// meets it. Those in which a call of RPC says where it goes ("service", "method",
// "version" and "group") it has once, whatever its attachments say. Names "method",
// "host" (or "authority") and "path" mean the request's own; of RPC requests, the
// field if there is one. ":method", ":authority", ":path" (with the query) and
// ":scheme" mean the request's own always.
type HeaderMatch struct {
	Name  string
	Value string // ".*": any value, but the field must be there, Regex or not
	Regex bool   // Value is an expression
	// Is stands in the place of Value and Regex. An inverted one holds if no field of the
	// name meets it. nil: those count.
	Is *ValueMatch
}

// QueryMatch compares a parameter of the query, the first of its name. Names and values are
// compared as they are written, percent-encodings included, as in Envoy.
type QueryMatch struct {
	Name string
	Is   ValueMatch
}

// ArgumentMatch compares an argument of a call of RPC: a text, a whole number or a
// boolean. Others are missing.
type ArgumentMatch struct {
	Index int // from 0
	Is    ValueMatch
}

// ValueMatch says what a value has to be. A value that is missing is nothing, Invert
// or not, but where the question is whether it is there.
type ValueMatch struct {
	Kind       ValueKind
	Text       string // of the kinds that compare text
	From, To   int64  // of ValueRange
	IgnoreCase bool   // of ASCII letters; not of ValueRegex
	Invert     bool   // it must not be that
	// MissingIsEmpty: a value that is missing is "".
	MissingIsEmpty bool
}

// ValueKind is how a value is compared.
type ValueKind uint8

// The kinds.
const (
	ValueExact ValueKind = iota
	ValuePrefix
	ValueSuffix
	ValueContains
	ValueRegex   // the expression matches the whole value
	ValuePresent // there is one
	ValueRange   // a whole number, from From to below To
)

// VariableMatch compares a variable; one that the request lacks equals "". Or
// (MOSN's "model") ends a group of conditions: the match holds if all conditions
// of one group do.
type VariableMatch struct {
	Name  string
	Value string
	Regex bool
	Or    bool
}

// Forward sends the request to a cluster.
type Forward struct {
	Cluster         string            // one of Cluster,
	ClusterVariable string            // the variable that names it, and
	Weighted        []WeightedCluster // a choice by weight is set
	Upstream        Protocol          // "": as the cluster says, or the proxy
	// NoClusterStatus answers requests for which there is no cluster: none of that name, or
	// ClusterVariable has no value; 0: 404, as in MOSN.
	NoClusterStatus int

	Priority Priority // of the limits of the cluster

	Timeout time.Duration // whole exchange; default 60 s; 0 as written: none
	Retry   *RetryPolicy  // nil: only what is safe whatever the policy (see Retry)

	GRPCTimeout GRPCTimeout // what the grpc-timeout of a call counts for

	Hedge *HedgePolicy // nil: one try at a time
	Hash  []HashPolicy
	// Metadata are the labels of the hosts that the request may go to, where a cluster
	// has subsets. Those of a weighted cluster count for more.
	Metadata map[string]string

	PrefixRewrite         string // replaces the matched prefix or path; "" for none
	RegexRewrite          *RegexRewrite
	HostRewrite           string
	AutoHostRewrite       bool   // Authority becomes the chosen host's hostname
	AutoHostRewriteHeader string // Authority becomes this field's value
	// HostRewritePath makes Authority of the path as it came, without its query, if the
	// pattern is found and what comes of it is a host; nil: it does not.
	HostRewritePath *RegexRewrite

	Request  HeaderMutation
	Response HeaderMutation

	Mirror *Mirror
}

// GRPCTimeout says what the grpc-timeout field of a call of gRPC over HTTP/2 counts for. The
// zero value: the call ends at the nearer of it and Forward.Timeout.
type GRPCTimeout struct {
	Ignore  bool          // it counts for nothing
	Max     time.Duration // no call gets more by it; 0: no bound
	Replace bool          // it stands in the place of Forward.Timeout; a call without it has Max
}

// WeightedCluster is one choice. Weight 0 gets nothing.
type WeightedCluster struct {
	Cluster  string
	Weight   uint32
	Metadata map[string]string
	Request  HeaderMutation // before the route's
	Response HeaderMutation
}

// HashPolicy picks what consistent hashing hashes: one of Header, Cookie, SourceIP
// and Query is set. Of several policies the first counts that a request has something
// for; a cookie that it lacks is made.
type HashPolicy struct {
	Header     string // a field, of RPC an attachment; ":path", ":authority", ":method" and ":scheme" as in HTTP/2
	Cookie     string
	CookiePath string        // of a cookie that is made; "": the browser's choice
	CookieTTL  time.Duration // 0: as long as the browser runs
	// CookieAttributes follow Path and Max-Age of a cookie that is made, in order.
	CookieAttributes []CookieAttribute
	SourceIP         bool   // the caller's address
	Query            string // a parameter of the query
}

// CookieAttribute is an attribute of a Set-Cookie field (RFC 6265 4.1.1).
type CookieAttribute struct {
	Name  string // a token
	Value string // "": the attribute has none
}

// RegexRewrite replaces every match of Pattern in the path without its query.
// Substitution refers to groups as \1.
type RegexRewrite struct {
	Pattern, Substitution string
	// KeepIfEmpty: a path of which nothing would be left stays as it is, as in Envoy.
	// Otherwise it becomes "/".
	KeepIfEmpty bool
}

// HeaderMutation changes fields: removals first, then additions in order.
type HeaderMutation struct {
	Add    []HeaderValue
	Remove []string
}

// HeaderValue is a field to add. %variables% in Value are replaced.
type HeaderValue struct {
	Name, Value string
	Append      bool // false: replaces what is there
	If          AddIf
}

// AddIf says when a field is added, by whether there is one of its name.
type AddIf uint8

// The conditions.
const (
	AddAlways AddIf = iota
	AddIfAbsent
	AddIfPresent
)

// Redirect answers with a Location.
type Redirect struct {
	Code   int    // 301 default, 302, 303, 307, 308
	Path   string // replaces the path, and the query if it has one; "" keeps them
	Host   string // "" keeps it
	Scheme string // "" keeps it
	Port   uint16 // 0 keeps it, or none with another Host
	// PrefixRewrite and RegexRewrite change the path as those of Forward do; one of them
	// and Path at most.
	PrefixRewrite string
	RegexRewrite  *RegexRewrite
	StripQuery    bool
}

// DirectResponse answers by itself.
type DirectResponse struct {
	Status int
	Body   string
}

// Mirror copies requests to another cluster.
type Mirror struct {
	Cluster string
	Percent uint32
}
