package variable

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// responseOperators returns the operators for the response.
func responseOperators() []operator {
	return []operator{
		{name: "RESP", argument: requiredArgument, length: true, compile: headerValue(responseField), doc: "RESP(X?Y): header X of the response or, without it, header Y. :status is the status."},
		{name: "RESPONSE_HEADER", argument: requiredArgument, length: true, compile: headerValue(responseField), doc: "The same as RESP."},
		{name: "TRAILER", argument: requiredArgument, length: true, compile: headerValue(responseTrailer), doc: "TRAILER(X?Y): trailer field of the response."},
		{name: "RESPONSE_TRAILER", argument: requiredArgument, length: true, compile: headerValue(responseTrailer), doc: "The same as TRAILER."},
		{name: "RESPONSE_CODE", compile: numberValue(sentStatus), doc: "Status of the response; 0 if none was sent."},
		{name: "RESPONSE_CODE_DETAILS", argument: optionalArgument, compile: codeDetailsValue, doc: "Who sent the response, and why: via_upstream. Underscores replace spaces, unless the argument is ALLOW_WHITESPACES."},
		{name: "RESPONSE_FLAGS", compile: textValue(flags), doc: "Flags of the response, or -: NR, UH, UT. See docs/errors.md."},
		{name: "RESPONSE_FLAGS_LONG", compile: textValue(longFlags), doc: "The flags in their long form: NoRouteFound."},
		{name: "CONNECTION_TERMINATION_DETAILS", compile: textValue(terminationDetails), doc: "Why Weft closed the connection."},
		{name: "BYTES_SENT", compile: sameAs("bytes_sent"), doc: "Bytes of the response body; for relayed connections, bytes to the client."},
		{name: "RESPONSE_HEADERS_BYTES", compile: numberValue(responseHeaderBytes), doc: "Bytes of the names and values of the response's headers."},
		{name: "RESPONSE_TRAILERS_BYTES", compile: numberValue(responseTrailerBytes), doc: "Bytes of the names and values of the response's trailer fields."},
		{name: "BYTES_RETRANSMITTED", compile: zero, doc: "0: it concerns HTTP/3."},
		{name: "PACKETS_RETRANSMITTED", compile: zero, doc: "0: it concerns HTTP/3."},
		{name: "GRPC_STATUS", argument: optionalArgument, compile: grpcStatusValue, doc: "gRPC status, as CAMEL_STRING (the default), SNAKE_STRING or NUMBER."},
		{name: "GRPC_STATUS_NUMBER", compile: numberValue(grpcStatusNumber), doc: "gRPC status as a number."},
		{name: "LOCAL_REPLY_BODY", compile: localReplyBody, doc: "Body of the local reply, in the format of local replies; elsewhere empty."},
	}
}

// responseField returns a field of the response; name is in lower case.
func responseField(x *protocol.Exchange, name string) (string, bool) {
	switch name {
	case ":status":
		if x.Response.Status == 0 {
			return "", false
		}
		return strconv.Itoa(x.Response.Status), true
	case "content-length":
		if x.Response.Status == 0 {
			return "", false
		}
		return declaredLength(&x.Response.Message)
	}
	return x.Response.Header.Lookup(name)
}

func responseTrailer(x *protocol.Exchange, name string) (string, bool) {
	return x.Response.Trailer.Lookup(name)
}

func sentStatus(x *protocol.Exchange) (int64, bool) { return int64(x.SentStatus()), true }

// codeDetailsValue compiles RESPONSE_CODE_DETAILS(X).
func codeDetailsValue(c *operatorCall, _ *OperatorOptions) (definition, error) {
	if c.argument == "ALLOW_WHITESPACES" {
		return newText(codeDetails), nil
	}
	return newText(func(x *protocol.Exchange) (string, bool) {
		details, ok := codeDetails(x)
		return withoutSpaces(details), ok
	}), nil
}

// codeDetails returns who sent the response, and why.
func codeDetails(x *protocol.Exchange) (string, bool) {
	if isConnection(x) {
		return "", false
	}
	return nonEmpty(x.CodeDetails())
}

// terminationDetails returns why Weft closed the connection of x. No reason of Weft has such
// details.
func terminationDetails(*protocol.Exchange) (string, bool) { return "", false }

// withoutSpaces replaces white space by underscores.
func withoutSpaces(text string) string {
	if !strings.ContainsAny(text, " \t\r\n\v\f") {
		return text
	}
	return strings.NewReplacer(" ", "_", "\t", "_", "\r", "_", "\n", "_", "\v", "_", "\f", "_").Replace(text)
}

// flags returns the response flags, or "-", which is text also in JSON.
func flags(x *protocol.Exchange) (string, bool) {
	return x.FlagNames(), true
}

// longFlags returns the long forms of the response flags.
func longFlags(x *protocol.Exchange) (string, bool) {
	short, _ := flags(x)
	if long := longFlag(short); long != "" {
		return long, true
	}
	var long []string
	for name := range strings.SplitSeq(short, ",") {
		if text := longFlag(name); text != "" {
			name = text
		}
		long = append(long, name)
	}
	return strings.Join(long, ","), true
}

