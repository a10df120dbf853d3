package bootstrap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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

// jsonChecker checks the JSON of a message.
type jsonChecker struct {
	errors FieldErrors
}

func (c *jsonChecker) reject(path, format string, args ...any) {
	c.errors = append(c.errors, FieldError{path, fmt.Sprintf(format, args...)})
}

// checkMessage checks the members of the object v at path against the message d, and deletes the
// invalid ones.
func (c *jsonChecker) checkMessage(path string, v map[string]any, d protoreflect.MessageDescriptor) {
	given := map[protoreflect.Name]string{} // spelling in the file, by field name
	chosen := map[protoreflect.Name]string{}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		f := findField(d, key)
		if f == nil {
			if key == "@type" { // of an Any, checked by checkAny
				continue
			}
			c.reject(path+"."+key, "unknown field %q%s", key, suggestion(key, fieldNames(d)))
			delete(v, key)
			continue
		}
		at := path + "." + string(f.Name())
		if other, twice := given[f.Name()]; twice {
			c.reject(path+"."+key, "duplicate field %q: it is also set as %s", key, other)
			delete(v, key)
			continue
		}
		given[f.Name()] = key
		if v[key] == nil && !acceptsNull(f) {
			delete(v, key) // null means absent
			continue
		}
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if other, both := chosen[o.Name()]; both {
				c.reject(at, "cannot be set together with %s", other)
				delete(v, key)
				continue
			}
			chosen[o.Name()] = string(f.Name())
		}
		if !c.checkField(at, v[key], f) {
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
	if near := document.Suggest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
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
		all := true
		for i, one := range list {
			all = c.checkValue(fmt.Sprintf("%s[%d]", path, i), one, f) && all
		}
		return all
	case f.IsMap():
		m, ok := v.(map[string]any)
		if !ok {
			c.reject(path, "found %s, expected an object", describeValue(v))
			return false
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
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

// checkMessageValue checks a message, also one with a JSON form of its own.
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
			if _, isObject := v.(map[string]any); isObject { // an easy mistake after reading Envoy's documentation
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

// checkEnum checks the name or number of an enum value.
func (c *jsonChecker) checkEnum(path string, v any, d protoreflect.EnumDescriptor) bool {
	const few = 8 // values to list in an error text
	values := d.Values()
	names := make([]string, values.Len())
	for i := range names {
		names[i] = string(values.Get(i).Name())
	}
	switch v := v.(type) {
	case string:
		if values.ByName(protoreflect.Name(v)) != nil {
			return true
		}
		if near := suggestion(v, names); near != "" {
			c.reject(path, "unknown value %q%s", v, near)
			return false
		}
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 32)
		if err == nil && values.ByNumber(protoreflect.EnumNumber(n)) != nil {
			return true
		}
	}
	if len(names) <= few {
		c.reject(path, "found %s, expected %s", describeValue(v), alternatives(names))
	} else {
		c.reject(path, "found %s, expected a value of %s", describeValue(v), d.FullName())
	}
	return false
}

// alternatives joins names for an error text.
func alternatives(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// expectedScalar returns what is expected if v is not a value of the kind, else "".
func expectedScalar(v any, kind protoreflect.Kind) string {
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	if isText {
		number = json.Number(text)
	}
	switch kind {
	case protoreflect.BoolKind:
		if _, ok := v.(bool); !ok {
			return "true or false"
		}
	case protoreflect.StringKind, protoreflect.BytesKind:
		if !isText {
			return "a string"
		}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if _, err := number.Float64(); err != nil || !isText && !isNumber {
			return "a number"
		}
	default:
		least, most := integerBounds(kind)
		n, err := number.Float64()
		if err != nil || !isText && !isNumber || n != math.Trunc(n) || n < least || n > most {
			return fmt.Sprintf("a whole number from %.0f to %.0f", least, most)
		}
	}
	return ""
}

// integerBounds returns the bounds of an integer kind.
func integerBounds(kind protoreflect.Kind) (least, most float64) {
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return 0, math.MaxUint32
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return 0, math.MaxUint64
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return math.MinInt64, math.MaxInt64
	default:
		return math.MinInt32, math.MaxInt32
	}
}

// isDuration reports whether text is the JSON form of a Duration: seconds, and no other unit.
func isDuration(text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil && strings.HasSuffix(text, "s") && strings.Trim(text, "+-.0123456789") == "s"
}

// describeValue describes a value for an error text.
func describeValue(v any) string {
	const most = 40 // bytes
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return "the number " + v.String()
	case string:
		if strings.Contains(v, "PRIVATE KEY-----") {
			return "a string"
		}
		if len(v) > most {
			v = strings.ToValidUTF8(v[:most], "") + "…"
		}
		return "the string " + strconv.Quote(v)
	case []any:
		return "a list"
	}
	return "an object"
}

// decodeField decodes JSON into a message. An error is of type FieldErrors; m contains the valid
// part then. Empty data is not valid JSON.
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
		data = nil // without members of unknown message types
	}
	c := &jsonChecker{}
	c.checkMessageValue(field, object, m.ProtoReflect().Descriptor())
	if data == nil || c.errors != nil {
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

// dropFollowUpErrors returns those of late that are not consequences of early. A consequence is an
// error of a field that contains a field of early, or of a missing field next to one. given reports
// whether the file has a field.
func dropFollowUpErrors(early, late FieldErrors, given func(field string) bool) (kept FieldErrors) {
	around := map[string]bool{}
	for _, p := range early {
		around[p.Field], around[parentField(p.Field)] = true, true
	}
	for _, p := range late {
		if !around[p.Field] && (!around[parentField(p.Field)] || given(p.Field)) {
			kept = append(kept, p)
		}
	}
	return kept
}

// parentField returns the field that contains a field.
func parentField(field string) string {
	if strings.HasSuffix(field, "]") {
		return field[:max(0, strings.LastIndexByte(field, '['))]
	}
	return field[:max(0, strings.LastIndexByte(field, '.'))]
}

// fieldLookup returns a function that reports whether the JSON at field has an inner field.
func fieldLookup(field string, data []byte) func(inner string) bool {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return func(string) bool { return true }
	}
	return func(inner string) bool {
		rest, ok := strings.CutPrefix(inner, field)
		at := v
		for ok && rest != "" {
			var step string
			if rest[0] == '[' {
				step, rest, _ = strings.Cut(rest[1:], "]")
			} else {
				rest = strings.TrimPrefix(rest, ".")
				end := strings.IndexAny(rest, ".[")
				if end < 0 {
					end = len(rest)
				}
				step, rest = rest[:end], rest[end:]
			}
			switch in := at.(type) {
			case []any:
				i, err := strconv.Atoi(step)
				if ok = err == nil && i < len(in); ok {
					at = in[i]
				}
			case map[string]any:
				if at, ok = in[step]; !ok {
					at, ok = in[lowerCamel(step)]
				}
			default:
				ok = false
			}
		}
		return ok
	}
}
