package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/dubbo"
)

// bodyError reports a body that cannot be read or parsed.
type bodyError struct {
	status  int
	problem string
}

func (e *bodyError) Error() string { return e.problem }

// readRequest reads the request from a JSON or form body. An error is a *bodyError or a
// *dubbo.FieldError.
//
// A body that begins with a brace is JSON, whatever its Content-Type, because curl sends JSON as a
// form by default. Keys are case-insensitive, and unknown keys are ignored, because clients of
// other sidecars send more. A string field accepts a number.
func readRequest(r *http.Request) (dubbo.Request, error) {
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return dubbo.Request{}, &bodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	case err != nil:
		return dubbo.Request{}, &bodyError{http.StatusBadRequest, "reading the body: " + err.Error()}
	}
	text := bytes.TrimSpace(body)
	declared := r.Header.Get("Content-Type")
	mediaType, _, err := mime.ParseMediaType(declared)
	isForm := declared == "" || err == nil && mediaType == "application/x-www-form-urlencoded"
	isJSON := err == nil && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"))
	var tree any
	switch {
	case bytes.HasPrefix(text, []byte("{")), isJSON:
		tree, err = parseJSON(text)
	case isForm:
		tree, err = parseForm(string(text), r.URL.RawQuery)
	default:
		err = &bodyError{http.StatusUnsupportedMediaType, "Content-Type: found " + quoted(declared) + ", expected application/json or application/x-www-form-urlencoded"}
	}
	if err != nil {
		return dubbo.Request{}, err
	}
	f := &fields{}
	request := f.requestFrom(value{node: tree})
	return request, f.err()
}

// parseJSON parses a complete document. It keeps numbers as they are written.
func parseJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	err := d.Decode(&tree)
	if err == nil {
		if _, trailingErr := d.Token(); !errors.Is(trailingErr, io.EOF) {
			err = errors.New("unexpected data after the object")
		}
	}
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return tree, nil
	case errors.Is(err, io.EOF):
		return nil, &bodyError{http.StatusBadRequest, "the body is empty"}
	case errors.As(err, &syntax):
		return nil, &bodyError{http.StatusBadRequest, fmt.Sprintf("the body is not valid JSON: byte %d: %v", syntax.Offset, err)}
	}
	return nil, &bodyError{http.StatusBadRequest, "the body is not valid JSON: " + err.Error()}
}

// parseForm converts a form and the query of the URL to the tree of the equivalent JSON. Field
// names may contain the object, as in "service.interface", or omit it.
func parseForm(parts ...string) (any, error) {
	objects := map[string]map[string]any{keyRegistry: {}, keyService: {}, keyParameters: {}}
	for _, part := range parts {
		form, err := url.ParseQuery(part)
		if err != nil {
			return nil, &bodyError{http.StatusBadRequest, "the body is not a valid form: " + err.Error()}
		}
		for name, values := range form {
			switch object, key := splitFieldName(strings.TrimSuffix(name, "[]")); {
			case objects[object] == nil: // unknown object
			case object == keyService && key == "methods":
				objects[object][key] = splitMethods(values)
			default:
				objects[object][key] = values[0]
			}
		}
	}
	objects[keyService][keyParameters] = objects[keyParameters]
	return map[string]any{keyRegistry: objects[keyRegistry], keyService: objects[keyService]}, nil
}

// The objects of a request.
const (
	keyRegistry   = "registry"
	keyService    = "service"
	keyParameters = "parameters" // of a service
	keyParams     = "params"     // alias that clients of other sidecars use
)

// splitFieldName returns the object and the key of a form field. It keeps the case of parameter
// names only.
func splitFieldName(name string) (object, key string) {
	first, rest, dotted := strings.Cut(name, ".")
	if dotted && strings.EqualFold(first, keyService) {
		first, rest, dotted = strings.Cut(rest, ".")
	}
	first = strings.ToLower(first)
	switch {
	case dotted && (first == keyParameters || first == keyParams):
		return keyParameters, rest
	case dotted:
		return first, strings.ToLower(rest)
	case slices.Contains([]string{"type", "addr", "username", "password"}, first):
		return keyRegistry, first
	}
	return keyService, first
}

