package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// FieldError is a field of a bootstrap that is not valid or has no effect.
type FieldError struct {
	Field  string // "static_resources.listeners[0].filter_chains[0]"
	Reason string // one clause; "": the field has no effect
}

// FieldErrors are the invalid or ignored fields of a bootstrap.
type FieldErrors []FieldError

// Error returns the fields and reasons, separated by semicolons.
func (errs FieldErrors) Error() string {
	texts := make([]string, len(errs))
	for i, e := range errs {
		texts[i] = e.Field + ": " + e.Reason
	}
	return strings.Join(texts, "; ")
}

// asError returns errs as an error, or nil if errs is empty.
func (errs FieldErrors) asError() error {
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// fieldErrorsOf returns err as errors of field, or of fields in it if err is a RejectedError. An
// error of type FieldErrors already has complete paths and stays unchanged.
func fieldErrorsOf(field string, err error) (out FieldErrors) {
	var rejected resource.RejectedError
	var inner FieldErrors
	switch {
	case errors.As(err, &inner):
		return inner
	case !errors.As(err, &rejected):
		return FieldErrors{{field, err.Error()}}
	}
	for _, r := range rejected {
		path := r.Path
		if field != "" && path != "" {
			path = "." + path
		}
		out = append(out, FieldError{field + path, r.Reason})
	}
	return out
}

// FieldErrorsOf returns err as errors of field, or of fields in it. It returns none if err is nil.
func FieldErrorsOf(field string, err error) FieldErrors {
	if err == nil {
		return nil
	}
	return fieldErrorsOf(field, err)
}

// splitObject splits a JSON object by its member names, which may be in either JSON spelling of
// message fields: ads_config or adsConfig. It omits null members. An error is of type FieldErrors.
// If data is an object, splitObject returns the valid members together with the error.
func splitObject(field string, data []byte, allowed ...string) (map[string]json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	raw := map[string]json.RawMessage{}
	if json.Unmarshal(data, &raw) != nil {
		return nil, FieldErrors{{field, "expected an object"}}
	}
	members := make(map[string]json.RawMessage, len(raw))
	spellings := make(map[string]string, len(raw))
	var errs FieldErrors
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		i := slices.IndexFunc(allowed, func(canonical string) bool { return name == canonical || name == lowerCamel(canonical) })
		if i < 0 {
			errs = append(errs, FieldError{field + "." + name, "is not supported, expected one of " + strings.Join(allowed, ", ") + suggestion(name, allowed)})
			continue
		}
		canonical := allowed[i]
		if other, dup := spellings[canonical]; dup {
			errs = append(errs, FieldError{field + "." + name, fmt.Sprintf("is another spelling of %s: use only one of them", other)})
			continue
		}
		spellings[canonical] = name
		if text := raw[name]; !bytes.Equal(text, []byte("null")) {
			members[canonical] = text
		}
	}
	return members, errs.asError()
}

// splitList splits a JSON list. Like Envoy, it accepts an object as a list with one element. An
// error is of type FieldErrors.
func splitList(field string, data []byte) (elements []json.RawMessage, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return []json.RawMessage{data}, nil
	}
	if len(data) > 0 && json.Unmarshal(data, &elements) != nil {
		return nil, FieldErrors{{field, "expected a list"}}
	}
	return elements, nil
}

// lowerCamel returns the lowerCamelCase JSON name of a message field.
func lowerCamel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// unknownTypeResolver resolves every message type. A type that is not linked in resolves to a
// message without fields. The decoder of the resource checks the type, and rejects or ignores the
// type as in a resource from a control plane.
type unknownTypeResolver struct{ *protoregistry.Types }

// FindMessageByURL implements protoregistry.MessageTypeResolver.
func (r unknownTypeResolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := r.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return (*corev3.AggregatedConfigSource)(nil).ProtoReflect().Type(), nil // a message without fields
}

// stripUnknownMessages deletes from v the members of messages of unknown types, except "@type", and
// reports whether v has such a message.
func stripUnknownMessages(v any) (found bool) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			found = stripUnknownMessages(inner) || found
		}
	case map[string]any:
		if url, ok := v["@type"].(string); ok {
			if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
				clear(v)
				v["@type"] = url
				return true
			}
		}
		for _, inner := range v {
			found = stripUnknownMessages(inner) || found
		}
	}
	return found
}

// locateError finds the value that a protojson error refers to. It returns the path of the value in
// data, and the error text without the position. protojson exports no error type, so locateError
// parses the text.
func locateError(data []byte, err error) (path, reason string) {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "proto:"), "\u00a0", " ")
	text = strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(text, "(line ")
	if !ok {
		return "", text
	}
	position, rest, _ := strings.Cut(rest, "): ")
	line, column, _ := strings.Cut(position, ":")
	row, err1 := strconv.Atoi(line)
	col, err2 := strconv.Atoi(column)
	if err := errors.Join(err1, err2); err != nil || row < 1 || col < 1 {
		return "", text
	}
	offset := 0
	for range row - 1 {
		offset += bytes.IndexByte(data[offset:], '\n') + 1
	}
	return pathAt(data, int64(offset+col-1)), rest
}

// pathAt returns the path of the value, or of its key, at an offset in data.
func pathAt(data []byte, offset int64) string {
	type level struct {
		isList       bool
		index        int    // in a list: index of the current element
		key          string // in an object: current key
		expectsValue bool   // in an object: the next token is the value of key
	}
	var stack []level
	path := func() string {
		var b strings.Builder
		for _, l := range stack {
			if l.isList {
				fmt.Fprintf(&b, "[%d]", l.index)
			} else if strings.Contains(l.key, ".") {
				b.WriteString("[" + l.key + "]")
			} else if l.key != "" {
				b.WriteString("." + l.key)
			}
		}
		return b.String()
	}
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if err != nil {
			return path()
		}
		delim, _ := token.(json.Delim)
		if delim == ']' || delim == '}' {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack) - 1; n >= 0 {
			switch top := &stack[n]; {
			case top.isList:
				top.index++
			case top.expectsValue:
				top.expectsValue = false
			default:
				top.key, _ = token.(string)
				top.expectsValue = true
			}
		}
		if d.InputOffset() > offset {
			return path()
		}
		if delim == '[' || delim == '{' {
			stack = append(stack, level{isList: delim == '[', index: -1})
		}
	}
}
