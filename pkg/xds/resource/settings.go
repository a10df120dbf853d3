package resource

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// The settings of a filter are a message of the API. decodeFilter converts it to a document.Value,
// adapts the value to Weft's format, and decodes it into the filter's type by the tags of its
// fields. The value has the form that protojson gives the message with UseProtoNames:
// https://protobuf.dev/programming-guides/json.

// unsupportedKeyError is the error of an adapt function for a key that Weft does not support: the
// path of the key in the settings.
type unsupportedKeyError string

// Error returns the path and the reason.
func (path unsupportedKeyError) Error() string { return string(path) + ": " + unsupported }

// decodeFilter decodes m into settings and returns them, or nil if m is rejected. If adapt is not
// nil, decodeFilter first calls it to convert the value of m to Weft's format, and sorts the
// members of all objects.
func (p fieldReader) decodeFilter(settings any, m proto.Message, adapt func(*document.Value, fieldReader) error) any {
	p.resolveRuntimeKeys(m.ProtoReflect())
	v, err := messageValue(m.ProtoReflect())
	if err == nil && adapt != nil {
		err = adapt(v, p)
		v.SortKeys()
	}
	if err != nil {
		var key unsupportedKeyError
		if errors.As(err, &key) {
			p.field(string(key)).rejectUnsupported()
		} else {
			p.reject("%v", err)
		}
		return nil
	}
	return p.decodeSettings(settings, v)
}

// decodeSettings decodes v into settings and returns them, or nil if v is rejected.
func (p fieldReader) decodeSettings(settings any, v *document.Value) any {
	r := &document.Report{}
	d := document.NewDecoder(r)
	d.EmptyIsSet = true // an empty message may be a restriction
	d.Decode(document.Build("", v, r), settings)
	rejected := false
	for _, d := range r.Diagnostics() {
		at := p
		if d.Path != "" { // else the whole settings
			at = p.field(d.Path)
		}
		if d.Severity == document.Warning {
			at.ignore()
			continue
		}
		rejected = true
		at.reject("%s", d.Text())
	}
	if rejected {
		return nil
	}
	return settings
}

// messageValue returns the value of m.
func messageValue(m protoreflect.Message) (*document.Value, error) {
	if v, ok, err := specialValue(m); ok {
		return v, err
	}
	return objectValue(m, "")
}

// specialValue returns the value of a message whose type has a JSON form of its own. ok is false
// for other messages.
func specialValue(m protoreflect.Message) (v *document.Value, ok bool, err error) {
	switch msg := m.Interface().(type) {
	case *anypb.Any:
		v, err = anyValue(msg)
	case *durationpb.Duration:
		if msg.CheckValid() == nil {
			return document.NewString(durationText(msg)), true, nil
		}
		v, err = stringForm(msg)
	case *timestamppb.Timestamp, *fieldmaskpb.FieldMask:
		v, err = stringForm(msg)
	case *wrapperspb.BoolValue, *wrapperspb.Int32Value, *wrapperspb.Int64Value, *wrapperspb.UInt32Value, *wrapperspb.UInt64Value,
		*wrapperspb.FloatValue, *wrapperspb.DoubleValue, *wrapperspb.StringValue, *wrapperspb.BytesValue,
		*structpb.Struct, *structpb.ListValue: // the value of the only field represents the message
		f := m.Descriptor().Fields().Get(0)
		v, err = fieldValue(f, m.Get(f))
	case *structpb.Value:
		f := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
		if n := msg.GetNumberValue(); f == nil || math.IsNaN(n) || math.IsInf(n, 0) {
			v, err = stringForm(msg) // returns the error of protojson
		} else {
			v, err = fieldValue(f, m.Get(f))
		}
	default:
		return nil, false, nil
	}
	return v, true, err
}

// stringForm returns the value of a message that protojson formats as a string. If protojson cannot
// format the message, stringForm returns the error of protojson.
func stringForm(m proto.Message) (*document.Value, error) {
	quoted, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return nil, err
	}
	return document.NewString(text), nil
}

// anyValue returns the value of the message in a: an object with its fields and the member "@type".
// If the type of the message has a JSON form of its own, the member "value" contains that form.
func anyValue(a *anypb.Any) (*document.Value, error) {
	if a.GetTypeUrl() == "" && len(a.GetValue()) == 0 {
		return document.NewObject(0), nil
	}
	m, err := anypb.UnmarshalNew(a, proto.UnmarshalOptions{AllowPartial: true})
	if err != nil {
		return stringForm(a) // the same error as protojson
	}
	v, ok, err := specialValue(m.ProtoReflect())
	if !ok {
		return objectValue(m.ProtoReflect(), a.GetTypeUrl())
	}
	if err != nil {
		return nil, err
	}
	out := document.NewObject(2)
	out.Add("@type", document.NewString(a.GetTypeUrl()))
	out.Add("value", v)
	return out, nil
}

// objectValue returns an object with those fields of m that are set. If typeURL is not empty, the
// first member is "@type". objectValue omits extension fields, which no message of the API has.
func objectValue(m protoreflect.Message, typeURL string) (*document.Value, error) {
	fields := m.Descriptor().Fields()
	count := 1
	for i := range fields.Len() {
		if m.Has(fields.Get(i)) {
			count++
		}
	}
	out := document.NewObject(count)
	if typeURL != "" {
		out.Add("@type", document.NewString(typeURL))
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		v, err := fieldValue(f, m.Get(f))
		if err != nil {
			return nil, err
		}
		out.Add(f.TextName(), v)
	}
	return out, nil
}

