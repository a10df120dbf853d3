package document

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Decoder fills structs from nodes by their field tags. It is not safe for concurrent use. It
// caches compiled struct types, so one Decoder should decode all documents of a configuration.
type Decoder struct {
	// Lenient turns unknown keys from errors into warnings.
	Lenient bool
	// EmptyIsSet reports an unsupported key even if its value is an empty object. It is for
	// documents that contain a key only if it was set, such as those converted from protobuf
	// messages. Without it, such a key counts as absent.
	EmptyIsSet bool
	// The Decoder calls OnReference for every name in a key with a refers tag, in document order.
	// OnReference should only collect the names: if it reports an error, the Decoder does not call
	// Validate of the struct. If OnReference is nil, the Decoder ignores refers tags.
	OnReference func(Reference)

	report *Report
	types  map[reflect.Type]*structInfo
	// inProtoJSON reports whether the struct that is being decoded is a protoJSON or is inside one.
	inProtoJSON bool
}

// NewDecoder returns a Decoder that reports to r.
func NewDecoder(r *Report) *Decoder {
	return &Decoder{report: r, types: map[reflect.Type]*structInfo{}}
}

// Reference is the name of an object in a key with a refers tag.
type Reference struct {
	Node     Node     // the value or, in a map, the member that has the name as its key
	Kind     string   // type of the object, as in the tag: "cluster"
	Name     string   // may be ""
	Severity Severity // severity of the diagnostic if the name is unknown
}

// KeyError is an error of a Validate method about one key.
type KeyError struct {
	Key string // "a.b" for a key inside a key
	Err error
}

// Error returns the message with the key as its prefix.
func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }

// Decode fills the struct, map or slice that target points to and reports whether it succeeded
// without an error. Absent keys get their defaults. Decode reports every problem and fills the
// remaining fields. target refers to the document only if it contains Nodes or Streams. Decode
// panics if target is not a pointer or has invalid tags.
func (d *Decoder) Decode(n Node, target any) bool {
	v := reflect.ValueOf(target)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		panic(fmt.Sprintf("document: Decode into %T, which is not a pointer", target))
	}
	errorsBefore := d.report.Errors()
	d.decodeValue(n, v.Elem(), &Key{Type: v.Type().Elem()})
	return d.report.Errors() == errorsBefore
}

// decodeValue fills v. k describes the key of n, or of the list that contains n.
func (d *Decoder) decodeValue(n Node, v reflect.Value, k *Key) {
	t := v.Type()
	if k.Secret {
		n.markSecret()
	}
	switch kind := n.Kind(); {
	case kind == Invalid && n.d != nil: // the parser has reported the problem
		return
	case t == nodeType:
		d.captureNode(n, v, k)
		return
	case t == anyType:
		if value := n.Value(); value != nil {
			v.Set(reflect.ValueOf(value))
		}
		return
	case kind <= Null && t.Kind() != reflect.Struct:
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		target := reflect.New(t.Elem())
		d.decodeValue(n, target.Elem(), k)
		v.Set(target)
	case reflect.Struct:
		if s, ok := v.Addr().Interface().(stream); ok {
			d.bindStream(n, s, k)
		} else {
			d.decodeObject(n, v)
		}
	case reflect.Slice:
		d.decodeList(n, v, k)
	case reflect.Map:
		d.decodeMap(n, v, k)
	default:
		d.decodeScalar(n, v, k)
	}
}

// captureNode captures a raw value.
func (d *Decoder) captureNode(n Node, v reflect.Value, k *Key) {
	if len(k.Accept) > 0 && n.Exists() {
		ok := false
		for _, kind := range k.Accept {
			ok = ok || n.Kind() == kind
		}
		if !ok {
			d.report.Expect(n, k.expected(nodeType))
			return
		}
	}
	v.Set(reflect.ValueOf(n))
}

// decodeObject fills a struct; an absent or null value fills it with defaults.
func (d *Decoder) decodeObject(n Node, v reflect.Value) {
	s := d.structInfo(v.Type())
	for _, index := range s.nodeFields {
		v.FieldByIndex(index).Set(reflect.ValueOf(n))
	}
	if n.Kind() > Null && n.Kind() != Object {
		d.report.Expect(n, "an object")
		return
	}
	if s.detectsMistakes && n.Kind() == Object {
		if problem := v.Addr().Interface().(mistakeDetector).DetectMistake(n); problem != "" {
			d.report.Errorf(n, "%s", problem)
			return
		}
	}
	if s.lowerCamelKeys && !d.inProtoJSON {
		d.inProtoJSON = true
		defer func() { d.inProtoJSON = false }()
	}
	errorsBefore := d.report.Errors()
	seen := make([]bool, len(s.keys))
	for member := range n.All() {
		keyIndex, found := s.byName[string(member.keyText())]
		if !found {
			keyIndex, found = s.byName[strings.ToLower(member.Key())]
		}
		if !found && d.inProtoJSON {
			keyIndex, found = s.byLowerCamel[strings.ToLower(member.Key())]
		}
		if !found {
			severity := Error
			if d.Lenient {
				severity = Warning
			}
			d.report.unknownKey(member, s.names, severity)
			continue
		}
		if seen[keyIndex] {
			if first := n.Get(append(s.keys[keyIndex].Aliases, s.keys[keyIndex].Name, lowerCamel(s.keys[keyIndex].Name))...); first.Key() != member.Key() {
				d.report.duplicateKey(member, first) // the parser has reported keys with the same spelling
			}
			continue
		}
		seen[keyIndex] = true
		d.decodeMember(member, v, &s.keys[keyIndex])
	}
	d.setDefaults(n, v, s, seen)
	if s.validates && d.report.Errors() == errorsBefore && n.Exists() {
		d.validate(n, v)
	}
	if s.warns && d.report.Errors() == errorsBefore && n.Exists() {
		for _, w := range v.Addr().Interface().(warner).Warnings() {
			d.report.Warnf(n.at(w.Key), "%v", w.Err)
		}
	}
}

