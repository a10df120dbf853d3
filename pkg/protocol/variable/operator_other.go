package variable

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// errOnlyInLogs rejects an operator whose value only an access log knows.
var errOnlyInLogs = errors.New("is supported only in access logs")

// otherOperators returns the operators that concern neither one message nor one connection.
func otherOperators() []operator {
	return []operator{
		{name: "ACCESS_LOG_TYPE", compile: textValue(logType), doc: "Event for which the line is written: DownstreamEnd, TcpConnectionEnd."},
		{name: "DYNAMIC_METADATA", argument: requiredArgument, length: true, compile: dynamicMetadata, doc: "DYNAMIC_METADATA(NAMESPACE:KEY): metadata that a filter has set."},
		{name: "METADATA", argument: requiredArgument, length: true, compile: metadataOfType, doc: "METADATA(DYNAMIC:NAMESPACE:KEY): the same as DYNAMIC_METADATA. Other types of metadata are not supported."},
		{name: "COALESCE", argument: requiredArgument, length: true, compile: coalesce, doc: "COALESCE({\"operators\": [...]}): the first of several operators that has a value."},
		{name: "UNIQUE_ID", compile: uniqueID, doc: "A random UUID. Only in access logs."},
		{name: "CUSTOM_FLAGS", compile: constantText(""), doc: "Empty: no filter sets custom flags."},
		{name: "TRACE_ID", compile: missing, doc: "Missing: Weft does not trace requests."},
		{name: "SPAN_ID", compile: missing, doc: "Missing: Weft does not trace requests."},
		{name: "HOSTNAME", compile: missing, doc: "Name of the machine. The reader of the configuration replaces the operator by its value."},
		{name: "ENVIRONMENT", argument: requiredArgument, length: true, compile: missing, doc: "ENVIRONMENT(X): the environment variable X. The reader of the configuration replaces the operator by its value."},
	}
}

func logType(x *protocol.Exchange) (string, bool) { return x.Record.LogType.String(), true }

// uniqueID compiles UNIQUE_ID.
func uniqueID(_ *operatorCall, o *OperatorOptions) (definition, error) {
	if o.AppendUUID == nil {
		return definition{}, errOnlyInLogs
	}
	appendUUID := o.AppendUUID
	return definition{write: func(dst []byte, _ *protocol.Exchange) ([]byte, bool) { return appendUUID(dst), true }}, nil
}

// metadataOfType compiles METADATA(TYPE:NAMESPACE:KEY).
func metadataOfType(c *operatorCall, o *OperatorOptions) (definition, error) {
	kind, rest, _ := strings.Cut(c.argument, ":")
	if kind != "DYNAMIC" {
		return definition{}, fmt.Errorf("metadata of the type %q is not supported: expected DYNAMIC", kind)
	}
	inner := *c
	inner.argument = rest
	return dynamicMetadata(&inner, o)
}

// dynamicMetadata compiles DYNAMIC_METADATA(NAMESPACE:KEY:…).
func dynamicMetadata(c *operatorCall, _ *OperatorOptions) (definition, error) {
	parts := strings.Split(c.argument, ":")
	namespace, path := protocol.Namespace(parts[0]), parts[1:]
	if namespace == "" {
		return definition{}, errors.New("the namespace is missing")
	}
	m := metadataPath{namespace: namespace, key: protocol.MetadataKey(path...), isNamespace: len(path) == 0}
	return definition{write: m.appendText, json: m.appendJSON}, nil
}

// metadataPath refers to a value in the metadata of exchanges.
type metadataPath struct {
	namespace, key string
	isNamespace    bool // all values of the namespace
}

// appendText appends a single value as it is, and lists and objects as JSON.
func (m *metadataPath) appendText(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	if !m.isNamespace && !x.Metadata.IsList(m.namespace, m.key) {
		if value, ok := x.Metadata.Lookup(m.namespace, m.key); ok {
			return append(dst, value...), true
		}
	}
	return m.appendJSON(dst, x)
}

func (m *metadataPath) appendJSON(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	if !m.isNamespace {
		if value, ok := x.Metadata.Lookup(m.namespace, m.key); ok {
			return m.appendValue(dst, x, m.key, value), true
		}
	}
	return m.appendObject(dst, x)
}

// appendValue appends the value of a key: a string, or a list of strings.
func (m *metadataPath) appendValue(dst []byte, x *protocol.Exchange, key, value string) []byte {
	if !x.Metadata.IsList(m.namespace, key) {
		return appendQuoted(dst, value)
	}
	dst = append(dst, '[')
	separator := ""
	for element := range x.Metadata.Values(m.namespace, key) {
		dst = appendQuoted(append(dst, separator...), element)
		separator = ","
	}
	return append(dst, ']')
}

// appendObject appends the values below the key as an object. Keys of nested values are joined by
// dots. It returns false if there are none.
func (m *metadataPath) appendObject(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	prefix := ""
	if !m.isNamespace {
		prefix = m.key + protocol.MetadataKey("", "")
	}
	start := len(dst)
	separator, last := "{", ""
	for key, value := range x.Metadata.All(m.namespace) {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok || key == last { // further elements of a list
			continue
		}
		last = key
		dst = append(dst, separator...)
		dst = appendQuoted(dst, strings.ReplaceAll(name, protocol.MetadataKey("", ""), "."))
		dst = append(dst, ':')
		dst = m.appendValue(dst, x, key, value)
		separator = ","
	}
	if len(dst) == start {
		return dst, false
	}
	return append(dst, '}'), true
}

// appendQuoted appends text as a JSON string.
func appendQuoted(dst []byte, text string) []byte {
	return append(appendEscaped(append(dst, '"'), text), '"')
}

// coalesce compiles COALESCE({"operators": [...]}).
func coalesce(c *operatorCall, o *OperatorOptions) (definition, error) {
	var config struct {
		Operators []json.RawMessage `json:"operators"`
	}
	if err := json.Unmarshal([]byte(c.argument), &config); err != nil {
		return definition{}, fmt.Errorf("the argument is not JSON: %w", err)
	}
	if len(config.Operators) == 0 {
		return definition{}, errors.New("the argument has no operators")
	}
	list := make([]Variable, len(config.Operators))
	for i, raw := range config.Operators {
		call, err := parseCoalesced(raw)
		if err != nil {
			return definition{}, err
		}
		d, err := call.compile(o)
		if err != nil {
			return definition{}, err
		}
		list[i] = Variable{def: d}
	}
	return definition{write: func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
		start := len(dst)
		for i := range list {
			var ok bool
			if dst, ok = list[i].Append(dst[:start], x); ok && len(dst) > start {
				return dst, true
			}
		}
		return dst[:start], false
	}}, nil
}

// parseCoalesced parses an operator in the argument of COALESCE: a name, or an object.
func parseCoalesced(raw json.RawMessage) (*operatorCall, error) {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return &operatorCall{source: "%" + name + "%", name: name}, nil
	}
	var object struct {
		Command   string `json:"command"`
		Param     string `json:"param"`
		MaxLength *int   `json:"max_length"`
	}
	if err := json.Unmarshal(raw, &object); err != nil || object.Command == "" || object.Command == "COALESCE" {
		return nil, fmt.Errorf("%s is not an operator", raw)
	}
	call := &operatorCall{source: "%" + object.Command + "%", name: object.Command, argument: object.Param}
	if object.MaxLength != nil {
		if *object.MaxLength <= 0 {
			return nil, fmt.Errorf("%d is not a length", *object.MaxLength)
		}
		call.length, call.hasLength = *object.MaxLength, true
	}
	return call, nil
}
