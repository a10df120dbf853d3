package document

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Key is one key of a configuration struct and the contents of its tags.
type Key struct {
	Name     string
	Aliases  []string
	Doc      string
	Unit     string
	Default  string
	Example  string // as in a JSON file; "": no example
	Enum     []EnumValue
	Min, Max string  // "": no bound
	OneOf    []int64 // the accepted integers; nil: any between the bounds
	Since    string
	Variant  string
	// ObjectForm is a key of Variants: if the value is an object, its keys are those of the only
	// prototype in that list; "": the keys are not described.
	ObjectForm string
	// VariantNames is a key of Variants: the string must be one of the names in that list. With the
	// suffix ",list", the string may contain several of the names, separated by commas.
	VariantNames string
	WrapperKey   string // the list may also be written as {WrapperKey: [...]}; "": it may not
	Accept       []Kind // kinds that a Node field accepts; nil: any
	// RefersTo is the type of the objects that the key refers to, such as "cluster"; "": none. The
	// names are the keys of a map, the elements of a list, or the string itself.
	RefersTo string
	Type     reflect.Type

	HasDefault          bool
	Required            bool
	AllowIntegerString  bool // an integer may be written as a string
	Secret              bool
	IgnoredReason       string // why the key has no effect, or "true" if no reason is given; "": the key has an effect
	Unsupported         string // name of the unsupported feature; "": the key is supported
	EmptyIsAbsent       bool   // for an object: "" means absent
	UnknownRefIsWarning bool   // an unknown name is a warning, not an error

	index            []int // index of the field, for reflect.Value.FieldByIndex
	acceptsByteSizes bool  // accepts sizes such as "64KB"
	isObject         bool  // the field is a struct, not a pointer, so it exists even if the key is absent
	minBound         bound
	maxBound         bound
}

// EnumValue is a string that a key accepts. On an integer key it stands for Value.
type EnumValue struct {
	Name  string
	Value int64
}

// bound is one end of a range.
type bound struct {
	set   bool
	value float64 // in nanoseconds for a duration
}

// structInfo is a compiled configuration struct type.
type structInfo struct {
	typ             reflect.Type
	keys            []Key
	byName          map[string]int // indexes in keys, by names and aliases: as in the tags, and in lower case
	names           []string       // names and aliases of all keys, for suggestions
	byLowerCamel    map[string]int // indexes in keys, by the lowerCamelCase spelling of names with "_", in lower case
	nodeFields      [][]int        // indexes of the fields that capture the object
	validates       bool
	detectsMistakes bool // the type implements mistakeDetector
	warns           bool // the type implements warner
	lowerCamelKeys  bool // the type implements protoJSON
}

//nolint:gochecknoglobals // a constant table; Go has no constants of this type
var (
	nodeType     = reflect.TypeFor[Node]()
	durationType = reflect.TypeFor[time.Duration]()
	anyType      = reflect.TypeFor[any]()
)

// validator is implemented by configuration structs that check themselves.
type validator interface{ Validate() error }

// warner is implemented by configuration structs with valid settings that are probably mistakes.
// Each KeyError that Warnings returns becomes a warning.
type warner interface{ Warnings() []KeyError }

// protoJSON is implemented by configuration structs that MOSN reads as the JSON form of a protobuf
// message. Their keys, and those of the structs in them, also have the lowerCamelCase spelling.
type protoJSON interface{ ProtoJSON() }

// Keys returns the keys of a configuration struct, given as a value or pointer, in the order of its
// fields. It panics on an invalid tag, which is a programming error.
func Keys(prototype any) []Key {
	t := reflect.TypeOf(prototype)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return compile(t).keys
}

// compile reads the tags of a struct type.
func compile(t reflect.Type) *structInfo {
	s := &structInfo{typ: t, byName: map[string]int{}, byLowerCamel: map[string]int{}}
	s.addFields(t, nil)
	for i := range s.keys {
		k := &s.keys[i]
		for _, name := range append([]string{k.Name}, k.Aliases...) {
			if index, exists := s.byName[strings.ToLower(name)]; exists && index != i {
				panic(fmt.Sprintf("document: %v has two keys %q", t, name))
			}
			s.byName[name] = i
			s.byName[strings.ToLower(name)] = i
			s.names = append(s.names, name)
		}
		if name := lowerCamel(k.Name); name != k.Name {
			s.byLowerCamel[strings.ToLower(name)] = i
		}
	}
	s.validates = reflect.PointerTo(t).Implements(reflect.TypeFor[validator]())
	s.warns = reflect.PointerTo(t).Implements(reflect.TypeFor[warner]())
	s.lowerCamelKeys = reflect.PointerTo(t).Implements(reflect.TypeFor[protoJSON]())
	s.detectsMistakes = reflect.PointerTo(t).Implements(reflect.TypeFor[mistakeDetector]())
	return s
}