// decodeMember fills the field of one key.
func (d *Decoder) decodeMember(member Node, v reflect.Value, k *Key) {
	switch {
	case k.IgnoredReason != "":
		d.report.Warnf(member, "%s is accepted and has no effect%s", k.Name, k.ignoredSuffix())
	case k.Unsupported != "" && (!member.IsDisabled() || d.EmptyIsSet && member.Kind() == Object):
		d.report.Unsupported(member, k.Unsupported)
	}
	field := v.FieldByIndex(k.index)
	switch {
	case k.EmptyIsAbsent && member.Kind() == String && member.Text() == "":
		d.setDefault(field, k)
	case member.Kind() != Null:
		d.decodeValue(member, field, k)
	case k.Required:
		d.report.Expect(member, k.Expected())
	default:
		d.setDefault(field, k)
	}
}

// setDefaults sets the defaults of absent keys.
func (d *Decoder) setDefaults(n Node, v reflect.Value, s *structInfo, seen []bool) {
	for i := range s.keys {
		k := &s.keys[i]
		if seen[i] {
			continue
		}
		if k.Required && n.d != nil {
			d.report.Errorf(n, "the key %q is missing: expected %s", k.Name, k.expectedWithExample())
			continue
		}
		d.setDefault(v.FieldByIndex(k.index), k)
	}
}

// expectedWithExample describes a value of the key, with its example if there is one.
func (k *Key) expectedWithExample() string {
	expected := k.Expected()
	if k.Example == "" || strings.Contains(expected, " like ") || len(k.Enum) > 0 {
		return expected
	}
	return expected + " like " + k.Example
}

// mistakeDetector is a struct that recognizes common mistakes in its object. DetectMistake returns
// the correction, or "" for an object that can be decoded.
type mistakeDetector interface{ DetectMistake(n Node) string }

// setDefault sets the default of one field.
func (d *Decoder) setDefault(field reflect.Value, k *Key) {
	switch {
	case k.HasDefault:
		k.setText(field, k.Default)
	case k.isObject:
		d.decodeObject(Node{}, field)
	}
}

// validate calls the Validate method of a filled struct and reports its error.
func (d *Decoder) validate(n Node, v reflect.Value) {
	err := v.Addr().Interface().(validator).Validate()
	if err == nil {
		return
	}
	node := n
	var keyErr *KeyError
	if errors.As(err, &keyErr) {
		node, err = n.at(keyErr.Key), keyErr.Err
	}
	d.report.Errorf(node, "%v", err)
}

// at returns the value of the key of a KeyError in n, or the innermost object on the way to it.
func (n Node) at(key string) Node {
	for name := range strings.SplitSeq(key, ".") {
		n = n.Get(name, lowerCamel(name)).Or(n)
	}
	return n
}

func (d *Decoder) decodeList(n Node, v reflect.Value, k *Key) {
	if k.WrapperKey != "" && n.Kind() == Object {
		n = d.unwrap(n, k.WrapperKey)
		if !n.Exists() {
			return
		}
	}
	if n.Kind() != Array {
		d.report.Expect(n, "a list")
		return
	}
	list := reflect.MakeSlice(v.Type(), n.Len(), n.Len())
	i := 0
	for e := range n.All() {
		d.decodeElement(e, list.Index(i), k)
		i++
	}
	v.Set(list)
}

// unwrap returns the member called name of n and reports all other members as unknown keys.
func (d *Decoder) unwrap(n Node, name string) Node {
	severity := Error
	if d.Lenient {
		severity = Warning
	}
	for member := range n.All() {
		if member.Key() != name {
			d.report.unknownKey(member, []string{name}, severity)
		}
	}
	return n.Get(name)
}

// bindStream binds a Stream, which decodes its elements later.
func (d *Decoder) bindStream(n Node, s stream, k *Key) {
	switch {
	case n.Kind() == Array:
		s.bind(d, n, k)
	case n.Exists():
		d.report.Expect(n, "a list")
	}
}

// decodeElement fills an element of a list; null is an error.
func (d *Decoder) decodeElement(n Node, v reflect.Value, k *Key) {
	if n.Kind() == Null {
		d.report.Expect(n, k.expected(v.Type()))
	}
	d.decodeValue(n, v, k)
}

func (d *Decoder) decodeMap(n Node, v reflect.Value, k *Key) {
	if n.Kind() != Object {
		d.report.Expect(n, "an object")
		return
	}
	elementKey := k
	if k.RefersTo != "" { // the keys of the map are references, its values are not
		valueKey := *k
		valueKey.RefersTo, elementKey = "", &valueKey
	}
	m := reflect.MakeMapWithSize(v.Type(), n.Len())
	for member := range n.All() {
		if k.RefersTo != "" {
			d.reportReference(member, member.Key(), k)
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.decodeValue(member, value, elementKey)
		m.SetMapIndex(reflect.ValueOf(member.Key()).Convert(v.Type().Key()), value)
	}
	v.Set(m)
}

// reportReference passes a name that was found under k to OnReference.
func (d *Decoder) reportReference(n Node, name string, k *Key) {
	if d.OnReference == nil {
		return
	}
	severity := Error
	if k.UnknownRefIsWarning {
		severity = Warning
	}
	d.OnReference(Reference{Node: n, Kind: k.RefersTo, Name: name, Severity: severity})
}

func (d *Decoder) structInfo(t reflect.Type) *structInfo {
	s := d.types[t]
	if s == nil {
		s = compile(t)
		d.types[t] = s
	}
	return s
}
