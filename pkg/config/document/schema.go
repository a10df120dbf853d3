package document

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Variant is one type of object that a Node field can hold. The name in a sibling member selects
// it.
type Variant struct {
	Name      string
	Doc       string
	Prototype any // a configuration struct with the keys of the object; any other value accepts any object
}

// hasKeys reports whether the prototype defines the keys of the variant.
func (v *Variant) hasKeys() bool {
	return v.Prototype != nil && deref(reflect.TypeOf(v.Prototype)).Kind() == reflect.Struct
}

// Variants lists the types of objects that a Node field can hold; the keys are the names of variant
// tags. The sibling member "type" selects the type, or "name" if the object has no "type". In a map
// of Nodes, the key selects the type.
type Variants map[string][]Variant

// objectForm returns the struct with the keys of the object form of k; nil if k has no object tag
// or v has no prototype for it.
func (v Variants) objectForm(k *Key) reflect.Type {
	if list := v[k.ObjectForm]; k.ObjectForm != "" && len(list) > 0 {
		return leafType(reflect.TypeOf(list[0].Prototype))
	}
	return nil
}

// schemaID is the JSON Schema dialect that Schema writes.
const schemaID = "https://json-schema.org/draft/2020-12/schema"

// Schema returns a JSON Schema (2020-12) of the documents that Decode reads into the prototype, a
// configuration struct. It accepts keys and enum values only with the spelling of the tags; Decode
// ignores case.
func Schema(title string, prototype any, variants Variants) []byte {
	w := schemaWriter{variants: variants, defs: map[string]any{
		"duration": map[string]any{
			"description": "a Go duration: 300ms, 10s, 1m30s",
			"type":        "string",
			"pattern":     `^(([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+|0)$|\$\{`,
		},
		"bytes": map[string]any{
			"description": "a number of bytes with a unit: 64KB",
			"type":        "string",
			"pattern":     `^[0-9]+ *[bBkKmMgGiI]+$|\$\{`,
		},
		"variable": map[string]any{
			"description": "a value from the environment: ${NAME} or ${NAME:-default}",
			"type":        "string",
			"pattern":     `\$\{`,
		},
	}, names: map[definition]string{}}
	root := w.objectSchema(leafType(reflect.TypeOf(prototype)))
	root["$schema"] = schemaID
	root["title"] = title
	root["$defs"] = w.defs
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		panic("document: the schema cannot be encoded as JSON: " + err.Error())
	}
	return out.Bytes()
}

type schemaWriter struct {
	variants Variants
	defs     map[string]any
	names    map[definition]string
	// inProtoJSON reports whether the schema that is being written belongs to a protoJSON.
	inProtoJSON bool
}

// definition identifies a schema in $defs.
type definition struct {
	t           reflect.Type
	inProtoJSON bool // with the lowerCamelCase spelling of keys
}

