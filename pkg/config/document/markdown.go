package document

import (
	"fmt"
	"reflect"
	"strings"
)

// Section is one configuration struct and its path.
type Section struct {
	Path string // "servers[].listeners[]"; "" for the root
	Type reflect.Type
	Keys []Key
}

// Sections returns the struct of a prototype and all nested structs in document order. Each type
// occurs once, at its first occurrence. Variants are separate sections: "….filters[].config
// (proxy)".
func Sections(path string, prototype any, variants Variants) []Section {
	s := &sections{variants: variants, seen: map[reflect.Type]bool{}}
	s.add(path, leafType(reflect.TypeOf(prototype)))
	return s.list
}

type sections struct {
	variants Variants
	seen     map[reflect.Type]bool
	list     []Section
}

func (s *sections) add(path string, t reflect.Type) {
	if s.seen[t] {
		return
	}
	s.seen[t] = true
	keys := compile(t).keys
	s.list = append(s.list, Section{path, t, keys})
	for i := range keys {
		k := &keys[i]
		childPath := strings.TrimPrefix(path+"."+k.Name+brackets(k.Type), ".")
		switch base := leafType(k.Type); {
		case base == nodeType:
			if t := s.variants.objectForm(k); t != nil {
				s.add(childPath, t)
			}
			for _, v := range s.variants[k.Variant] {
				if v.hasKeys() {
					s.add(childPath+" ("+v.Name+")", leafType(reflect.TypeOf(v.Prototype)))
				}
			}
		case base.Kind() == reflect.Struct:
			s.add(childPath, base)
		}
	}
}

// brackets returns the path suffix from a field to its elements: "[]" for a list, ".*" for a map.
func brackets(t reflect.Type) string {
	if element, ok := elementOf(t); ok {
		return "[]" + brackets(element)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return brackets(t.Elem())
	case reflect.Map:
		return ".*" + brackets(t.Elem())
	}
	return ""
}

// Markdown returns a heading of the given level and a table for each section. The table has every
// key with its meaning, kind, unit, bounds, default and example.
func Markdown(level int, title string, prototype any, variants Variants) string {
	var b strings.Builder
	for _, section := range Sections("", prototype, variants) {
		name := title
		if section.Path != "" {
			name = "`" + section.Path + "`"
		}
		fmt.Fprintf(&b, "%s %s\n\n%s\n", strings.Repeat("#", level), name, section.Table(variants, nil))
	}
	return b.String()
}

// Table returns the Markdown table of the section's keys. If target is not nil, the objects in the
// table are links. target returns the link target of the section of a struct, or "" for no link.
// For a struct without keys, Table returns a sentence.
func (s *Section) Table(variants Variants, target func(reflect.Type) string) string {
	if len(s.Keys) == 0 {
		return "No keys: write `{}`.\n"
	}
	var b strings.Builder
	b.WriteString("| key | meaning | value | default | example |\n|---|---|---|---|---|\n")
	for i := range s.Keys {
		k := &s.Keys[i]
		value := markdownCell(describeValues(k))
		if target != nil {
			value = addLinks(k, value, variants, target)
		}
		b.WriteString(markdownRow(k, value))
	}
	return b.String()
}

// addLinks adds links to the sections of nested objects to value, which describes the values of k.
func addLinks(k *Key, value string, variants Variants, target func(reflect.Type) string) string {
	base := leafType(k.Type)
	if base != nodeType {
		link := target(base)
		prefix, isObject := strings.CutSuffix(value, "object")
		if base.Kind() != reflect.Struct || !isObject || link == "" {
			return value
		}
		return prefix + "[object](" + link + ")"
	}
	if t := variants.objectForm(k); t != nil {
		if link, i := target(t), strings.LastIndex(value, "object"); link != "" && i >= 0 {
			return value[:i] + "[object](" + link + ")" + value[i+len("object"):]
		}
		return value
	}
	var links []string
	for _, v := range variants[k.Variant] {
		if !v.hasKeys() {
			continue
		}
		if link := target(leafType(reflect.TypeOf(v.Prototype))); link != "" {
			links = append(links, "[`"+v.Name+"`]("+link+")")
		}
	}
	if len(links) == 0 {
		return value
	}
	return value + ": " + strings.Join(links, ", ")
}

// markdownRow returns the table row of k, whose values are described by value.
func markdownRow(k *Key, value string) string {
	name := "`" + strings.Join(append([]string{k.Name}, k.Aliases...), "`, `") + "`"
	meaning := k.Doc
	if k.Since != "" {
		meaning += " (since " + k.Since + ")"
	}
	switch {
	case k.IgnoredReason != "":
		meaning += " **Accepted, no effect" + k.ignoredSuffix() + ".**"
	case k.Unsupported != "":
		meaning += " *Not supported yet.*"
	case k.Required:
		meaning += " **Required.**"
	}
	if k.Secret {
		meaning += " Never printed."
	}
	return "| " + name + " | " + markdownCell(meaning) + " | " + value + " | " + markdownCode(defaultOf(k)) + " | " + markdownCode(k.Example) + " |\n"
}

// defaultOf returns the value of an absent key as it would be written; "" if there is none.
func defaultOf(k *Key) string {
	switch t := k.Type; {
	case k.HasDefault:
		return k.Default
	case k.Required || k.IgnoredReason != "" || k.Unsupported != "":
		return ""
	case !k.allowsInteger(0): // an absent number or duration is not 0
		return ""
	case t == durationType:
		return "0s"
	case t.Kind() == reflect.Bool:
		return "false"
	case isInteger(t) || t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32:
		return "0"
	case t.Kind() == reflect.String && len(k.Enum) == 0:
		return `""`
	}
	return ""
}

// describeValues describes the values that a key accepts, for a table.
func describeValues(k *Key) string {
	base, list := deref(k.Type), ""
	element, isList := elementOf(base)
	switch {
	case isList:
		base, list = deref(element), "list: "
	case base.Kind() == reflect.Map:
		base, list = deref(base.Elem()), "object, each member: "
	}
	text := list + strings.TrimPrefix(strings.TrimPrefix(k.expected(base), "a "), "an ")
	if k.Unit != "" && !k.acceptsByteSizes {
		text += "; unit: " + k.Unit
	}
	if k.AllowIntegerString {
		text += "; also accepted as a string"
	}
	return text
}

func markdownCell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func markdownCode(text string) string {
	if text == "" {
		return ""
	}
	return "`" + markdownCell(text) + "`"
}
