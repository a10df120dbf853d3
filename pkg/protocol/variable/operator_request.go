package variable

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// requestOperators returns the operators for the request.
func requestOperators() []operator {
	return []operator{
		{name: "REQ", argument: requiredArgument, length: true, compile: headerValue(requestField), doc: "REQ(X?Y): header X of the request or, without it, header Y. :method, :path, :authority and :scheme are the parts of the request line; :path is the current path."},
		{name: "REQUEST_HEADER", argument: requiredArgument, length: true, compile: headerValue(requestField), doc: "The same as REQ."},
		{name: "PATH", argument: optionalArgument, length: true, compile: pathValue, doc: "PATH(X:Y): path with (X is WQ) or without (NQ) the query, before (Y is ORIG) or after (PATH) rewrites; by default WQ:ORIG_OR_PATH."},
		{name: "QUERY_PARAM", argument: requiredArgument, length: true, compile: queryParameterValue, doc: "Query parameter, decoded."},
		{name: "QUERY_PARAMS", argument: optionalArgument, length: true, compile: queryValue, doc: "The query."},
		{name: "PROTOCOL", compile: textValue(downstreamVersion), doc: "HTTP/1.1 or HTTP/2."},
		{name: "BYTES_RECEIVED", compile: sameAs("bytes_received"), doc: "Bytes of the request body; for relayed connections, bytes from the client."},
		{name: "REQUEST_HEADERS_BYTES", compile: numberValue(requestHeaderBytes), doc: "Bytes of the names and values of the request's headers."},
		{name: "ROUTE_NAME", compile: textValue(routeName), doc: "Name of the route in the resource."},
		{name: "STREAM_ID", compile: textValue(streamID), doc: "X-Request-Id of the request."},
	}
}

// fieldLookup returns a field of a message by its name, including pseudo-headers.
type fieldLookup func(x *protocol.Exchange, name string) (string, bool)

// headerValue returns the compile function of an operator with the argument X?Y: the names of a
// field and of an alternative.
func headerValue(lookup fieldLookup) compileOperator {
	return func(c *operatorCall, _ *OperatorOptions) (definition, error) {
		name, alternative, _ := strings.Cut(c.argument, "?")
		for _, n := range []string{name, alternative} {
			if !isFieldName(n) && (n != "" || name == "") {
				return definition{}, fmt.Errorf("%q is not a header name", n)
			}
		}
		name, alternative = strings.ToLower(name), strings.ToLower(alternative)
		if alternative == "" {
			return newText(func(x *protocol.Exchange) (string, bool) { return lookup(x, name) }), nil
		}
		return newText(func(x *protocol.Exchange) (string, bool) {
			if value, ok := lookup(x, name); ok {
				return value, true
			}
			return lookup(x, alternative)
		}), nil
	}
}

// isFieldName reports whether name is the name of a header or pseudo-header.
func isFieldName(name string) bool {
	name = strings.TrimPrefix(name, ":")
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return name != ""
}

// originalPathField is the field in which Envoy keeps the path before rewrites.
const originalPathField = "x-envoy-original-path"

// requestField returns a field of the request; name is in lower case.
func requestField(x *protocol.Exchange, name string) (string, bool) {
	r := &x.Request
	switch name {
	case ":method":
		return nonEmpty(r.Method)
	case ":path":
		return nonEmpty(r.Path)
	case ":authority", "host":
		return nonEmpty(r.Authority)
	case ":scheme":
		return nonEmpty(r.Scheme)
	case "content-length":
		return declaredLength(&r.Message)
	case originalPathField:
		if value, ok := r.Header.Lookup(name); ok {
			return value, true
		}
		return nonEmpty(x.Record.OriginalPath)
	}
	return r.Header.Lookup(name)
}

// declaredLength returns the Content-Length of a message.
func declaredLength(m *protocol.Message) (string, bool) {
	if m.ContentLength < 0 {
		return "", false
	}
	return strconv.FormatInt(m.ContentLength, 10), true
}

