package variable

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// upstreamOperators returns the operators for hosts and clusters.
func upstreamOperators() []operator {
	remote, local := addressOf(upstreamRemote), addressOf(upstreamLocalAddress)
	return []operator{
		{name: "UPSTREAM_HOST", compile: textValue(lastHost), doc: "Address of the host of the last attempt."},
		{name: "UPSTREAM_HOST_NAME", compile: textValue(lastHostName), doc: "Name of the host, or its address if it has no name."},
		{name: "UPSTREAM_HOST_NAME_WITHOUT_PORT", compile: textValue(lastHostNameWithoutPort), doc: "The same without the port."},
		{name: "UPSTREAM_HOSTS_ATTEMPTED", compile: listValue(attemptedHosts(hostAddress)), doc: "Addresses of the hosts to which Weft sent the request, in order."},
		{name: "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT", compile: listValue(attemptedHosts(withoutPortOf(hostAddress))), doc: "The same without the ports."},
		{name: "UPSTREAM_HOST_NAMES_ATTEMPTED", compile: listValue(attemptedHosts(hostName)), doc: "Names of these hosts."},
		{name: "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT", compile: listValue(attemptedHosts(withoutPortOf(hostName))), doc: "The same without the ports."},
		{name: "UPSTREAM_CLUSTER", compile: textValue(clusterName), doc: "Cluster that the route selected."},
		{name: "UPSTREAM_CLUSTER_RAW", compile: textValue(clusterName), doc: "The same as UPSTREAM_CLUSTER."},
		{name: "UPSTREAM_PROTOCOL", compile: textValue(upstreamVersion), doc: "HTTP/1.1 or HTTP/2."},
		{name: "UPSTREAM_REQUEST_ATTEMPT_COUNT", compile: sameAs("attempts"), doc: "Number of attempts."},
		{name: "UPSTREAM_TRANSPORT_FAILURE_REASON", compile: textValue(transportFailure), doc: "Why the connection of the last attempt failed, with underscores instead of spaces."},
		{name: "UPSTREAM_REMOTE_ADDRESS", compile: remote.text, doc: "Remote address of the last attempt's connection."},
		{name: "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", argument: optionalArgument, compile: remote.withoutPort, doc: "The same without the port. The argument is the length of a prefix."},
		{name: "UPSTREAM_REMOTE_PORT", compile: remote.port, doc: "Port of UPSTREAM_REMOTE_ADDRESS."},
		{name: "UPSTREAM_LOCAL_ADDRESS", compile: local.text, doc: "Local address of the last attempt's connection."},
		{name: "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", argument: optionalArgument, compile: local.withoutPort, doc: "The same without the port. The argument is the length of a prefix."},
		{name: "UPSTREAM_LOCAL_PORT", compile: local.port, doc: "Port of UPSTREAM_LOCAL_ADDRESS."},
	}
}

func lastHost(x *protocol.Exchange) (string, bool) { return scopeName(x.Record.Host()) }

func lastHostName(x *protocol.Exchange) (string, bool) {
	h := x.Record.Host()
	if h == nil {
		return "", false
	}
	return nonEmpty(hostName(h))
}

func lastHostNameWithoutPort(x *protocol.Exchange) (string, bool) {
	name, ok := lastHostName(x)
	return withoutPort(name), ok
}

// hostLabel returns a text that identifies a host.
type hostLabel func(h protocol.Host) string

func hostAddress(h protocol.Host) string { return h.Name() }

// namedHost is a host that may have a name apart from its address.
type namedHost interface{ Hostname() string }

func hostName(h protocol.Host) string {
	if n, ok := h.(namedHost); ok && n.Hostname() != "" {
		return n.Hostname()
	}
	return h.Name()
}

func withoutPortOf(label hostLabel) hostLabel {
	return func(h protocol.Host) string { return withoutPort(label(h)) }
}

// withoutPort returns an address or a name without its port.
func withoutPort(text string) string {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return text
	}
	if _, err := strconv.ParseUint(text[i+1:], 10, 16); err != nil {
		return text
	}
	return strings.Trim(text[:i], "[]")
}

// attemptedHosts appends the labels of the hosts to which the request was sent.
func attemptedHosts(label hostLabel) func(dst []string, x *protocol.Exchange) []string {
	return func(dst []string, x *protocol.Exchange) []string {
		for i := range x.Record.Attempts {
			if a := &x.Record.Attempts[i]; a.Host != nil && a.Local != "" {
				dst = append(dst, label(a.Host))
			}
		}
		return dst
	}
}

// clusterName returns the cluster that was reached, or the one that the route selected.
func clusterName(x *protocol.Exchange) (string, bool) {
	if name, ok := cluster(x, ""); ok {
		return name, true
	}
	return nonEmpty(x.Record.TargetCluster)
}

func upstreamVersion(x *protocol.Exchange) (string, bool) { return shortVersion(x.Response.Version) }

// transportFailure returns why the connection of the last attempt failed.
func transportFailure(x *protocol.Exchange) (string, bool) {
	last := lastAttempt(x)
	if last == nil || last.Local != "" || last.Reason == protocol.ReasonNone {
		return "", false
	}
	if last.Reason != protocol.ConnectFailure && last.Reason != protocol.ConnectTimeout {
		return "", false
	}
	return strings.ReplaceAll(last.Reason.Text(), " ", "_"), true
}

func upstreamRemote(x *protocol.Exchange) (string, bool) {
	last := lastAttempt(x)
	if last == nil || last.Local == "" || last.Host == nil {
		return "", false
	}
	return nonEmpty(last.Host.Name())
}

func upstreamLocalAddress(x *protocol.Exchange) (string, bool) { return upstreamLocal(x, "") }

// addressOf compiles operators for an address: ip:port, or the path of a Unix socket.
type addressOf func(x *protocol.Exchange) (string, bool)

func (a addressOf) text(*operatorCall, *OperatorOptions) (definition, error) { return newText(a), nil }

// withoutPort compiles an operator for the address without its port. The argument is the length of
// a prefix: then the value is a range of addresses.
func (a addressOf) withoutPort(c *operatorCall, _ *OperatorOptions) (definition, error) {
	if c.argument == "" {
		return newText(func(x *protocol.Exchange) (string, bool) {
			address, ok := a(x)
			return withoutPort(address), ok
		}), nil
	}
	bits, err := strconv.ParseUint(c.argument, 10, 8)
	if err != nil || bits > 128 {
		return definition{}, &prefixError{c.argument}
	}
	return definition{write: func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
		address, ok := a(x)
		if !ok {
			return dst, false
		}
		parsed, err := netip.ParseAddr(withoutPort(address))
		if err != nil {
			return dst, false
		}
		prefix, err := parsed.Prefix(int(bits))
		if err != nil {
			return dst, false // longer than the address
		}
		return prefix.AppendTo(dst), true
	}}, nil
}

// prefixError reports an argument that is not the length of a prefix.
type prefixError struct{ argument string }

func (e *prefixError) Error() string {
	return strconv.Quote(e.argument) + " is not the length of an address prefix"
}

// port compiles an operator for the port of the address.
func (a addressOf) port(*operatorCall, *OperatorOptions) (definition, error) {
	return newNumber(func(x *protocol.Exchange) (int64, bool) {
		address, ok := a(x)
		if !ok {
			return 0, false
		}
		i := strings.LastIndexByte(address, ':')
		port, err := strconv.ParseUint(address[i+1:], 10, 16)
		return int64(port), err == nil && i >= 0 //nolint:gosec // at most 16 bits
	}), nil
}
