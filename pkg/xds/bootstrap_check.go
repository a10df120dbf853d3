package xds

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

// A JSON decoder of messages ends at the first mistake. A checker goes over the whole value
// first: it tells of every mistake with its path, and takes what is wrong out of the value, so
// that the rest can be decoded and judged, too. Whoever judges that complains of what is missing
// now; withoutEchoes drops such complaints.

// checker checks the JSON of a message.
type checker struct {
	wrong Problems
}

func (c *checker) refuse(path, format string, args ...any) {
	c.wrong = append(c.wrong, Problem{path, fmt.Sprintf(format, args...)})
}

// message checks the members of an object at path that is to be a message, and deletes those
// that are wrong.
func (c *checker) message(path string, v map[string]any, d protoreflect.MessageDescriptor) {
	given := map[protoreflect.Name]string{} // by the name of the field, how it is spelt
	chosen := map[protoreflect.Name]string{}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		f := fieldOf(d, key)
		if f == nil {
			if key == "@type" { // of an Any, which is looked at already
				continue
			}
			c.refuse(path+"."+key, "unknown field %q%s", key, suggestion(key, fieldNames(d)))
			delete(v, key)
			continue
		}
		at := path + "." + string(f.Name())
		if other, twice := given[f.Name()]; twice {
			c.refuse(path+"."+key, "duplicate field %q: it is also set as %s", key, other)
			delete(v, key)
			continue
		}
		given[f.Name()] = key
		if v[key] == nil && !takesNull(f) {
			delete(v, key) // as if it was not there
			continue
		}
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if other, both := chosen[o.Name()]; both {
				c.refuse(at, "cannot be set together with %s", other)
				delete(v, key)
				continue
			}
			chosen[o.Name()] = string(f.Name())
		}
		if !c.field(at, v[key], f) {
			delete(v, key)
		}
	}
}

// fieldOf is the field of d that JSON calls key; nil: there is none.
func fieldOf(d protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByTextName(key); f != nil {
		return f
	}
	return d.Fields().ByJSONName(key)
}

// fieldNames are the names of d's fields as Envoy's documentation spells them.
func fieldNames(d protoreflect.MessageDescriptor) []string {
	names := make([]string, d.Fields().Len())
	for i := range names {
		names[i] = d.Fields().Get(i).TextName()
	}
	return names
}

// suggestion is the nearest of the names as part of a reason; "" if none is near.
func suggestion(name string, names []string) string {
	if near := document.Near(name, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// takesNull reports whether null is a value of a field.
func takesNull(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == "google.protobuf.Value" && !f.IsList() && !f.IsMap()
}

// field checks the value of a field at path; false: it is to be taken out.
func (c *checker) field(path string, v any, f protoreflect.FieldDescriptor) bool {
	switch {
	case f.IsList():
		list, ok := v.([]any)
		if !ok {
			c.refuse(path, "found %s, expected a list", found(v))
			return false
		}
		all := true
		for i, one := range list {
			all = c.value(fmt.Sprintf("%s[%d]", path, i), one, f) && all
		}
		return all
	case f.IsMap():
		m, ok := v.(map[string]any)
		if !ok {
			c.refuse(path, "found %s, expected an object", found(v))
			return false
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !c.value(path+"["+key+"]", m[key], f.MapValue()) {
				delete(m, key)
			}
		}
		return true
	}
	return c.value(path, v, f)
}

// value checks one value of a field, of a list or of a map; false: it is to be taken out.
func (c *checker) value(path string, v any, f protoreflect.FieldDescriptor) bool {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return c.known(path, v, f.Message())
	case protoreflect.EnumKind:
		return c.enum(path, v, f.Enum())
	default:
		expected := scalar(v, f.Kind())
		if expected != "" {
			c.refuse(path, "found %s, expected %s", found(v), expected)
		}
		return expected == ""
	}
}

// known checks a message, which may be one of those that JSON writes in its own way.
func (c *checker) known(path string, v any, d protoreflect.MessageDescriptor) bool {
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
			return c.any(path, object)
		}
	default:
		if d.ParentFile().Path() == "google/protobuf/wrappers.proto" {
			if _, isObject := v.(map[string]any); isObject { // a reader of Envoy's documentation may try
				c.refuse(path, "found an object, expected only its value")
				return false
			}
			return c.value(path, v, d.Fields().ByName("value"))
		}
		if ok {
			c.message(path, object, d)
			return true
		}
	}
	if !ok {
		c.refuse(path, "found %s, expected %s", found(v), expected)
	}
	return ok
}