// fieldValue converts v, the value of the field f.
func fieldValue(f protoreflect.FieldDescriptor, v protoreflect.Value) (*document.Value, error) {
	switch {
	case f.IsMap():
		return mapValue(f, v.Map())
	case !f.IsList():
		return singleValue(f, v)
	}
	list := v.List()
	elements := make([]*document.Value, list.Len())
	for i := range elements {
		element, err := singleValue(f, list.Get(i))
		if err != nil {
			return nil, err
		}
		elements[i] = element
	}
	return document.NewList(elements...), nil
}

func mapValue(f protoreflect.FieldDescriptor, m protoreflect.Map) (*document.Value, error) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareMapKeys)
	out := document.NewObject(len(keys))
	for _, k := range keys {
		v, err := singleValue(f.MapValue(), m.Get(k))
		if err != nil {
			return nil, err
		}
		out.Add(k.String(), v)
	}
	return out, nil
}

// compareMapKeys orders the keys of a map field.
func compareMapKeys(a, b protoreflect.MapKey) int {
	switch a.Interface().(type) {
	case int32, int64:
		return cmp.Compare(a.Int(), b.Int())
	case uint32, uint64:
		return cmp.Compare(a.Uint(), b.Uint())
	}
	return strings.Compare(a.String(), b.String()) // "false" is before "true"
}

// singleValue converts v: the value of f if f is neither a list nor a map, or an element of f.
func singleValue(f protoreflect.FieldDescriptor, v protoreflect.Value) (*document.Value, error) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return messageValue(v.Message())
	case protoreflect.BoolKind:
		return document.NewBool(v.Bool()), nil
	case protoreflect.StringKind:
		if !utf8.ValidString(v.String()) {
			return nil, fmt.Errorf("proto: field %v contains invalid UTF-8", f.FullName())
		}
		return document.NewString(v.String()), nil
	case protoreflect.BytesKind:
		return document.NewString(base64.StdEncoding.EncodeToString(v.Bytes())), nil
	case protoreflect.EnumKind:
		return enumValue(f.Enum(), v.Enum()), nil
	case protoreflect.FloatKind:
		return floatValue(v.Float(), 32), nil
	case protoreflect.DoubleKind:
		return floatValue(v.Float(), 64), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return document.NewNumber(v.String()), nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return document.NewString(v.String()), nil // JSON numbers cannot represent all of them
	}
	panic(fmt.Sprintf("resource: field %v has the kind %v", f.FullName(), f.Kind()))
}

// enumValue returns the name of an enum value, or its number if it has no name. It returns null for
// a NullValue.
func enumValue(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) *document.Value {
	if e.FullName() == "google.protobuf.NullValue" {
		return document.NewNull()
	}
	if d := e.Values().ByNumber(n); d != nil {
		return document.NewString(string(d.Name()))
	}
	return document.NewNumber(strconv.Itoa(int(n)))
}

// floatValue returns a number, or a string for a number that JSON cannot represent. bits is 32 or
// 64, the size of the type from which n was converted; it determines the number of digits.
func floatValue(n float64, bits int) *document.Value {
	switch {
	case math.IsNaN(n):
		return document.NewString("NaN")
	case math.IsInf(n, 1):
		return document.NewString("Infinity")
	case math.IsInf(n, -1):
		return document.NewString("-Infinity")
	}
	number := any(n)
	if bits == 32 {
		number = float32(n)
	}
	text, err := json.Marshal(number)
	if err != nil {
		panic(fmt.Sprintf("resource: number %v: %v", number, err))
	}
	return document.NewNumber(string(text))
}

// durationText returns a valid duration in seconds, with 0, 3, 6 or 9 decimal places: "1.500s".
func durationText(d *durationpb.Duration) string {
	seconds, nanos, sign := d.GetSeconds(), d.GetNanos(), ""
	if seconds < 0 || nanos < 0 {
		seconds, nanos, sign = -seconds, -nanos, "-"
	}
	text := sign + strconv.FormatInt(seconds, 10)
	switch {
	case nanos == 0:
	case nanos%1e6 == 0:
		text += fmt.Sprintf(".%03d", nanos/1e6)
	case nanos%1e3 == 0:
		text += fmt.Sprintf(".%06d", nanos/1e3)
	default:
		text += fmt.Sprintf(".%09d", nanos)
	}
	return text + "s"
}

// goValue returns the value of a Go value: nil, a bool, float64, string, []any, or a map with
// string keys. The members of an object are in alphabetical order.
func goValue(v any) *document.Value {
	switch v := v.(type) {
	case nil:
		return document.NewNull()
	case bool:
		return document.NewBool(v)
	case float64:
		return floatValue(v, 64)
	case string:
		return document.NewString(string([]rune(v))) // each invalid byte becomes U+FFFD
	case []any:
		elements := make([]*document.Value, len(v))
		for i, element := range v {
			elements[i] = goValue(element)
		}
		return document.NewList(elements...)
	case map[string]any:
		out := document.NewObject(len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out.Add(key, goValue(v[key]))
		}
		return out
	}
	panic(fmt.Sprintf("resource: a setting is a %T", v))
}