// splitMethods parses methods from repeated values, or values separated by commas.
func splitMethods(values []string) []any {
	var methods []any
	for _, v := range values {
		for method := range strings.SplitSeq(v, ",") {
			if method = strings.TrimSpace(method); method != "" {
				methods = append(methods, method)
			}
		}
	}
	return methods
}

// value is a node of the JSON tree, with its path.
type value struct {
	path string
	node any // nil: missing
}

// fields converts values of a JSON tree, and records the first error.
type fields struct{ firstErr *dubbo.FieldError }

func (f *fields) err() error {
	if f.firstErr == nil {
		return nil
	}
	return f.firstErr
}

func (f *fields) reportType(v value, expected string) {
	if f.firstErr == nil {
		f.firstErr = &dubbo.FieldError{Field: v.path, Reason: "found " + describeNode(v.node) + ", expected " + expected}
	}
}

func (f *fields) requestFrom(root value) dubbo.Request {
	if _, ok := root.node.(map[string]any); !ok {
		root.path = "the body"
	}
	top := f.members(root)
	member := f.members(top(keyRegistry))
	r := dubbo.Registry{
		Type:    strings.ToLower(f.stringValue(member("type"))),
		Address: f.stringValue(member("addr")), Username: f.stringValue(member("username")), Password: f.stringValue(member("password")),
	}
	member = f.members(top(keyService))
	parameters := member(keyParameters)
	if parameters.node == nil {
		parameters = member(keyParams)
	}
	s := dubbo.Service{
		Interface: f.stringValue(member("interface")), Methods: f.stringList(member("methods")),
		Group: f.stringValue(member("group")), Version: f.stringValue(member("version")), Name: f.stringValue(member("name")), Port: f.stringValue(member("port")),
		Parameters: f.stringMap(parameters),
	}
	return dubbo.Request{Registry: r, Service: s}
}

// members returns a function that finds members of an object, ignoring case. A missing object has
// no members.
func (f *fields) members(v value) func(key string) value {
	members, ok := v.node.(map[string]any)
	if !ok && v.node != nil {
		f.reportType(v, "an object")
	}
	return func(key string) value {
		path := key
		if v.path != "" {
			path = v.path + "." + key
		}
		if node, ok := members[key]; ok {
			return value{path, node}
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if strings.EqualFold(name, key) {
				return value{path, members[name]}
			}
		}
		return value{path, nil}
	}
}

func (f *fields) stringValue(v value) string {
	switch node := v.node.(type) {
	case nil:
	case string:
		return strings.TrimSpace(node)
	case json.Number:
		return node.String()
	default:
		f.reportType(v, "a string")
	}
	return ""
}

func (f *fields) stringList(v value) []string {
	switch node := v.node.(type) {
	case nil:
	case []any:
		var list []string
		for i, element := range node {
			elementValue := value{v.path + "[" + strconv.Itoa(i) + "]", element}
			if element == nil {
				f.reportType(elementValue, "a string")
			}
			list = append(list, f.stringValue(elementValue))
		}
		return list
	case string:
		return f.stringList(value{v.path, splitMethods([]string{node})})
	default:
		f.reportType(v, "a list of strings")
	}
	return nil
}

func (f *fields) stringMap(v value) map[string]string {
	members, ok := v.node.(map[string]any)
	if !ok {
		if v.node != nil {
			f.reportType(v, "an object")
		}
		return nil
	}
	if len(members) == 0 {
		return nil
	}
	out := make(map[string]string, len(members))
	for key, node := range members {
		if b, ok := node.(bool); ok {
			out[key] = strconv.FormatBool(b)
			continue
		}
		out[key] = f.stringValue(value{v.path + "." + key, node})
	}
	return out
}

// describeNode describes a node for an error message.
func describeNode(node any) string {
	switch node := node.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(node)
	case json.Number:
		return "the number " + node.String()
	case string:
		return "the string " + quoted(node)
	case []any:
		return "a list"
	}
	return "an object"
}

// quoted quotes and shortens a text from a client for messages.
func quoted(text string) string {
	const maxLen = 100
	if len(text) > maxLen {
		text = text[:maxLen] + "…"
	}
	return strconv.Quote(text)
}
