package resource

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The API declares rules for the values of fields, such as a minimum length. Envoy rejects a
// resource that violates one, even in a field that Weft ignores, and so does Weft. The types of the
// API contain the generated code that checks the rules.

// violation is the error of a rule. The generated code declares such a type for each message.
type violation interface {
	Field() string // name of the field or oneof in Go, with an index or key: "LbEndpoints[3]"
	Reason() string
	Cause() error // errors in the message that is the value of the field; nil: none
}

// checkRules records the violations of rules in m and in its nested messages. Messages in an Any are
// checked when they are unpacked.
func (p fieldReader) checkRules(m proto.Message) {
	if !p.report.capabilities.CheckRules {
		return
	}
	if checker, ok := m.(interface{ ValidateAll() error }); ok {
		if err := checker.ValidateAll(); err != nil {
			p.addViolations(err, m.ProtoReflect().Descriptor())
		}
	}
}

// addViolations records the violations in err, which concerns a message of type d.
func (p fieldReader) addViolations(err error, d protoreflect.MessageDescriptor) {
	if list, ok := err.(interface{ AllErrors() []error }); ok {
		for _, e := range list.AllErrors() {
			p.addViolations(e, d)
		}
		return
	}
	v, ok := err.(violation)
	if !ok {
		p.addViolation(err.Error())
		return
	}
	name, element, _ := strings.Cut(v.Field(), "[")
	field := fieldOfGoName(d, name)
	at := p
	if field != nil {
		at = p.field(string(field.Name()))
		if element != "" {
			at.path += "[" + element
		}
	}
	if v.Cause() != nil && field != nil && messageOf(field) != nil {
		at.addViolations(v.Cause(), messageOf(field))
		return
	}
	if oneof := oneofOfGoName(d, name); field == nil && oneof != nil {
		at.addViolation("expected " + alternatives(memberNames(oneof)))
		return
	}
	at.addViolation(ruleReason(v.Reason()))
}

// addViolation records the violation of a rule of the field.
func (p fieldReader) addViolation(reason string) {
	r := p.report
	if len(r.violations) < maxReasons {
		r.violations = append(r.violations, Rejection{p.path, reason})
	}
}

// resolveViolations rejects the resource because of the violations, except those in an unsupported
// field, and those of a field that is already rejected, contains a rejected field, or is named by
// the rejection of its message.
func (r *report) resolveViolations() {
	if len(r.violations) == 0 {
		return
	}
	rejected, unsupportedPaths := map[string]bool{}, map[string]bool{}
	for _, reason := range r.reasons {
		for path := reason.Path; path != ""; path = parentPath(path) {
			rejected[path] = true
		}
		unsupportedPaths[reason.Path] = strings.Contains(reason.Reason, "not supported")
	}
	isNamed := func(path string) bool {
		parent := parentPath(path)
		name := strings.TrimPrefix(path[len(parent):], ".")
		return slices.ContainsFunc(r.reasons, func(reason Rejection) bool { return reason.Path == parent && strings.Contains(reason.Reason, name) })
	}
	isInUnsupported := func(path string) bool {
		for ; path != ""; path = parentPath(path) {
			if unsupportedPaths[path] {
				return true
			}
		}
		return false
	}
	slices.SortStableFunc(r.violations, func(a, b Rejection) int { return cmp.Compare(a.Path, b.Path) })
	for _, v := range slices.Compact(r.violations) {
		if !rejected[v.Path] && !isInUnsupported(v.Path) && !isNamed(v.Path) {
			r.addReason(v)
		}
	}
	r.violations = nil
}

// parentPath returns the path without its last field, index or key; "" for a field of the resource.
func parentPath(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(0, strings.LastIndexByte(path, '['))]
	}
	return path[:max(0, strings.LastIndexByte(path, '.'))]
}

// fieldOfGoName returns the field of d with a name in Go, or nil.
func fieldOfGoName(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	for i := range d.Fields().Len() {
		if f := d.Fields().Get(i); isGoName(string(f.Name()), name) {
			return f
		}
	}
	return nil
}

// oneofOfGoName returns the oneof of d with a name in Go, or nil.
func oneofOfGoName(d protoreflect.MessageDescriptor, name string) protoreflect.OneofDescriptor {
	for i := range d.Oneofs().Len() {
		if o := d.Oneofs().Get(i); isGoName(string(o.Name()), name) {
			return o
		}
	}
	return nil
}

// isGoName reports whether the Go name of a field or oneof is goName: LbEndpoints for lb_endpoints.
func isGoName(name, goName string) bool {
	return strings.EqualFold(strings.ReplaceAll(name, "_", ""), strings.ReplaceAll(goName, "_", ""))
}

// messageOf returns the type of the messages that are values of f, or nil.
func messageOf(f protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if f.IsMap() {
		return f.MapValue().Message()
	}
	return f.Message()
}

// memberNames returns the names of the fields of a oneof, without deprecated ones.
func memberNames(o protoreflect.OneofDescriptor) (names []string) {
	for i := range o.Fields().Len() {
		if name := string(o.Fields().Get(i).Name()); !strings.HasPrefix(name, "hidden_envoy_deprecated_") {
			names = append(names, name)
		}
	}
	return names
}

// limitReason matches the reason of a rule for the length of a value.
var limitReason = regexp.MustCompile(`^value (length must be|must contain) (at least|at most|no more than|exactly) (\d+) (rune|character|byte|item|pair)(?:s|\(s\))$`)

// ruleReason returns the reason of the generated code as a clause about the field.
func ruleReason(reason string) string {
	if parts := limitReason.FindStringSubmatch(reason); parts != nil {
		bound, number, unit := parts[2], parts[3], parts[4]
		if bound == "at least" && number == "1" {
			return "is empty"
		}
		unit = map[string]string{"rune": "character", "item": "element", "pair": "element"}[unit]
		unit = cmp.Or(unit, parts[4])
		if number != "1" {
			unit += "s"
		}
		return "expected " + strings.Replace(bound, "no more than", "at most", 1) + " " + number + " " + unit
	}
	switch {
	case strings.HasPrefix(reason, "value is required"):
		return "is missing"
	case reason == "value must be one of the defined enum values":
		return "is not a defined value"
	case reason == "repeated value must contain unique items":
		return "has the same element twice"
	case strings.HasPrefix(reason, "value must be "):
		return "expected a value " + strings.TrimPrefix(reason, "value must be ")
	case strings.HasPrefix(reason, "value must not be "):
		return "expected a value not " + strings.TrimPrefix(reason, "value must not be ")
	}
	return strings.TrimPrefix(strings.TrimPrefix(reason, "repeated "), "value ")
}
