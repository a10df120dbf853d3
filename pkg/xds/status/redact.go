package status

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// redacted replaces secrets.
const redacted = "[redacted]"

// sensitiveOption is the option that marks fields with secrets in Envoy's API.
const sensitiveOption protoreflect.FullName = "udpa.annotations.sensitive"

// redactedResourceJSON returns a serialized resource as JSON without its secrets.
func redactedResourceJSON(url string, body []byte) json.RawMessage {
	a := &anypb.Any{TypeUrl: url, Value: body}
	redact(a.ProtoReflect())
	return toJSON(a)
}

// redactedJSON returns m as JSON without its secrets. It modifies m.
func redactedJSON(m proto.Message) json.RawMessage {
	redact(m.ProtoReflect())
	return toJSON(m)
}

func toJSON(m proto.Message) json.RawMessage {
	text, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: emptyTypeResolver{protoregistry.GlobalTypes}}.Marshal(m)
	if err != nil {
		return json.RawMessage("null") // cannot happen for a message that was decoded
	}
	return text
}

// emptyTypeResolver resolves every message type. A type that is not linked in resolves to an empty
// message.
type emptyTypeResolver struct{ *protoregistry.Types }

// FindMessageByURL implements protoregistry.MessageTypeResolver.
func (r emptyTypeResolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := r.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return (*emptypb.Empty)(nil).ProtoReflect().Type(), nil
}

// redact replaces the secrets in m and in the Any messages inside m. It clears unknown fields, and
// an Any of an unknown type, because they may contain secrets.
func redact(m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			a.Value = nil
			return
		}
		redact(inner.ProtoReflect())
		if body, err := proto.Marshal(inner); err == nil {
			a.Value = body
		}
		return
	}
	m.SetUnknown(nil)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if isSensitive(f) {
			redactField(m, f, v)
		} else {
			eachMessage(f, v, redact)
		}
		return true
	})
}

func isSensitive(f protoreflect.FieldDescriptor) (sensitive bool) {
	f.Options().ProtoReflect().Range(func(o protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		sensitive = o.FullName() == sensitiveOption && v.Bool()
		return !sensitive
	})
	return sensitive
}

// redactField replaces the strings and bytes in a field and in the messages inside it. It empties
// Any messages.
func redactField(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	kind := f.Kind()
	if f.IsMap() {
		kind = f.MapValue().Kind()
	}
	replacement := protoreflect.ValueOfString(redacted)
	switch kind {
	case protoreflect.BytesKind:
		replacement = protoreflect.ValueOfBytes([]byte(redacted))
	case protoreflect.StringKind:
	default:
		eachMessage(f, v, func(inner protoreflect.Message) {
			if a, ok := inner.Interface().(*anypb.Any); ok {
				a.Value = nil
				return
			}
			inner.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
				redactField(inner, f, v)
				return true
			})
		})
		return
	}
	switch {
	case f.IsList():
		for i := range v.List().Len() {
			v.List().Set(i, replacement)
		}
	case f.IsMap():
		values := v.Map()
		values.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
			values.Set(key, replacement)
			return true
		})
	default:
		m.Set(f, replacement)
	}
}

// eachMessage calls visit with each message in a field.
func eachMessage(f protoreflect.FieldDescriptor, v protoreflect.Value, visit func(protoreflect.Message)) {
	switch {
	case f.IsMap():
		if f.MapValue().Message() != nil {
			v.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
				visit(value.Message())
				return true
			})
		}
	case f.Message() == nil:
	case f.IsList():
		for i := range v.List().Len() {
			visit(v.List().Get(i).Message())
		}
	default:
		visit(v.Message())
	}
}