// longFlag returns the long form of a flag, or "" if it has none.
func longFlag(name string) string {
	for i := range longFlagNames {
		if longFlagNames[i][0] == name {
			return longFlagNames[i][1]
		}
	}
	return ""
}

//nolint:gochecknoglobals // a constant table
var longFlagNames = [...][2]string{
	{"-", "-"},
	{"UH", "NoHealthyUpstream"},
	{"UF", "UpstreamConnectionFailure"},
	{"UO", "UpstreamOverflow"},
	{"NR", "NoRouteFound"},
	{"URX", "UpstreamRetryLimitExceeded"},
	{"NC", "NoClusterFound"},
	{"DT", "DurationTimeout"},
	{"DC", "DownstreamConnectionTermination"},
	{"LH", "FailedLocalHealthCheck"},
	{"UT", "UpstreamRequestTimeout"},
	{"LR", "LocalReset"},
	{"UR", "UpstreamRemoteReset"},
	{"UC", "UpstreamConnectionTermination"},
	{"DI", "DelayInjected"},
	{"FI", "FaultInjected"},
	{"RL", "RateLimited"},
	{"UAEX", "UnauthorizedExternalService"},
	{"RLSE", "RateLimitServiceError"},
	{"IH", "InvalidEnvoyRequestHeaders"},
	{"SI", "StreamIdleTimeout"},
	{"DPE", "DownstreamProtocolError"},
	{"UPE", "UpstreamProtocolError"},
	{"UMSDR", "UpstreamMaxStreamDurationReached"},
	{"NFCF", "NoFilterConfigFound"},
	{"OM", "OverloadManagerTerminated"},
	{"DF", "DnsResolutionFailed"},
	{"DO", "DropOverload"},
	{"DR", "DownstreamRemoteReset"},
	{"UDO", "UnconditionalDropOverload"},
}

func responseHeaderBytes(x *protocol.Exchange) (int64, bool) {
	if x.Response.Status == 0 {
		return 0, true
	}
	return int64(len(":status")+len("200")) + headerBytes(&x.Response.Message), true
}

func responseTrailerBytes(x *protocol.Exchange) (int64, bool) {
	return fieldBytes(&x.Response.Trailer), true
}

func grpcStatusNumber(x *protocol.Exchange) (int64, bool) {
	if !isGRPC(x) {
		return 0, false
	}
	code := protocol.EffectiveGRPCStatus(&x.Response)
	return int64(code), code != protocol.NoCode
}

// grpcStatusValue compiles GRPC_STATUS(FORM).
func grpcStatusValue(c *operatorCall, _ *OperatorOptions) (definition, error) {
	column := 0
	switch c.argument {
	case "", "CAMEL_STRING":
	case "SNAKE_STRING":
		column = 1
	case "NUMBER":
		return newNumber(grpcStatusNumber), nil
	default:
		return definition{}, fmt.Errorf("%q is not valid: expected CAMEL_STRING, SNAKE_STRING or NUMBER", c.argument)
	}
	return newText(func(x *protocol.Exchange) (string, bool) {
		code, ok := grpcStatusNumber(x)
		if ok && code < int64(len(grpcStatusNames)) {
			return grpcStatusNames[code][column], true
		}
		return strconv.FormatInt(code, 10), ok
	}), nil
}

// grpcStatusNames are the names of the gRPC statuses, as Envoy and gRPC write them.
//
//nolint:gochecknoglobals // a constant table
var grpcStatusNames = [...][2]string{
	{"OK", "OK"},
	{"Canceled", "CANCELLED"},
	{"Unknown", "UNKNOWN"},
	{"InvalidArgument", "INVALID_ARGUMENT"},
	{"DeadlineExceeded", "DEADLINE_EXCEEDED"},
	{"NotFound", "NOT_FOUND"},
	{"AlreadyExists", "ALREADY_EXISTS"},
	{"PermissionDenied", "PERMISSION_DENIED"},
	{"ResourceExhausted", "RESOURCE_EXHAUSTED"},
	{"FailedPrecondition", "FAILED_PRECONDITION"},
	{"Aborted", "ABORTED"},
	{"OutOfRange", "OUT_OF_RANGE"},
	{"Unimplemented", "UNIMPLEMENTED"},
	{"Internal", "INTERNAL"},
	{"Unavailable", "UNAVAILABLE"},
	{"DataLoss", "DATA_LOSS"},
	{"Unauthenticated", "UNAUTHENTICATED"},
}

// localReplyBody compiles LOCAL_REPLY_BODY.
func localReplyBody(_ *operatorCall, o *OperatorOptions) (definition, error) {
	if o.LocalReply {
		return newText(func(x *protocol.Exchange) (string, bool) { return x.LocalReplyBody(), true }), nil
	}
	return newText(func(*protocol.Exchange) (string, bool) { return "", true }), nil
}
