package resource

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weft-proxy/weft/pkg/config"
)

// A control plane that is newer than this build may set a field that the build's version of the API
// does not have. The field may be a restriction, so Weft rejects the resource
// (config.RejectUnknownFields). With config.WarnUnknownFields Weft accepts the resource, unless the
// field is in a message for which mustRejectUnknown returns true. Weft does not report unknown
// fields inside an ignored field.

// unknownField is a field or an enum value that the API version of this build does not have.
type unknownField struct {
	path        string // path of the message that has the field, or of the field that has the enum value
	reason      string
	mustReject  bool // config.WarnUnknownFields does not apply
	isEnumValue bool // an enum value, not a field
}

// maxUnknownFields limits the unknown fields that are stored between two calls of resolveUnknown.
const maxUnknownFields = 20

// unknownMarker is in each entry of Ignored for an unknown field or enum value.
const unknownMarker = ": unknown "

// UnknownFields returns those of the ignored fields that are unknown fields or enum values.
func UnknownFields(ignored []string) (unknown []string) {
	for _, field := range ignored {
		if strings.Contains(field, unknownMarker) {
			unknown = append(unknown, field)
		}
	}
	return unknown
}

// resolveUnknown rejects or ignores the unknown fields that were found since the last call. It
// skips those inside a field in r.ignored[from:], and enum values that are already rejected.
func (r *report) resolveUnknown(from int) {
	if len(r.unknown) == 0 {
		return
	}
	ignored := slices.Clone(r.ignored[from:])
	for _, u := range r.unknown {
		switch {
		case slices.ContainsFunc(ignored, func(path string) bool { return isWithin(u.path, path) }):
		case u.isEnumValue && slices.ContainsFunc(r.reasons, func(other Rejection) bool { return other.Path == u.path }):
		case u.mustReject || r.capabilities.UnknownFields != config.WarnUnknownFields:
			r.addReason(Rejection{u.path, u.reason})
		default:
			r.ignored = append(r.ignored, u.path+": "+u.reason)
		}
	}
	r.unknown = nil
}

// isWithin reports whether path is field or is inside it.
func isWithin(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && field != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// mustRejectUnknown reports whether a message or enum type decides which connections or requests
// are allowed, or how they are processed: transport sockets, filters, conditions of routes and
// filter chains. The proxy filters are exceptions, because most of their fields are options, not
// restrictions.
func mustRejectUnknown(message protoreflect.FullName) bool {
	switch message {
	case "envoy.config.listener.v3.FilterChainMatch", "envoy.config.route.v3.RouteMatch",
		"envoy.config.route.v3.HeaderMatcher", "envoy.config.route.v3.QueryParameterMatcher":
		return true
	case "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy":
		return false
	}
	return slices.ContainsFunc([]string{
		"envoy.extensions.transport_sockets.", "envoy.extensions.filters.", "envoy.config.rbac.", "envoy.type.matcher.", "xds.type.matcher.",
	}, func(prefix string) bool { return strings.HasPrefix(string(message), prefix) })
}

// pathStep is one step from a message to a nested message.
type pathStep struct {
	name  protoreflect.Name
	index int    // index in a list; -1 if the field is not a list
	key   string // key in a map; "" if the field is not a map
}

// unknownFinder looks for unknown fields in a message and its nested messages. A report reuses its
// unknownFinder, so that messages without unknown fields need no allocation.
type unknownFinder struct {
	reader fieldReader
	steps  []pathStep // path from the message of reader to the current message
}

// findUnknown records every unknown field and enum value of m and of its nested messages. Messages
// in an Any are checked when they are unpacked.
func (p fieldReader) findUnknown(m protoreflect.Message) {
	f := &p.report.unknownFinder
	f.reader = p
	f.visitMessage(m, false)
}

// visitMessage checks m. strict means that mustRejectUnknown returns true for an enclosing message.
func (f *unknownFinder) visitMessage(m protoreflect.Message, strict bool) {
	d := m.Descriptor()
	if b := m.GetUnknown(); len(b) > 0 {
		f.addFields(b, d, strict || mustRejectUnknown(d.FullName()))
	}
	fields := d.Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		kind := field.Kind()
		if kind != protoreflect.MessageKind && kind != protoreflect.EnumKind || !m.Has(field) {
			continue
		}
		strict := strict || mustRejectUnknown(d.FullName())
		switch v := m.Get(field); {
		case field.IsList():
			for i := range v.List().Len() {
				f.visitValue(field, v.List().Get(i), pathStep{field.Name(), i, ""}, strict)
			}
		case field.IsMap():
			valueField := field.MapValue()
			if valueField.Kind() != protoreflect.MessageKind && valueField.Kind() != protoreflect.EnumKind {
				continue
			}
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				f.visitValue(valueField, v, pathStep{field.Name(), -1, k.String()}, strict)
				return true
			})
		default:
			f.visitValue(field, v, pathStep{field.Name(), -1, ""}, strict)
		}
	}
}

// visitValue checks v, a value of field. step leads from the current message to v.
func (f *unknownFinder) visitValue(field protoreflect.FieldDescriptor, v protoreflect.Value, step pathStep, strict bool) {
	f.steps = append(f.steps, step)
	switch enum := field.Enum(); {
	case field.Kind() == protoreflect.MessageKind:
		f.visitMessage(v.Message(), strict)
	case enum.Values().ByNumber(v.Enum()) == nil:
		reason := fmt.Sprintf("unknown value %d of %s: this build does not know it", v.Enum(), enum.FullName())
		f.reader.addUnknown(unknownField{f.currentPath(), reason, strict || mustRejectUnknown(enum.FullName()), true})
	}
	f.steps = f.steps[:len(f.steps)-1]
}

// currentPath returns the path of the message or enum field that the finder visits.
func (f *unknownFinder) currentPath() string {
	p := f.reader
	for _, s := range f.steps {
		p = p.field(string(s.name))
		switch {
		case s.index >= 0:
			p = p.index(s.index)
		case s.key != "":
			p = p.key(s.key)
		}
	}
	return p.path
}

// addFields records the fields of b, which are not valid fields of message d.
func (f *unknownFinder) addFields(b protoreflect.RawFields, d protoreflect.MessageDescriptor, strict bool) {
	seen := map[protowire.Number]bool{}
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 || len(seen) >= maxUnknownFields {
			return
		}
		b = b[n:]
		if seen[number] {
			continue
		}
		seen[number] = true
		reason := fmt.Sprintf("unknown field %d of %s: this build does not know it", number, d.FullName())
		if field := d.Fields().ByNumber(number); field != nil {
			reason = fmt.Sprintf("unknown encoding of field %d (%s) of %s: expected a value of type %v", number, field.Name(), d.FullName(), field.Kind())
		}
		f.reader.addUnknown(unknownField{f.currentPath(), reason, strict, false})
	}
}

// addUnknown records u. If there are already maxUnknownFields, it only adds mustReject of u to the
// last of them.
func (p fieldReader) addUnknown(u unknownField) {
	r := p.report
	if len(r.unknown) >= maxUnknownFields {
		last := &r.unknown[maxUnknownFields-1]
		last.mustReject = last.mustReject || u.mustReject
		return
	}
	r.unknown = append(r.unknown, u)
}
