package resource

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// convertFormat converts Envoy format commands, such as %REQ(X)%, to Weft variables. "%%" stays: it
// means a percent sign in both.
func (p fieldReader) convertFormat(text string) (out string, ok bool) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "%")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		command, after, closed := cutCommand(rest)
		if !closed {
			p.reject("%q has a %% without a closing %%", text)
			return "", false
		}
		text = after
		if command == "" {
			b.WriteString("%%")
			continue
		}
		name, isVariable := variableOf(command)
		if !isVariable {
			p.reject("%%%s%% is not supported", command)
			return "", false
		}
		b.WriteString("%" + name + "%")
	}
}

// cutCommand splits the text after a percent sign at the percent sign that ends the command. The
// argument in parentheses may contain percent signs: START_TIME(%s).
func cutCommand(text string) (command, after string, closed bool) {
	argumentEnd := 0
	if i := strings.IndexAny(text, "(%"); i >= 0 && text[i] == '(' {
		argumentEnd = max(0, strings.IndexByte(text, ')'))
	}
	command, after, closed = strings.Cut(text[argumentEnd:], "%")
	return text[:argumentEnd] + command, after, closed
}

// variableOf returns the Weft variable that matches an Envoy command. It ignores the maximum length
// of a command with an argument. It ignores arguments that are not header names, such as the time
// format of START_TIME.
func variableOf(command string) (name string, ok bool) {
	keyword, argument, hasArgument := strings.Cut(command, "(")
	if hasArgument {
		argument, _, _ = strings.Cut(argument, ")")
		argument, _, _ = strings.Cut(argument, "?") // ignore the fallback header
	}
	switch argument = lower(argument); keyword {
	case "REQ", "REQUEST_HEADER":
		switch argument {
		case ":method", ":authority", ":path", ":scheme":
			argument = map[string]string{":method": "request_method", ":authority": "authority", ":path": "request_uri", ":scheme": "scheme"}[argument]
			return argument, true
		case "x-envoy-original-path":
			return "request_uri", true
		}
		name = "request_header_" + argument
	case "RESP", "RESPONSE_HEADER":
		name = "response_header_" + argument
	default:
		name = plainCommands[keyword]
	}
	if name == "" {
		return "", false
	}
	_, ok = variable.Lookup(name)
	return name, ok
}

// plainCommands maps the commands that need no argument to variables.
//
//nolint:gochecknoglobals // a constant table; Go has no constant maps
var plainCommands = map[string]string{
	"START_TIME": "start_time", "DURATION": "duration", "PROTOCOL": "version",
	"BYTES_RECEIVED": "bytes_received", "BYTES_SENT": "bytes_sent",
	"RESPONSE_CODE": "response_code", "RESPONSE_FLAGS": "response_flags", "RESPONSE_CODE_DETAILS": "response_code_details",
	"CONNECTION_TERMINATION_DETAILS":    "response_detail",
	"UPSTREAM_TRANSPORT_FAILURE_REASON": "upstream_transport_failure_reason",
	"UPSTREAM_HOST":                     "upstream_host", "UPSTREAM_CLUSTER": "upstream_cluster", "UPSTREAM_CLUSTER_RAW": "upstream_cluster",
	"UPSTREAM_REMOTE_ADDRESS": "upstream_host", "UPSTREAM_LOCAL_ADDRESS": "upstream_local_address",
	"UPSTREAM_TLS_VERSION": "upstream_tls_version", "UPSTREAM_TLS_CIPHER": "upstream_tls_cipher",
	"UPSTREAM_PEER_SUBJECT": "upstream_peer_subject", "UPSTREAM_PEER_ISSUER": "upstream_peer_issuer",
	"UPSTREAM_PEER_URI_SAN": "upstream_peer_uri_san", "UPSTREAM_PEER_DNS_SAN": "upstream_peer_dns_san",
	"DOWNSTREAM_LOCAL_ADDRESS":               "downstream_local_address",
	"DOWNSTREAM_REMOTE_ADDRESS":              "downstream_remote_address",
	"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT": "downstream_remote_ip",
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS":       "downstream_direct_remote_address",
	"REQUESTED_SERVER_NAME":                  "requested_server_name",
	"ROUTE_NAME":                             "route_name",
	"UPSTREAM_REQUEST_ATTEMPT_COUNT":         "attempts",
	"DOWNSTREAM_TLS_VERSION":                 "downstream_tls_version",
	"DOWNSTREAM_TLS_CIPHER":                  "downstream_tls_cipher",
	"DOWNSTREAM_PEER_SUBJECT":                "downstream_peer_subject",
	"DOWNSTREAM_PEER_ISSUER":                 "downstream_peer_issuer",
	"DOWNSTREAM_PEER_SERIAL":                 "downstream_peer_serial",
	"DOWNSTREAM_PEER_FINGERPRINT_256":        "downstream_peer_fingerprint_256",
	"DOWNSTREAM_PEER_URI_SAN":                "downstream_peer_uri_san",
	"DOWNSTREAM_PEER_DNS_SAN":                "downstream_peer_dns_san",
	"CONNECTION_ID":                          "connection_id",
}