// pathValue compiles PATH(X:Y).
func pathValue(c *operatorCall, _ *OperatorOptions) (definition, error) {
	query, source, _ := strings.Cut(c.argument, ":")
	switch query {
	case "", "WQ", "NQ":
	default:
		return definition{}, fmt.Errorf("%q is not valid: expected WQ or NQ", query)
	}
	var text func(x *protocol.Exchange) (string, bool)
	switch source {
	case "", "ORIG_OR_PATH":
		text = func(x *protocol.Exchange) (string, bool) {
			if path, ok := requestField(x, originalPathField); ok {
				return path, true
			}
			return nonEmpty(x.Request.Path)
		}
	case "PATH":
		text = func(x *protocol.Exchange) (string, bool) { return nonEmpty(x.Request.Path) }
	case "ORIG":
		text = func(x *protocol.Exchange) (string, bool) { return requestField(x, originalPathField) }
	default:
		return definition{}, fmt.Errorf("%q is not valid: expected ORIG, PATH or ORIG_OR_PATH", source)
	}
	if query != "NQ" {
		return newText(text), nil
	}
	return newText(func(x *protocol.Exchange) (string, bool) {
		path, ok := text(x)
		path, _, _ = strings.Cut(path, "?")
		return path, ok
	}), nil
}

// queryParameterValue compiles QUERY_PARAM(NAME).
func queryParameterValue(c *operatorCall, _ *OperatorOptions) (definition, error) {
	name := c.argument
	return newText(func(x *protocol.Exchange) (string, bool) {
		value, ok := queryArgument(x, name)
		return unescape(value), ok
	}), nil
}

// unescape decodes the percent-encoding of text. Malformed encodings stay as they are.
func unescape(text string) string {
	if strings.IndexByte(text, '%') < 0 {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(n))
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return string(out)
}

// queryValue compiles QUERY_PARAMS(X).
func queryValue(c *operatorCall, _ *OperatorOptions) (definition, error) {
	if c.argument != "" && c.argument != "ORIG" {
		return definition{}, fmt.Errorf("%q is not supported: expected ORIG", c.argument)
	}
	return newText(func(x *protocol.Exchange) (string, bool) {
		value, _ := query(x, "")
		return nonEmpty(value)
	}), nil
}

func downstreamVersion(x *protocol.Exchange) (string, bool) { return shortVersion(x.Meta.Version) }

// shortVersion returns a version of HTTP as Envoy writes it.
func shortVersion(version string) (string, bool) {
	if version == "HTTP/2.0" {
		return "HTTP/2", true
	}
	return nonEmpty(version)
}

// requestHeaderBytes returns the size of the request's headers and pseudo-headers.
func requestHeaderBytes(x *protocol.Exchange) (int64, bool) {
	r := &x.Request
	size := headerBytes(&r.Message)
	for _, f := range [...]protocol.Field{{Name: ":method", Value: r.Method}, {Name: ":path", Value: r.Path}, {Name: ":authority", Value: r.Authority}, {Name: ":scheme", Value: r.Scheme}} {
		if f.Value != "" {
			size += int64(len(f.Name) + len(f.Value))
		}
	}
	return size, true
}

// headerBytes returns the size of the names and values of the headers of a message.
func headerBytes(m *protocol.Message) int64 {
	size := fieldBytes(&m.Header)
	if length, ok := declaredLength(m); ok {
		size += int64(len("content-length") + len(length))
	}
	return size
}

func fieldBytes(h *protocol.Header) (size int64) {
	for i := range h.Len() {
		f := h.At(i)
		size += int64(len(f.Name) + len(f.Value))
	}
	return size
}

// namedRoute is a route scope that knows the name of the route in its resource. A route without a
// name has a generated name in the metrics.
type namedRoute interface{ ResourceName() string }

func routeName(x *protocol.Exchange) (string, bool) {
	if r, ok := x.Record.Route.(namedRoute); ok {
		return nonEmpty(r.ResourceName())
	}
	return "", false
}

func streamID(x *protocol.Exchange) (string, bool) { return requestID(x, "") }