// any checks a message that says of which type it is. What becomes of a type that is not known
// is for who reads the message that it is in.
func (c *checker) any(path string, v map[string]any) bool {
	url, ok := v["@type"].(string)
	switch {
	case len(v) == 0:
		return true
	case !ok || url == "":
		c.refuse(path, `expected "@type", with the type of the message`)
		return false
	}
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return true
	}
	if d := t.Descriptor(); d.ParentFile().Package() != "google.protobuf" { // those stand in a member, "value"
		c.message(path, v, d)
	}
	return true
}

// enum checks the name, or the number, of a value.
func (c *checker) enum(path string, v any, d protoreflect.EnumDescriptor) bool {
	const few = 8 // that a message names
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
			c.refuse(path, "unknown value %q%s", v, near)
			return false
		}
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 32)
		if err == nil && values.ByNumber(protoreflect.EnumNumber(n)) != nil {
			return true
		}
	}
	if len(names) <= few {
		c.refuse(path, "found %s, expected %s", found(v), alternatives(names))
	} else {
		c.refuse(path, "found %s, expected a value of %s", found(v), d.FullName())
	}
	return false
}

// alternatives are names as one reads them.
func alternatives(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// scalar returns what is expected of a value of a kind if v is none, else "".
func scalar(v any, kind protoreflect.Kind) string {
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
		least, most := bounds(kind)
		n, err := number.Float64()
		if err != nil || !isText && !isNumber || n != math.Trunc(n) || n < least || n > most {
			return fmt.Sprintf("a whole number from %.0f to %.0f", least, most)
		}
	}
	return ""
}

// bounds are those of a kind of whole numbers.
func bounds(kind protoreflect.Kind) (least, most float64) {
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

// isDuration reports whether text is how JSON writes a Duration: seconds, and no other unit.
func isDuration(text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil && strings.HasSuffix(text, "s") && strings.Trim(text, "+-.0123456789") == "s"
}

// found describes a value in a message.
func found(v any) string {
	const most = 40 // bytes that help to recognise it
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

// read reads JSON into a message. What is wrong is an error of type Problems, and the message
// has the rest then. Nothing is no JSON.
func read(field string, data []byte, m proto.Message) error {
	if len(data) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // which are not to be rounded
	var v any
	if err := d.Decode(&v); err != nil {
		return Problems{{field, err.Error()}}
	}
	object, ok := v.(map[string]any)
	if !ok {
		return Problems{{field, "expected an object"}}
	}
	if empty(v) {
		data = nil // without the members of messages that are not built in
	}
	c := &checker{}
	c.known(field, object, m.ProtoReflect().Descriptor())
	if data == nil || c.wrong != nil {
		var err error
		if data, err = json.Marshal(v); err != nil {
			return append(c.wrong, Problem{field, err.Error()})
		}
	}
	if err := (protojson.UnmarshalOptions{Resolver: foreign{protoregistry.GlobalTypes}}).Unmarshal(data, m); err != nil {
		path, reason := locate(data, err)
		c.wrong = append(c.wrong, Problem{field + path, reason})
	}
	return c.wrong.orNil()
}

// withoutEchoes returns those of late that are not what early has led to: a complaint of the
// field that one of early is in, or of a field beside it that is not in the file. given reports
// whether a field is.
func withoutEchoes(early, late Problems, given func(field string) bool) (kept Problems) {
	around := map[string]bool{}
	for _, p := range early {
		around[p.Field], around[parent(p.Field)] = true, true
	}
	for _, p := range late {
		if !around[p.Field] && (!around[parent(p.Field)] || given(p.Field)) {
			kept = append(kept, p)
		}
	}
	return kept
}

// parent is the field that a field is in.
func parent(field string) string {
	if strings.HasSuffix(field, "]") {
		return field[:max(0, strings.LastIndexByte(field, '['))]
	}
	return field[:max(0, strings.LastIndexByte(field, '.'))]
}

// isGiven reports whether the JSON at field has the field, which is in it.
func isGiven(field string, data []byte) func(inner string) bool {
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