// reference returns a reference to the definition of a struct type, and adds the definition if it
// is missing. A struct without a name is defined inline.
func (w *schemaWriter) reference(t reflect.Type) map[string]any {
	if t.Name() == "" {
		return w.objectSchema(t)
	}
	key := definition{t, w.inProtoJSON}
	name, ok := w.names[key]
	if !ok {
		name = t.Name()
		for _, exists := w.defs[name]; exists; _, exists = w.defs[name] {
			name += "_"
		}
		w.names[key] = name
		w.defs[name] = nil // reserves the name before the members refer to it
		w.defs[name] = w.objectSchema(t)
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

// objectSchema returns the schema of an object.
func (w *schemaWriter) objectSchema(t reflect.Type) map[string]any {
	properties := map[string]any{}
	var required []string
	var conditions []any
	var variantTag string // variant tag of the object
	s := compile(t)
	if s.lowerCamelKeys && !w.inProtoJSON {
		w.inProtoJSON = true
		defer func() { w.inProtoJSON = false }()
	}
	for i := range s.keys {
		k := &s.keys[i]
		names := append([]string{k.Name}, k.Aliases...)
		camel := lowerCamel(k.Name)
		hasCamel := w.inProtoJSON && camel != k.Name
		if hasCamel {
			names = append(names, camel)
		}
		for _, name := range names {
			properties[name] = w.keySchema(k)
		}
		if k.Variant != "" && k.Type == nodeType {
			variantTag = k.Variant
		}
		switch {
		case k.Required && hasCamel:
			conditions = append(conditions, anyOf(map[string]any{"required": []string{k.Name}}, map[string]any{"required": []string{camel}}))
		case k.Required:
			required = append(required, k.Name)
		}
		if k.Variant != "" && k.Type == nodeType {
			conditions = append(conditions, w.variantConditions(s, k)...)
		}
	}
	if memberName := discriminator(s); variantTag != "" && len(w.variants[variantTag]) > 0 {
		if property, ok := properties[memberName].(map[string]any); ok && property["type"] == "string" {
			delete(property, "type")
			property["anyOf"] = []map[string]any{{"enum": w.variants.names(variantTag)}, variableRef()}
		}
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	if len(conditions) > 0 {
		out["allOf"] = conditions
	}
	return out
}

// discriminator returns the member that selects the variant of an object.
func discriminator(s *structInfo) string {
	if _, ok := s.byName["type"]; ok {
		return "type"
	}
	return "name"
}

// names returns the distinct names of a list of variants in order.
func (v Variants) names(list string) []string {
	var out []string
	for _, variant := range v[list] {
		if !slices.Contains(out, variant.Name) {
			out = append(out, variant.Name)
		}
	}
	return out
}

// choiceSchema returns the schema of a string with a choice tag; nil without one or if the list has
// no variants.
func (w *schemaWriter) choiceSchema(k *Key) map[string]any {
	list, isList := strings.CutSuffix(k.VariantNames, ",list")
	names := w.variants.names(list)
	if len(names) == 0 {
		return nil
	}
	alternatives := []map[string]any{{"enum": names}, variableRef()}
	if isList {
		quoted := make([]string, len(names))
		for i, name := range names {
			quoted[i] = regexp.QuoteMeta(name)
		}
		alternative := " *(" + strings.Join(quoted, "|") + ") *"
		alternatives = append(alternatives, map[string]any{"type": "string", "pattern": "^" + alternative + "(," + alternative + ")*$"})
	}
	return anyOf(alternatives...)
}

// variantConditions returns the conditions that relate a Node member to its discriminator.
func (w *schemaWriter) variantConditions(s *structInfo, k *Key) []any {
	memberName := discriminator(s)
	var out []any
	for _, v := range w.variants[k.Variant] {
		if !v.hasKeys() {
			continue
		}
		out = append(out, map[string]any{
			"if":   map[string]any{"properties": map[string]any{memberName: map[string]any{"const": v.Name}}, "required": []string{memberName}},
			"then": map[string]any{"properties": map[string]any{k.Name: w.reference(leafType(reflect.TypeOf(v.Prototype)))}},
		})
	}
	return out
}

// keySchema returns the schema of a key with its description.
func (w *schemaWriter) keySchema(k *Key) map[string]any {
	out := w.valueSchema(k, k.Type)
	if k.EmptyIsAbsent {
		out = anyOf(out, map[string]any{"const": ""})
	}
	out["description"] = keyDescription(k)
	if k.HasDefault {
		out["default"] = jsonDefault(k, k.Default)
	}
	if k.Example != "" {
		out["examples"] = []any{json.RawMessage(k.Example)}
	}
	if k.IgnoredReason != "" {
		out["deprecated"] = true
	}
	return out
}

// keyDescription returns the description of a key, with its unit and support status.
func keyDescription(k *Key) string {
	var b strings.Builder
	b.WriteString(k.Doc)
	if k.Unit != "" {
		b.WriteString(" (" + k.Unit + ")")
	}
	if k.IgnoredReason != "" {
		b.WriteString(" Accepted, no effect" + k.ignoredSuffix() + ".")
	}
	if k.Unsupported != "" {
		b.WriteString(" Not supported yet.")
	}
	return b.String()
}

// jsonDefault returns a default in its JSON spelling.
func jsonDefault(k *Key, text string) any {
	t := leafType(k.Type)
	if t.Kind() == reflect.Bool || (isInteger(t) || t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32) && isNumber([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

// valueSchema returns the schema of a value of type t under a key.
func (w *schemaWriter) valueSchema(k *Key, t reflect.Type) map[string]any {
	t = deref(t)
	switch t {
	case nodeType:
		return w.nodeSchema(k)
	case anyType:
		return map[string]any{}
	case durationType:
		return map[string]any{"$ref": "#/$defs/duration"}
	}
	if element, ok := elementOf(t); ok {
		list := map[string]any{"type": "array", "items": w.valueSchema(k, element)}
		if k.WrapperKey == "" {
			return list
		}
		return anyOf(list, map[string]any{"type": "object", "properties": map[string]any{k.WrapperKey: list}, "additionalProperties": false})
	}
	switch t.Kind() {
	case reflect.Struct:
		return w.reference(t)
	case reflect.Map:
		if t.Elem() == nodeType && k.Variant != "" {
			return map[string]any{"type": "object", "properties": w.mapProperties(k)}
		}
		return map[string]any{"type": "object", "additionalProperties": w.valueSchema(k, t.Elem())}
	case reflect.String:
		if choices := w.choiceSchema(k); choices != nil {
			return choices
		}
		if len(k.Enum) == 0 {
			return map[string]any{"type": "string"}
		}
		return anyOf(map[string]any{"enum": k.enumNames()}, variableRef())
	case reflect.Bool:
		return anyOf(map[string]any{"type": "boolean"}, variableRef())
	}
	return w.numberSchema(k, t)
}

func (w *schemaWriter) nodeSchema(k *Key) map[string]any {
	names := map[Kind]string{Bool: "boolean", Number: "number", String: "string", Object: "object", Array: "array"}
	var kinds []string
	choices, form := w.choiceSchema(k), w.variants.objectForm(k)
	for _, kind := range k.Accept {
		if (kind != String || choices == nil) && (kind != Object || form == nil) {
			kinds = append(kinds, names[kind])
		}
	}
	switch {
	case choices != nil:
		return anyOf(map[string]any{"type": kinds}, choices)
	case form != nil && kinds == nil:
		return w.reference(form)
	case form != nil:
		return anyOf(map[string]any{"type": kinds}, w.reference(form))
	}
	if kinds == nil {
		return map[string]any{}
	}
	return map[string]any{"type": kinds}
}

// mapProperties returns the properties of a map of Nodes: one for each variant of k.
func (w *schemaWriter) mapProperties(k *Key) map[string]any {
	out := map[string]any{}
	for _, v := range w.variants[k.Variant] {
		out[v.Name] = map[string]any{"type": "object"}
		if v.hasKeys() {
			out[v.Name] = w.reference(leafType(reflect.TypeOf(v.Prototype)))
		}
	}
	return out
}

func (w *schemaWriter) numberSchema(k *Key, t reflect.Type) map[string]any {
	number := map[string]any{"type": "number"}
	if isInteger(t) {
		number["type"] = "integer"
		if reflect.Zero(t).CanUint() {
			number["minimum"] = 0
			if t.Size() <= 2 {
				number["maximum"] = 1<<(8*t.Size()) - 1
			}
		}
	}
	if k.minBound.set {
		number["minimum"] = json.RawMessage(k.Min)
	}
	if k.maxBound.set {
		number["maximum"] = json.RawMessage(k.Max)
	}
	if k.OneOf != nil {
		number["enum"] = k.OneOf
	}
	alternatives := []map[string]any{number, variableRef()}
	if k.acceptsByteSizes {
		alternatives = append(alternatives, map[string]any{"$ref": "#/$defs/bytes"})
	}
	if k.AllowIntegerString {
		alternatives = append(alternatives, map[string]any{"type": "string", "pattern": "^[0-9]+$"})
	}
	if len(k.Enum) > 0 {
		alternatives = append(alternatives, map[string]any{"enum": k.enumNames()})
	}
	return anyOf(alternatives...)
}

func variableRef() map[string]any { return map[string]any{"$ref": "#/$defs/variable"} }

func anyOf(alternatives ...map[string]any) map[string]any {
	return map[string]any{"anyOf": alternatives}
}
