package config

import "time"

// RouteTable contains virtual hosts. Proxies refer to it by its name.
type RouteTable struct {
	Name         string
	VirtualHosts []*VirtualHost
	IgnorePort   bool // ignore the port of the request's authority, or of VirtualHostHeader
	// VirtualHostHeader is the name of the header whose first value is compared with the domains,
	// instead of the authority; "": the authority. Without the header, a request belongs to no virtual
	// host, unless "*" is the only domain of the table.
	VirtualHostHeader string
	// LiteralDomains compares domains and authorities literally except for case, as Envoy does. A
	// domain without a port, or without a trailing dot, then does not match an authority that has
	// it, and "host:*" is a prefix. If LiteralDomains is false, the default port of the scheme and
	// a trailing dot make no difference, as in MOSN.
	LiteralDomains bool
	// ConnectRoutesOnly limits CONNECT requests to routes with PathConnect, as in Envoy. Otherwise, they
	// have an empty path.
	ConnectRoutesOnly bool
	// IgnorePathParameters compares paths without the text from a semicolon to the end of its segment.
	IgnorePathParameters bool

	Request  HeaderMutation // applied to requests, after the mutations of the route and the virtual host
	Response HeaderMutation
	// MostSpecificMutationsWin applies the mutations of the table first, then those of the virtual host
	// and the route. The mutations of a weighted cluster precede all others in both orders, as in Envoy.
	MostSpecificMutationsWin bool
	OnDemand                 OnDemand // for the whole table; only a control plane sets it
}

// VirtualHost is a set of domains with routes.
type VirtualHost struct {
	Name     string
	Domains  []string // "host", "host:port", "host:*", "*.suffix", "*.suffix:port", "prefix.*", "*"; lower case
	Routes   []*Route
	Matcher  *MatchTree // selects among Routes; nil: the first route that matches is used
	Request  HeaderMutation
	Response HeaderMutation
	// RequireTLS redirects plaintext requests to https before any route matches.
	RequireTLS RequireTLS
}

// RequireTLS says which requests a virtual host redirects to https. A request is plaintext unless
// its X-Forwarded-Proto is "https" or, if it has none, its connection uses TLS, as in Envoy.
type RequireTLS uint8

// The values.
const (
	TLSOptional         RequireTLS = iota // none
	TLSRequired                           // all plaintext requests
	TLSRequiredExternal                   // plaintext requests without the header "x-envoy-internal: true"
)

// Route matches requests and says how to handle them: exactly one of Forward, Redirect and
// DirectResponse is set.
type Route struct {
	Name           string // unique in its table: configured, or "virtualhost/3"
	Match          RouteMatch
	Forward        *Forward
	Redirect       *Redirect
	DirectResponse *DirectResponse

	Response HeaderMutation // applied to the responses of Redirect and DirectResponse; Forward has its own

	// Filters is per_filter_config. It maps the RouteKey of a filter to the validated configuration of
	// the filter, FilterDisabled or FilterEnabled. Settings in the type of another filter have no
	// effect.
	Filters  map[string]any
	Metadata map[string]any
}

// PathKind says how RouteMatch.Path is compared with the request's path without the query.
type PathKind uint8

// The kinds.
const (
	PathAny PathKind = iota
	PathPrefix
	PathExact
	PathRegex    // an unanchored regular expression
	PathSegments // the path and everything below it: "/a" matches "/a" and "/a/b", not "/ab"
	PathConnect  // CONNECT requests, which have no path
)

// RouteMatch is the condition of a route; every part of it must match.
type RouteMatch struct {
	PathKind   PathKind
	IgnoreCase bool // ignores the case of ASCII letters in Path; not for PathRegex
	Path       string
	Headers    []HeaderMatch
	Variables  []VariableMatch
	Query      []QueryMatch
	Cookies    []CookieMatch
	Arguments  []ArgumentMatch // of an RPC call
	TLS        *TLSMatch       // nil: any connection
	// Percentage is the percentage of requests, sampled randomly, that match; nil: all.
	Percentage *float64
}

// TLSMatch is a condition on the certificate of the client. Weft knows only certificates that it
// verified, so both fields mean the same.
type TLSMatch struct {
	Presented *bool // nil: with or without a certificate
	Validated *bool
}

// HeaderMatch compares the headers with one name individually: it matches if one of them does. An
// RPC call has the headers that select its target ("service", "method", "version" and "group")
// exactly once, whatever its attachments contain. The names "method", "host" (or "authority") and
// "path" refer to the request line and authority; in RPC requests, to the header with that name if
// there is one. ":method", ":authority", ":path" (with the query) and ":scheme" always refer to the
// request itself.
type HeaderMatch struct {
	Name  string
	Value string // ".*" matches any value, but the header must be present, whatever Regex is
	Regex bool   // Value is a regular expression
	// Matcher replaces Value and Regex. An inverted one matches if none of the headers with the name
	// does; ValueMatch says what a missing header matches. nil: Value and Regex apply.
	Matcher *ValueMatch
}