// lowerCamel returns the lowerCamelCase spelling of a key: "localJwks" for "local_jwks".
func lowerCamel(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words {
		if i > 0 && word != "" {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

func (s *structInfo) addFields(t reflect.Type, index []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		fieldIndex := append(append([]int(nil), index...), i)
		tag, hasTag := f.Tag.Lookup("key")
		switch {
		case tag == "-" || !f.IsExported() && !f.Anonymous:
		case tag == "." && f.Type == nodeType:
			s.nodeFields = append(s.nodeFields, fieldIndex)
		case hasTag:
			s.keys = append(s.keys, newKey(t, f, tag, fieldIndex))
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			s.addFields(f.Type, fieldIndex)
		default:
			panic(fmt.Sprintf("document: field %v.%s has no key tag", t, f.Name))
		}
	}
}

// newKey reads the tags of one field.
func newKey(owner reflect.Type, f reflect.StructField, tag string, index []int) Key {
	names := strings.Split(tag, ",")
	get := f.Tag.Get
	k := Key{
		Name: names[0], Aliases: names[1:],
		Doc: get("doc"), Unit: get("unit"), Example: get("example"), Since: get("since"), Variant: get("variant"), ObjectForm: get("object"), VariantNames: get("choice"), WrapperKey: get("wrapperkey"),
		Min: get("min"), Max: get("max"),
		Type:     f.Type,
		Required: get("required") == "true", AllowIntegerString: get("allowstring") == "true", Secret: get("secret") == "true",
		IgnoredReason: get("ignored"), Unsupported: get("unsupported"), EmptyIsAbsent: get("emptyisabsent") == "true",
		index: index,
	}
	k.Default, k.HasDefault = f.Tag.Lookup("default")
	fail := func(reason string) {
		panic(fmt.Sprintf("document: field %v.%s: %s", owner, f.Name, reason))
	}
	k.RefersTo, k.UnknownRefIsWarning = strings.CutSuffix(get("refers"), ",warn")
	if !isSupportedType(f.Type) {
		fail("a document cannot contain values of its type")
	}
	base := leafType(f.Type)
	if k.RefersTo != "" && base.Kind() != reflect.String && !isMap(f.Type) {
		fail("invalid refers tag: the field contains neither strings nor a map")
	}
	_, isList := elementOf(f.Type)
	k.isObject = f.Type.Kind() == reflect.Struct && f.Type != nodeType && !isList
	k.acceptsByteSizes = k.Unit == "bytes" && isInteger(base)
	if text := get("enum"); text != "" {
		if k.Enum = parseEnum(text, base); k.Enum == nil {
			fail("invalid enum tag: on an integer field it must be name=number|…")
		}
	}
	if text := get("oneof"); text != "" {
		if k.OneOf = parseOneOf(text); k.OneOf == nil || !isInteger(base) {
			fail("invalid oneof tag: expected integers on an integer field")
		}
	}
	for _, kind := range strings.FieldsFunc(get("accept"), func(r rune) bool { return r == '|' }) {
		kinds := map[string]Kind{"bool": Bool, "number": Number, "string": String, "object": Object, "list": Array}
		if kinds[kind] == Invalid {
			fail("invalid accept tag: unknown kind " + kind)
		}
		k.Accept = append(k.Accept, kinds[kind])
	}
	var okMin, okMax bool
	if k.minBound, okMin = newBound(k.Min, base); !okMin {
		fail("invalid min tag: expected a number, or a duration on a duration field")
	}
	if k.maxBound, okMax = newBound(k.Max, base); !okMax {
		fail("invalid max tag: expected a number, or a duration on a duration field")
	}
	if k.HasDefault {
		if problem := k.setText(reflect.New(f.Type).Elem(), k.Default); problem != "" {
			fail("invalid default tag: expected " + problem)
		}
	}
	return k
}

// parseEnum parses an enum tag; nil if it is invalid.
func parseEnum(tag string, t reflect.Type) []EnumValue {
	var list []EnumValue
	for text := range strings.SplitSeq(tag, "|") {
		ev := EnumValue{Name: text}
		if t.Kind() != reflect.String {
			name, number, ok := strings.Cut(text, "=")
			value, err := strconv.ParseInt(number, 10, 64)
			if !ok || err != nil || !isInteger(t) {
				return nil
			}
			ev = EnumValue{name, value}
		}
		list = append(list, ev)
	}
	return list
}

// parseOneOf parses a oneof tag; nil if it is invalid.
func parseOneOf(tag string) []int64 {
	var list []int64
	for text := range strings.SplitSeq(tag, "|") {
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil
		}
		list = append(list, i)
	}
	return list
}

func newBound(text string, t reflect.Type) (bound, bool) {
	if text == "" {
		return bound{}, true
	}
	if t == durationType {
		d, err := time.ParseDuration(text)
		return bound{true, float64(d)}, err == nil
	}
	v, err := strconv.ParseFloat(text, 64)
	return bound{true, v}, err == nil
}

func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// leafType returns the type of the values that a field contains, at any depth of pointers, lists
// and maps.
func leafType(t reflect.Type) reflect.Type {
	for {
		element, isList := elementOf(t)
		switch {
		case isList:
			t = element
		case t.Kind() == reflect.Pointer || t.Kind() == reflect.Map:
			t = t.Elem()
		default:
			return t
		}
	}
}

func isMap(t reflect.Type) bool { return deref(t).Kind() == reflect.Map }

func isInteger(t reflect.Type) bool {
	return t != durationType && t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64
}

// isSupportedType reports whether Decode can fill a type.
func isSupportedType(t reflect.Type) bool {
	if t == nodeType || t == anyType {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64, reflect.Struct:
		return true
	case reflect.Pointer:
		return t.Elem().Kind() != reflect.Pointer && isSupportedType(t.Elem())
	case reflect.Slice:
		return isSupportedType(t.Elem())
	case reflect.Map:
		return t.Key().Kind() == reflect.String && isSupportedType(t.Elem())
	}
	return t == durationType || isInteger(t)
}
