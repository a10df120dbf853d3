package resource

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weft-proxy/weft/pkg/config"
)

// A control plane that is newer than this build may set a field that the build's version of
// the API does not have. Such a field may be a restriction, so a resource that has one is
// refused, wherever in the resource it is: config.RejectUnknownFields. With
// config.WarnUnknownFields the resource is accepted, unless the field is in a message that
// decides who may connect or which requests pass (decides). Fields inside a field that has no
// effect anyway are not looked at.

// unknownField is a field, or a value of an enum, that the API of this build does not have.
type unknownField struct {
	path    string // of the message, or of the field that has the value
	reason  string
	decides bool // it is in a message that is never accepted with such a field
	value   bool // of an enum
}

// mostUnknown is how many unknown fields of one resource are named.
const mostUnknown = 20

// unknownMark is in each entry of Ignored that is an unknown field.
const unknownMark = ": unknown "

// CountUnknown returns how many of the fields that have no effect are unknown to this build.
func CountUnknown(ignored []string) (n int) {
	for _, field := range ignored {
		if strings.Contains(field, unknownMark) {
			n++
		}
	}
	return n
}

// resolveUnknown refuses or ignores what was found since it was called last. Entries of
// ignored from the given one on are of the same part of the resource.
func (r *report) resolveUnknown(from int) {
	if len(r.unknown) == 0 {
		return
	}
	ineffective := slices.Clone(r.ignored[from:])
	for _, u := range r.unknown {
		switch {
		case slices.ContainsFunc(ineffective, func(path string) bool { return within(u.path, path) }):
		case u.value && slices.ContainsFunc(r.wrong, func(text string) bool { return strings.HasPrefix(text, u.path+": ") }):
		case u.decides || r.kinds.Unknown != config.WarnUnknownFields:
			text := u.reason
			if u.path != "" {
				text = u.path + ": " + text
			}
			r.note(text)
		default:
			r.ignored = append(r.ignored, u.path+": "+u.reason)
		}
	}
	r.unknown = nil
}

// within reports whether a path is that of a field, or of one in it.
func within(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && field != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// decides reports whether a message decides who may connect, or which requests pass, or what
// becomes of them there: transport sockets, filters, conditions of routes and filter chains.
func decides(message protoreflect.FullName) bool {
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

// step is a field on the way from a message to one in it.
type step struct {
	name  protoreflect.Name
	index int    // in a list; -1: the field is none
	key   string // in a map; "": the field is none
}

// finder looks for unknown fields in a message that is at a place, and in the messages in it. A
// report has one, so that nothing is allocated for a message without any.
type finder struct {
	at    place
	steps []step // from the message to the one that is looked at
}

// findUnknown notes every unknown field and unknown enum value of m, which is at p, and of the
// messages in it. Messages that are packed in an Any are looked at when they are unpacked.
func (p place) findUnknown(m protoreflect.Message) {
	f := &p.report.finder
	f.at = p
	f.message(m, false)
}

// message looks at m. strict: a message around it decides who may pass.
func (f *finder) message(m protoreflect.Message, strict bool) {
	d := m.Descriptor()
	if b := m.GetUnknown(); len(b) > 0 {
		f.fields(b, d, strict || decides(d.FullName()))
	}
	fields := d.Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		kind := field.Kind()
		if kind != protoreflect.MessageKind && kind != protoreflect.EnumKind || !m.Has(field) {
			continue
		}
		strict := strict || decides(d.FullName())
		switch v := m.Get(field); {
		case field.IsList():
			for i := range v.List().Len() {
				f.value(field, v.List().Get(i), step{field.Name(), i, ""}, strict)
			}
		case field.IsMap():
			of := field.MapValue()
			if of.Kind() != protoreflect.MessageKind && of.Kind() != protoreflect.EnumKind {
				continue
			}
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				f.value(of, v, step{field.Name(), -1, k.String()}, strict)
				return true
			})
		default:
			f.value(field, v, step{field.Name(), -1, ""}, strict)
		}
	}
}

// value looks at a value of a field, which is a step away.
func (f *finder) value(field protoreflect.FieldDescriptor, v protoreflect.Value, s step, strict bool) {
	f.steps = append(f.steps, s)
	switch values := field.Enum(); {
	case field.Kind() == protoreflect.MessageKind:
		f.message(v.Message(), strict)
	case values.Values().ByNumber(v.Enum()) == nil:
		reason := fmt.Sprintf("unknown value %d of %s: this build does not know it", v.Enum(), values.FullName())
		f.at.noteUnknown(unknownField{f.path(), reason, strict || decides(values.FullName()), true})
	}
	f.steps = f.steps[:len(f.steps)-1]
}

// path is that of the message that is looked at.
func (f *finder) path() string {
	p := f.at
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

// fields notes the fields of b, which message d does not have.
func (f *finder) fields(b protoreflect.RawFields, d protoreflect.MessageDescriptor, strict bool) {
	seen := map[protowire.Number]bool{}
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 || len(seen) >= mostUnknown {
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
		f.at.noteUnknown(unknownField{f.path(), reason, strict, false})
	}
}

// noteUnknown notes one; of very many only the first are named.
func (p place) noteUnknown(u unknownField) {
	r := p.report
	if len(r.unknown) >= mostUnknown {
		last := &r.unknown[mostUnknown-1]
		last.decides = last.decides || u.decides
		return
	}
	r.unknown = append(r.unknown, u)
}