// QueryMatch compares the value of the first query parameter called Name. Names and values are
// compared without decoding percent-encodings, as in Envoy.
type QueryMatch struct {
	Name    string
	Matcher ValueMatch
}

// CookieMatch compares the value of the first cookie called Name, without the double quotes around
// it, as in Envoy. Matcher has no Invert: a missing cookie does not match it.
type CookieMatch struct {
	Name    string // case-sensitive
	Matcher ValueMatch
	Invert  bool // negates the result; a missing cookie then matches
}

// ArgumentMatch compares an argument of an RPC call: a string, an integer or a boolean. An argument
// of another type counts as missing.
type ArgumentMatch struct {
	Index   int // index of the argument, from 0
	Matcher ValueMatch
}

// ValueMatch is a condition on a value. A missing value does not match, whatever Invert says,
// except with ValuePresent or TreatMissingAsEmpty.
type ValueMatch struct {
	Kind       ValueKind
	Text       string // for the kinds that compare text
	From, To   int64  // bounds of ValueRange
	IgnoreCase bool   // ignores the case of ASCII letters; not for ValueRegex
	Invert     bool   // negates the match
	// TreatMissingAsEmpty treats a missing value as "".
	TreatMissingAsEmpty bool
}

// ValueKind says how a value is compared.
type ValueKind uint8

// The kinds.
const (
	ValueExact ValueKind = iota
	ValuePrefix
	ValueSuffix
	ValueContains
	ValueRegex   // a regular expression that matches the whole value
	ValuePresent // the value is present
	ValueRange   // an integer from From up to, but excluding, To
)

// VariableMatch compares a variable; a variable that the request lacks equals "". Or (MOSN's
// "model") ends a group of conditions: the list matches if all conditions of one group match.
type VariableMatch struct {
	Name  string
	Value string
	Regex bool
	Or    bool
}

// Forward sends the request to a cluster.
type Forward struct {
	// Exactly one of Cluster, ClusterVariable and WeightedClusters is set. ClusterVariable is the
	// name of a variable whose value is the name of the cluster.
	Cluster          string
	ClusterVariable  string
	WeightedClusters []WeightedCluster

	Upstream Protocol // protocol to the hosts; "": the protocol that the cluster sets, or else the proxy
	// ClusterNotFoundStatus is the status of the response if there is no cluster: the name is
	// unknown, or ClusterVariable has no value; 0: 404, as in MOSN.
	ClusterNotFoundStatus int

	Priority Priority // selects the limits of the cluster

	Timeout time.Duration // timeout of the whole request; default 60 s; an explicit 0: none
	Retry   *RetryPolicy  // nil: only retries that are always safe

	Extras *ForwardExtras // nil: the zero value; see Extra

	GRPCTimeout GRPCTimeout // meaning of the grpc-timeout header

	// Attempts says which headers describe the attempts, if the proxy has RouterHeaders.
	Attempts AttemptHeaders
	// HideTimeout omits Timeout from x-envoy-expected-rq-timeout-ms.
	HideTimeout bool

	Hedge        *HedgePolicy // nil: one attempt at a time
	HashPolicies []HashPolicy
	// Metadata are the labels of the hosts that the request may go to, if the cluster has subsets.
	// Those of a weighted cluster take precedence.
	Metadata map[string]string

	PrefixRewrite   string // replaces the matched prefix or path; "" for none
	RegexRewrite    *RegexRewrite
	HostRewrite     string
	AutoHostRewrite bool // the authority becomes the hostname of the selected host
	// AppendForwardedHost appends the original authority to X-Forwarded-Host if a host rewrite changes
	// the authority.
	AppendForwardedHost   bool
	AutoHostRewriteHeader string // the authority becomes the value of this header; it takes precedence over AutoHostRewrite
	// HostRewritePath computes the authority from the original path without its query, if the
	// pattern matches and the result is a valid host; nil: no rewrite.
	HostRewritePath *RegexRewrite

	Request  HeaderMutation
	Response HeaderMutation
}

// ForwardExtras are the settings of a Forward that few routes have.
type ForwardExtras struct {
	WeightSource WeightSource // selects among Forward.WeightedClusters
	// IdleTimeout replaces the idle timeout of streams that the listener sets; 0: that of the listener;
	// negative: none.
	IdleTimeout time.Duration
	Upgrades    []UpgradeRule // take precedence over Proxy.Upgrades
	// ConnectTunnel sends the bytes of a CONNECT request, without HTTP, to a host of the cluster. If it is
	// false, the host gets the CONNECT request.
	ConnectTunnel    bool
	InternalRedirect *InternalRedirect // nil: clients get the redirects of hosts
}

// Extra returns f.Extras, or the zero value if that is nil.
func (f *Forward) Extra() (e ForwardExtras) {
	if f.Extras != nil {
		e = *f.Extras
	}
	return e
}

// GRPCTimeout says how the grpc-timeout header of a gRPC call over HTTP/2 is used. With the zero
// value, the shorter of the header's timeout and Forward.Timeout applies.
type GRPCTimeout struct {
	Ignore  bool          // ignore the header
	Max     time.Duration // maximum timeout that the header can set; 0: no limit
	Replace bool          // the header replaces Forward.Timeout; a call without it gets Max
}

