package bootstrap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// protojson stops at the first error. A jsonChecker checks the whole value first: it reports every
// error with its path and deletes the invalid parts, so that the rest can be decoded and
// validated, too. Validation then reports the deleted parts as missing; dropFollowUpErrors drops
// those errors.

// maxErrors limits the errors in the JSON of one message, and in the resources of one type.
const maxErrors = 1000

// jsonChecker checks the JSON of a message.
type jsonChecker struct {
	errors  FieldErrors
	changed bool // the checker has replaced a value
}

// reject adds an error, unless there are already maxErrors: a large file with a repeated mistake must
// not fill the memory.
func (c *jsonChecker) reject(path, format string, args ...any) {
	if len(c.errors) >= maxErrors {
		return
	}
	c.errors = append(c.errors, FieldError{path, fmt.Sprintf(format, args...)})
}

// checkMessage checks the members of the object v at path against the message d, and deletes the
// invalid ones.
func (c *jsonChecker) checkMessage(path string, v map[string]any, d protoreflect.MessageDescriptor) {
	keys := map[protoreflect.Name]string{} // spelling in the file, by field name
	oneofs := map[protoreflect.Name]string{}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		f := findField(d, key)
		if f == nil {
			if key == "@type" { // the type of an Any, which checkAny checks
				continue
			}
			c.reject(path+"."+key, "unknown field %q%s", key, suggestion(key, fieldNames(d)))
			delete(v, key)
			continue
		}
		fieldPath := path + "." + string(f.Name())
		if other, exists := keys[f.Name()]; exists {
			c.reject(path+"."+key, "duplicate field %q: it is also set as %s", key, other)
			delete(v, key)
			continue
		}
		keys[f.Name()] = key
		if v[key] == nil && !acceptsNull(f) {
			delete(v, key) // null means absent
			continue
		}
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if other, dup := oneofs[o.Name()]; dup {
				c.reject(fieldPath, "cannot be set together with %s", other)
				delete(v, key)
				continue
			}
			oneofs[o.Name()] = string(f.Name())
		}
		v[key] = c.canonicalValue(v[key], f)
		if _, isList := v[key].([]any); f.IsList() && !isList { // Envoy accepts a single element without a list, too
			v[key], c.changed = []any{v[key]}, true
		}
		if !c.checkField(fieldPath, v[key], f) {
			delete(v, key)
		}
	}
}

// findField returns the field of d with the JSON key, or nil.
func findField(d protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByTextName(key); f != nil {
		return f
	}
	return d.Fields().ByJSONName(key)
}

// fieldNames returns the names of d's fields in the spelling of Envoy's documentation.
func fieldNames(d protoreflect.MessageDescriptor) []string {
	names := make([]string, d.Fields().Len())
	for i := range names {
		names[i] = d.Fields().Get(i).TextName()
	}
	return names
}

// suggestion returns the nearest of the names as part of an error text; "" if none is near.
func suggestion(name string, names []string) string {
	if nearest := document.Suggest(name, names); nearest != "" {
		return fmt.Sprintf("; did you mean %q?", nearest)
	}
	return ""
}

// acceptsNull reports whether null is a valid value of a field.
func acceptsNull(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == "google.protobuf.Value" && !f.IsList() && !f.IsMap()
}

// checkField checks the value of a field at path. It returns false if the caller must delete it.
func (c *jsonChecker) checkField(path string, v any, f protoreflect.FieldDescriptor) bool {
	switch {
	case f.IsList():
		list, ok := v.([]any)
		if !ok {
			c.reject(path, "found %s, expected a list", describeValue(v))
			return false
		}
		valid := true
		for i, element := range list {
			element = c.canonicalValue(element, f)
			list[i] = element
			valid = c.checkValue(fmt.Sprintf("%s[%d]", path, i), element, f) && valid
		}
		return valid
	case f.IsMap():
		m, ok := v.(map[string]any)
		if !ok {
			c.reject(path, "found %s, expected an object", describeValue(v))
			return false
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			m[key] = c.canonicalValue(m[key], f.MapValue())
			if !c.checkValue(path+"["+key+"]", m[key], f.MapValue()) {
				delete(m, key)
			}
		}
		return true
	}
	return c.checkValue(path, v, f)
}

