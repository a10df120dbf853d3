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

// Error returns the field and reason of each.
func (p FieldErrors) Error() string {
	texts := make([]string, len(p))
	for i, one := range p {
		texts[i] = one.Field + ": " + one.Reason
	}
	return strings.Join(texts, "; ")
}

// asError returns p as an error, nil if p is empty.
func (p FieldErrors) asError() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// fieldErrorsOf returns err as errors of field, or of fields in it if err is a RejectedError.
func fieldErrorsOf(field string, err error) (all FieldErrors) {
	var refused resource.RejectedError
	var inner FieldErrors
	switch {
	case errors.As(err, &inner):
		return inner
	case !errors.As(err, &refused):
		return FieldErrors{{field, err.Error()}}
	}
	for _, text := range refused {
		one := FieldError{field, text}
		if path, reason, ok := strings.Cut(text, ": "); ok && !strings.Contains(path, " ") {
			one = FieldError{field + "." + path, reason}
		}
		all = append(all, one)
	}
	return all
}

// splitObject splits a JSON object by its member names, which may be in either JSON spelling of
// message fields: ads_config or adsConfig. It omits null members. An error is of type FieldErrors;
// the valid members are returned with it.
func splitObject(field string, data []byte, known ...string) (map[string]json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	given := map[string]json.RawMessage{}
	if json.Unmarshal(data, &given) != nil {
		return nil, FieldErrors{{field, "expected an object"}}
	}
	all := make(map[string]json.RawMessage, len(given))
	spelt := make(map[string]string, len(given))
	var wrong FieldErrors
	for _, name := range slices.Sorted(maps.Keys(given)) {
		at := slices.IndexFunc(known, func(k string) bool { return name == k || name == lowerCamel(k) })
		if at < 0 {
			wrong = append(wrong, FieldError{field + "." + name, "is not supported, expected one of " + strings.Join(known, ", ") + suggestion(name, known)})
			continue
		}
		k := known[at]
		if other, twice := spelt[k]; twice {
			wrong = append(wrong, FieldError{field + "." + name, fmt.Sprintf("is another spelling of %s: use only one of them", other)})
			continue
		}
		spelt[k] = name
		if text := given[name]; !bytes.Equal(text, []byte("null")) {
			all[k] = text
		}
	}
	return all, wrong.asError()
}

// splitList splits a JSON list. An error is of type FieldErrors.
func splitList(field string, data []byte) (all []json.RawMessage, err error) {
	if len(data) > 0 && json.Unmarshal(data, &all) != nil {
		return nil, FieldErrors{{field, "expected a list"}}
	}
	return all, nil
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

// fieldErrorsOfReasons is fieldErrorsOf for an error whose texts already contain the field.
func fieldErrorsOfReasons(err error) (all FieldErrors) {
	var refused resource.RejectedError
	if !errors.As(err, &refused) {
		refused = resource.RejectedError{err.Error()}
	}
	for _, text := range refused {
		field, reason, _ := strings.Cut(text, ": ")
		all = append(all, FieldError{field, reason})
	}
	return all
}

// unknownTypeResolver resolves every message type. A type that is not linked in resolves to a
// message without fields. The decoder of the resource checks the type, and rejects or ignores it
// like one from a control plane.
type unknownTypeResolver struct{ *protoregistry.Types }

// FindMessageByURL implements protoregistry.MessageTypeResolver.
func (f unknownTypeResolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := f.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return (*corev3.AggregatedConfigSource)(nil).ProtoReflect().Type(), nil // it has no fields
}

// stripUnknownMessages deletes from v the members of messages of unknown types, and reports whether
// there were any.
func stripUnknownMessages(v any) (found bool) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			found = stripUnknownMessages(one) || found
		}
	case map[string]any:
		if url, ok := v["@type"].(string); ok {
			if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
				clear(v)
				v["@type"] = url
				return true
			}
		}
		for _, one := range v {
			found = stripUnknownMessages(one) || found
		}
	}
	return found
}

// locateError finds the value that a protojson error refers to. It returns the path of the value in
// data, and the error text without the position.
func locateError(data []byte, err error) (path, reason string) {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "proto:"), "\u00a0", " ")
	text = strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(text, "(line ")
	if !ok {
		return "", text
	}
	place, rest, _ := strings.Cut(rest, "): ")
	line, column, _ := strings.Cut(place, ":")
	row, err1 := strconv.Atoi(line)
	col, err2 := strconv.Atoi(column)
	if err := errors.Join(err1, err2); err != nil || row < 1 || col < 1 {
		return "", text
	}
	at := 0
	for range row - 1 {
		at += bytes.IndexByte(data[at:], '\n') + 1
	}
	return pathAt(data, int64(at+col-1)), rest
}

// pathAt returns the path of the value, or of its key, at an offset of JSON.
func pathAt(data []byte, at int64) string {
	type level struct {
		list  bool
		index int
		key   string
		value bool // in an object: the value of key is next
	}
	var stack []level
	path := func() string {
		var b strings.Builder
		for _, l := range stack {
			if l.list {
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
			case top.list:
				top.index++
			case top.value:
				top.value = false
			default:
				top.key, _ = token.(string)
				top.value = true
			}
		}
		if d.InputOffset() > at {
			return path()
		}
		if delim == '[' || delim == '{' {
			stack = append(stack, level{list: delim == '[', index: -1})
		}
	}
}