// WeightedCluster is one weighted target. Weight 0 gets no requests.
type WeightedCluster struct {
	Cluster  string // "": Extras.ClusterVariable names the cluster
	Weight   uint32
	Metadata map[string]string
	Request  HeaderMutation // applied before the mutation of the route
	Response HeaderMutation
	Extras   *WeightedExtras // nil: the zero value; see Extra
}

// WeightedExtras are the settings of a WeightedCluster that few routes have.
type WeightedExtras struct {
	ClusterVariable string         // as in Forward
	HostRewrite     string         // replaces the host rewrites of the route; "": those of the route
	Filters         map[string]any // replaces Route.Filters for requests to this cluster; nil: those of the route
}

// Extra returns c.Extras, or the zero value if that is nil.
func (c *WeightedCluster) Extra() (e WeightedExtras) {
	if c.Extras != nil {
		e = *c.Extras
	}
	return e
}

// WeightSource says which number selects a weighted cluster. The zero value is a random number.
type WeightSource struct {
	// Header is the name of a request header with the number. A request without a valid one uses a
	// random number.
	Header string
	Hash   bool // the hash of the request, if one of HashPolicies has a value
}

// HashPolicy selects the input of consistent hashing: one of Header, Cookie, SourceIP and Query is
// set. The first policy whose input the request has is used; a missing cookie is generated.
type HashPolicy struct {
	Header string // a header, or an RPC attachment; ":path", ":authority", ":method" and ":scheme" as in HTTP/2
	// HeaderRewrite replaces every match of its pattern in each value of Header before it is hashed;
	// nil: no rewrite. KeepIfEmpty has no meaning: an empty result is hashed.
	HeaderRewrite *RegexRewrite
	Cookie        string
	CookiePath    string        // path of a generated cookie; "": the browser's default
	CookieTTL     time.Duration // lifetime of a generated cookie; 0: a session cookie
	// ExistingCookie means that only a cookie of the request counts: Weft generates none.
	ExistingCookie bool
	// CookieAttributes follow Path and Max-Age of a generated cookie, in order.
	CookieAttributes []CookieAttribute
	SourceIP         bool   // the client address
	Query            string // a query parameter
}

// CookieAttribute is an attribute of a Set-Cookie header (RFC 6265 section 4.1.1).
type CookieAttribute struct {
	Name  string // a token
	Value string // "": an attribute without a value
}

// RegexRewrite replaces every match of Pattern in the path without its query. Substitution refers
// to groups as \1.
type RegexRewrite struct {
	Pattern, Substitution string
	// KeepIfEmpty keeps the original path if the result is empty, as in Envoy. Otherwise the path
	// becomes "/".
	KeepIfEmpty bool
}

// HeaderMutation modifies headers: removals first, then additions in order.
type HeaderMutation struct {
	Add    []HeaderValue
	Remove []string
}

// HeaderValue is a header to add. %variables% in Value are replaced.
type HeaderValue struct {
	Name, Value string
	Append      bool // false: replaces existing headers with the name
	If          AddIf
	Empty       EmptyValue
}

// EmptyValue says what happens if the value of a header to add is empty.
type EmptyValue uint8

// The cases. In all of them, a replaced header is removed if the value is a variable that the request
// lacks, so that a client cannot forge the header.
const (
	EmptyAdded       EmptyValue = iota // adds the header, except for a single variable without a value
	EmptySkipped                       // changes nothing
	EmptyAlwaysAdded                   // adds the header, also for a variable without a value
)

// AddIf says when a header is added, depending on whether one with its name exists.
type AddIf uint8

// The conditions.
const (
	AddAlways AddIf = iota
	AddIfAbsent
	AddIfPresent
)

// Redirect responds with a redirect to another location.
type Redirect struct {
	Code   int    // 301 default, 302, 303, 307, 308
	Path   string // replaces the path, and the query if it contains one; "" keeps them
	Host   string // "" keeps it
	Scheme string // "" keeps it
	Port   uint16 // 0: the port of Host or, without Host, of the request, except the default port of a replaced scheme
	// PrefixRewrite and RegexRewrite change the path like those of Forward. At most one of them and
	// Path is set.
	PrefixRewrite string
	RegexRewrite  *RegexRewrite
	StripQuery    bool
	// KeepPort keeps the port of the request's host, even if it is the default port of a scheme that
	// Scheme replaces.
	KeepPort bool
	// WriteDefaultPort writes Port even if it is the default port of the scheme.
	WriteDefaultPort bool
}

// DirectResponse responds without a cluster.
type DirectResponse struct {
	Status      int
	Body        string
	BodyFile    string // file with the body, read when the configuration is applied; "": Body
	MaxFileSize int64  // maximum size of BodyFile in bytes; 0: no limit
	ContentType string // of a response with a body; "": text/plain in UTF-8
	Location    bool   // adds Location with the URI of the request to responses with status 201 or 3xx
}