// checkValue checks one value of a field, of a list or of a map. It returns false if the caller
// must delete it.
func (c *jsonChecker) checkValue(path string, v any, f protoreflect.FieldDescriptor) bool {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return c.checkMessageValue(path, v, f.Message())
	case protoreflect.EnumKind:
		return c.checkEnum(path, v, f.Enum())
	default:
		expected := expectedScalar(v, f.Kind())
		if expected != "" {
			c.reject(path, "found %s, expected %s", describeValue(v), expected)
		}
		return expected == ""
	}
}

// checkMessageValue checks a message, including types with a special JSON form, such as Duration.
func (c *jsonChecker) checkMessageValue(path string, v any, d protoreflect.MessageDescriptor) bool {
	object, isObject := v.(map[string]any)
	expected := "an object"
	ok := isObject
	switch name := d.FullName(); name {
	case "google.protobuf.Value":
		return true
	case "google.protobuf.Duration":
		text, isText := v.(string)
		ok, expected = isText && isDuration(text), `a duration like "10s"`
	case "google.protobuf.ListValue":
		_, ok = v.([]any)
		expected = "a list"
	case "google.protobuf.Timestamp", "google.protobuf.FieldMask":
		_, ok = v.(string)
		expected = "a string"
	case "google.protobuf.Struct":
	case "google.protobuf.Any":
		if ok {
			return c.checkAny(path, object)
		}
	default:
		if d.ParentFile().Path() == "google/protobuf/wrappers.proto" {
			if _, isObject := v.(map[string]any); isObject { // users write {"value": 1}, but the JSON form of a wrapper is 1
				c.reject(path, "found an object, expected only its value")
				return false
			}
			return c.checkValue(path, v, d.Fields().ByName("value"))
		}
		if ok {
			c.checkMessage(path, object, d)
			return true
		}
	}
	if !ok {
		c.reject(path, "found %s, expected %s", describeValue(v), expected)
	}
	return ok
}

// checkAny checks an Any. It does not reject an unknown type: the decoder of the enclosing message
// decides on that.
func (c *jsonChecker) checkAny(path string, v map[string]any) bool {
	url, ok := v["@type"].(string)
	switch {
	case len(v) == 0:
		return true
	case !ok || url == "":
		c.reject(path, `expected "@type", with the type of the message`)
		return false
	}
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return true
	}
	if d := t.Descriptor(); d.ParentFile().Package() != "google.protobuf" { // well-known types are in a member "value"
		c.checkMessage(path, v, d)
	}
	return true
}

// decodeField decodes JSON into m. An error is of type FieldErrors; m may then contain the valid
// parts. If data is empty, m stays unchanged.
func decodeField(field string, data []byte, m proto.Message) error {
	if len(data) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // avoids rounding
	var v any
	if err := d.Decode(&v); err != nil {
		return FieldErrors{{field, err.Error()}}
	}
	object, ok := v.(map[string]any)
	if !ok {
		return FieldErrors{{field, "expected an object"}}
	}
	if stripUnknownMessages(v) {
		data = nil // marshal v again below: it lacks the members of unknown messages
	}
	c := &jsonChecker{}
	c.checkMessageValue(field, object, m.ProtoReflect().Descriptor())
	if data == nil || c.changed || c.errors != nil {
		var err error
		if data, err = json.Marshal(v); err != nil {
			return append(c.errors, FieldError{field, err.Error()})
		}
	}
	if err := (protojson.UnmarshalOptions{Resolver: unknownTypeResolver{protoregistry.GlobalTypes}}).Unmarshal(data, m); err != nil {
		path, reason := locateError(data, err)
		c.errors = append(c.errors, FieldError{field + path, reason})
	}
	return c.errors.asError()
}
