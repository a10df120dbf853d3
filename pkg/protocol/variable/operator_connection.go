package variable

import (
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// connectionOperators returns the operators for the downstream connection.
func connectionOperators() []operator {
	remote, local := addressOf(clientAddress), addressOf(listenerAddress)
	direct := addressOf(directAddress)
	return []operator{
		{name: "DOWNSTREAM_REMOTE_ADDRESS", compile: remote.text, doc: "Address of the client, as the PROXY protocol or X-Forwarded-For report it."},
		{name: "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", argument: optionalArgument, compile: remote.withoutPort, doc: "The same without the port. The argument is the length of a prefix."},
		{name: "DOWNSTREAM_REMOTE_PORT", compile: remote.port, doc: "Port of DOWNSTREAM_REMOTE_ADDRESS."},
		{name: "DOWNSTREAM_DIRECT_REMOTE_ADDRESS", compile: direct.text, doc: "Remote address of the socket."},
		{name: "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT", argument: optionalArgument, compile: direct.withoutPort, doc: "The same without the port. The argument is the length of a prefix."},
		{name: "DOWNSTREAM_DIRECT_REMOTE_PORT", compile: direct.port, doc: "Port of DOWNSTREAM_DIRECT_REMOTE_ADDRESS."},
		{name: "DOWNSTREAM_LOCAL_ADDRESS", compile: local.text, doc: "Local address of the connection."},
		{name: "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", argument: optionalArgument, compile: local.withoutPort, doc: "The same without the port. The argument is the length of a prefix."},
		{name: "DOWNSTREAM_LOCAL_PORT", compile: local.port, doc: "Port of DOWNSTREAM_LOCAL_ADDRESS."},
		{name: "CONNECTION_ID", compile: sameAs("connection_id"), doc: "Number of the connection, unique in the process."},
		{name: "FILTER_CHAIN_NAME", compile: filterChainName, doc: "Name of the filter chain. Only in access logs."},
		{name: "REQUESTED_SERVER_NAME", argument: optionalArgument, compile: requestedServerName, doc: "REQUESTED_SERVER_NAME(X:Y): server name of the TLS handshake (X is SNI_ONLY, the default), or the host of the request if there is none (SNI_FIRST) or always (HOST_FIRST). Y is ORIG, HOST or ORIG_OR_HOST."},
		{name: "DOWNSTREAM_TRANSPORT_FAILURE_REASON", compile: missing, doc: "Missing: an exchange begins after the TLS handshake."},
	}
}

// isConnection reports whether x stands for a relayed connection, which has no requests.
func isConnection(x *protocol.Exchange) bool { return x.Meta.Protocol == protocol.Relayed }

func clientAddress(x *protocol.Exchange) (string, bool) { return downstreamRemote(x, "") }

func listenerAddress(x *protocol.Exchange) (string, bool) { return downstreamLocal(x, "") }

func directAddress(x *protocol.Exchange) (string, bool) {
	c := x.Meta.Conn
	switch {
	case c == nil:
		return "", false
	case c.ProxyAddr == nil:
		return nonEmpty(c.RemoteText)
	case !c.ProxyAddr.IsValid():
		return "", false
	}
	return c.ProxyAddr.String(), true
}

// filterChainName compiles FILTER_CHAIN_NAME.
func filterChainName(_ *operatorCall, o *OperatorOptions) (definition, error) {
	if o.FilterChain == nil {
		return definition{}, errOnlyInLogs
	}
	name := *o.FilterChain
	return newText(func(*protocol.Exchange) (string, bool) { return nonEmpty(name) }), nil
}

// originalHostField is the field in which Envoy keeps the host before rewrites.
const originalHostField = "x-envoy-original-host"

// requestedServerName compiles REQUESTED_SERVER_NAME(X:Y).
func requestedServerName(c *operatorCall, _ *OperatorOptions) (definition, error) {
	order, source, _ := strings.Cut(c.argument, ":")
	sni := tlsSide(downstreamTLS).stateVar(serverName)
	var host func(x *protocol.Exchange) (string, bool)
	switch source {
	case "", "ORIG_OR_HOST":
		host = func(x *protocol.Exchange) (string, bool) {
			if value, ok := originalHost(x); ok {
				return value, true
			}
			return nonEmpty(x.Request.Authority)
		}
	case "HOST":
		host = func(x *protocol.Exchange) (string, bool) { return nonEmpty(x.Request.Authority) }
	case "ORIG":
		host = originalHost
	default:
		return definition{}, fmt.Errorf("%q is not valid: expected ORIG, HOST or ORIG_OR_HOST", source)
	}
	switch order {
	case "", "SNI_ONLY":
		return definition{text: sni}, nil
	case "SNI_FIRST":
		return newText(func(x *protocol.Exchange) (string, bool) {
			if name, ok := sni(x, ""); ok {
				return name, true
			}
			return host(x)
		}), nil
	case "HOST_FIRST":
		return newText(host), nil
	}
	return definition{}, fmt.Errorf("%q is not valid: expected SNI_ONLY, SNI_FIRST or HOST_FIRST", order)
}

// originalHost returns the host that a route has replaced.
func originalHost(x *protocol.Exchange) (string, bool) {
	if value, ok := x.Request.Header.Lookup(originalHostField); ok {
		return value, true
	}
	return nonEmpty(x.Record.OriginalAuthority)
}
