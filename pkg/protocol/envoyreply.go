package protocol

import (
	"cmp"
	"errors"
	"strings"
)

// EnvoyReplies makes the local replies of a proxy those of Envoy: status, text and fields. It is
// immutable. A nil *EnvoyReplies stands for the replies of docs/errors.md.
type EnvoyReplies struct {
	// Rewrite changes a local reply before the client gets it, as local_reply_config requires. It
	// may allocate. Nil: the reply stays.
	Rewrite func(x *Exchange)
}

// Apply changes the local reply in x as r requires. The engine calls it before it writes the reply.
func (r *EnvoyReplies) Apply(x *Exchange) {
	if r != nil && r.Rewrite != nil {
		r.Rewrite(x)
	}
}

// OmitLength makes the local reply in x declare no length if it has no body, and reports whether it
// did. Envoy declares a length of 0 only in HTTP/1.1, and not in responses to HEAD.
func (r *EnvoyReplies) OmitLength(x *Exchange) bool {
	if r == nil || x.Response.Body != nil {
		return false
	}
	x.Response.ContentLength = -1
	return true
}

// EnvoyReply defines how Envoy expresses a failure, or a response that it generates itself. Code
// that knows more than a Reason tells attaches one to its Fault, or sets Record.EnvoyReply. An
// EnvoyReply does not change once it is attached.
type EnvoyReply struct {
	Status int    // HTTP status; 0: that of the reason
	Body   string // text of the local reply, and grpc-message; "": none
	// Details is the value of RESPONSE_CODE_DETAILS, without white space.
	Details string
	Flag    string // short name of the response flag; "": that of the reason; NoEnvoyFlag: none
	// ResetReason says why the request to the host ended without a response, or with an incomplete
	// one: "connection termination". If it is set, Body and Details follow from it.
	ResetReason string
	// TransportFailure says why the connection to the host failed; "": unknown. Only access logs
	// contain it.
	TransportFailure string
}

// NoEnvoyFlag is the Flag of a failure that has no response flag in Envoy, although its reason has
// one.
const NoEnvoyFlag = "-"

// noHealthyUpstream is the reply if no host can be chosen. It is an EnvoyReply without a status.
const noHealthyUpstream = "no healthy upstream"

// envoyReplies has the reply of each reason. A reason that Envoy does not know has the reply of the
// most similar reason.
//
//nolint:gochecknoglobals // a constant table
var envoyReplies = [reasonCount]EnvoyReply{
	MalformedRequest:    {Status: 400, Body: "Bad Request", Details: "http1.codec_error"},
	TargetTooLong:       {Status: 431, Body: "Request Header Fields Too Large", Details: "http1.headers_too_large"},
	HeaderTooLarge:      {Status: 431, Body: "Request Header Fields Too Large", Details: "http1.headers_too_large"},
	BodyTooLarge:        {Status: 413, Body: "Payload Too Large", Details: "request_payload_too_large", Flag: NoEnvoyFlag},
	RequestTimeout:      {Status: 408, Body: "request header timeout", Details: "request_header_timeout", Flag: NoEnvoyFlag},
	RequestIdle:         {Status: 408, Body: "stream timeout", Details: "stream_idle_timeout"},
	VersionNotSupported: {Status: 426, Body: "Upgrade Required", Details: "low_version"},
	NotImplemented:      {Status: 501, Body: "Not Implemented", Details: "http1.invalid_transfer_encoding"},
	ExpectationFailed:   {Status: 417, Body: "Expectation Failed", Details: "http1.codec_error"},

	ReasonNoRoute:         {Status: 404, Details: "route_not_found"},
	NoCluster:             {Status: 503, Details: "cluster_not_found"},
	ReasonOnDemandTimeout: {Status: 503, Details: "cluster_not_found"},
	NoDestination:         {Status: 503, Body: noHealthyUpstream, Details: "no_healthy_upstream"},
	MalformedDestination:  {Status: 503, Body: noHealthyUpstream, Details: "no_healthy_upstream", Flag: "UH"},
	ReasonLoop:            {Status: 503, Body: noHealthyUpstream, Details: "no_healthy_upstream"},

	ReasonDenied:    {Status: 403, Details: "denied"},
	Unauthenticated: {Status: 401, Details: "unauthenticated"},
	RateLimited:     {Status: 429, Body: "local_rate_limited", Details: "local_rate_limited"},
	FaultInjected:   {Status: 503, Body: "fault filter abort", Details: "fault_filter_abort"},

	NoHealthyHost:  {Status: 503, Body: noHealthyUpstream, Details: "no_healthy_upstream"},
	ConnectFailure: {Status: 503, ResetReason: "remote connection failure"},
	ConnectTimeout: {Status: 503, ResetReason: "connection timeout"},
	Overflow:       {Status: 503, ResetReason: "overflow"},
	Dropped:        {Status: 503, Body: "drop overload", Details: "drop_overload"},

	UpstreamReset:       {Status: 503, ResetReason: "connection termination", Flag: "UC"},
	UpstreamClosed:      {Status: 503, ResetReason: "connection termination"},
	UpstreamMalformed:   {Status: 502, ResetReason: "protocol error"},
	UpstreamTimeout:     {Status: 504, Body: "upstream request timeout", Details: "response_timeout"},
	ReasonPerTryTimeout: {Status: 504, Body: "upstream request timeout", Details: "upstream_per_try_timeout"},
	StreamIdle:          {Status: 504, Body: "stream timeout", Details: "stream_idle_timeout"},

	ReasonDownstreamDisconnect: {Status: 499, Details: "downstream_remote_disconnect"},
	Draining:                   {Status: 503, Details: "draining", Flag: NoEnvoyFlag},
	Overloaded:                 {Status: 503, Body: "envoy overloaded", Details: "overload"},
	Internal:                   {Status: 500, Body: "Internal Server Error", Details: "internal_error", Flag: NoEnvoyFlag},
}

// incompleteResponse is the reply of an HTTP/1.1 connection that ended within a response.
//
//nolint:gochecknoglobals // a constant
var incompleteResponse = EnvoyReply{ResetReason: "protocol error", Flag: "UPE"}

// WithEnvoyReply sets the reply with which Envoy expresses f, and returns f.
func (f *Fault) WithEnvoyReply(r EnvoyReply) *Fault {
	f.envoy = &r
	return f
}

// EnvoyReplyOf returns the reply of the Fault that ReasonOf evaluates; nil: that of its reason.
func EnvoyReplyOf(err error) *EnvoyReply {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.envoy
	}
	return nil
}

// envoyReply returns the reply with which Envoy expresses the end of x.
func (x *Exchange) envoyReply() *EnvoyReply {
	r := &x.Record
	switch {
	case r.EnvoyReply != nil:
		return r.EnvoyReply
	case x.responseStarted() && (r.Reason == UpstreamReset || r.Reason == UpstreamClosed):
		return &incompleteResponse
	}
	return &envoyReplies[r.Reason]
}

// responseStarted reports whether the client has got the response of a host, possibly not all of it.
func (x *Exchange) responseStarted() bool {
	return x.Response.Source == UpstreamResponse
}

// replyAsEnvoy replaces the response with the local reply of Envoy for x.Record.
func (x *Exchange) replyAsEnvoy() {
	r := x.envoyReply()
	text := r.Body
	if r.ResetReason != "" {
		text = x.resetText(r)
	}
	status := cmp.Or(r.Status, envoyReplies[x.Record.Reason].Status)
	x.LocalReply(status, TextPlain, text)
	if field := overloadField(x.Record.Reason, r); field != "" {
		x.Response.Header.Add(field, "true")
	}
}

// overloadField returns the response field that tells clients not to retry immediately, or "".
func overloadField(reason Reason, r *EnvoyReply) string {
	switch {
	case reason == Dropped && r.Flag == "UDO":
		return "x-envoy-unconditional-drop-overload"
	case reason == Dropped:
		return "x-envoy-drop-overload"
	case reason == Overflow && r.ResetReason != "":
		return overloadedField
	}
	return ""
}

// resetText returns the text of the local reply for a request to a host that ended without a
// response.
func (x *Exchange) resetText(r *EnvoyReply) string {
	const begin = "upstream connect error or disconnect/reset before headers. "
	if len(x.Record.Attempts) > 1 {
		return begin + "retried and the latest reset reason: " + r.ResetReason
	}
	return begin + "reset reason: " + r.ResetReason
}

// CodeDetails returns why the response has its status, in the words of Envoy's
// RESPONSE_CODE_DETAILS; "" if there is nothing to say. It allocates only for some failures.
func (x *Exchange) CodeDetails() string {
	r := x.envoyReply()
	switch {
	case r.ResetReason != "":
		return x.resetDetails(r)
	case r.Details == "" && x.Record.Reason == ReasonNone && x.responseStarted():
		return "via_upstream"
	}
	return r.Details
}

// resetDetails returns the details of a request to a host that ended early.
func (x *Exchange) resetDetails(r *EnvoyReply) string {
	text := "upstream_reset_before_response_started{" + r.ResetReason
	if x.responseStarted() {
		text = "upstream_reset_after_response_started{" + r.ResetReason
	}
	if r.TransportFailure != "" {
		text += "|" + r.TransportFailure
	}
	return strings.ReplaceAll(text, " ", "_") + "}"
}

// FlagNames returns the names of the flags of x, separated by commas and in the order in which the
// events occurred, or "-" if there are none.
func (x *Exchange) FlagNames() string {
	flag := x.Record.Reason.Spec().Flag
	if x.EnvoyReplies != nil {
		flag = cmp.Or(x.envoyReply().Flag, flag)
	}
	return x.Record.Flags.namesWith(flag)
}
