package resource

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
)

// TestMessageValueIsProtoJSON verifies that messageValue and protojson agree about the messages of
// the repository's example and test files.
func TestMessageValueIsProtoJSON(t *testing.T) {
	for _, m := range testMessages(t) {
		checkMessageValue(t, m)
	}
}

// TestSpecialValues verifies the messages whose types have a JSON form of their own, and messages
// that have no JSON form.
func TestSpecialValues(t *testing.T) {
	number := func(f float64) *structpb.Value { return structpb.NewNumberValue(f) }
	var messages []proto.Message
	for _, seconds := range []int64{0, 1, -1, 315_576_000_000, 315_576_000_001, -315_576_000_001, 253_402_300_800} {
		for _, nanos := range []int32{0, 1, 1000, 1_000_000, 10_000_000, 120_000_000, 999_999_999, 1_000_000_000, -1, -20_000_000, -1_000_000_001} {
			messages = append(messages, &durationpb.Duration{Seconds: seconds, Nanos: nanos}, &timestamppb.Timestamp{Seconds: seconds, Nanos: nanos})
		}
	}
	for _, f := range []float64{0, 1, -1.5, 1e-6, 9.99e-7, 1e-9, 1e20, 1e21, 123456789.125, 5e-324} {
		messages = append(messages, wrapperspb.Double(f), wrapperspb.Float(float32(f)), number(f))
	}
	infinite := wrapperspb.Double(1e308)
	infinite.Value *= 10
	messages = append(
		messages, infinite, wrapperspb.Float(float32(infinite.GetValue())), wrapperspb.Double(-infinite.GetValue()), wrapperspb.Double(infinite.GetValue()-infinite.GetValue()),
		number(infinite.GetValue()), number(infinite.GetValue()-infinite.GetValue()), &structpb.Value{}, structpb.NewNullValue(),
		wrapperspb.Bool(false), wrapperspb.Bool(true), wrapperspb.Int32(-5), wrapperspb.UInt32(1<<32-1), wrapperspb.Int64(-1<<63), wrapperspb.UInt64(1<<64-1),
		wrapperspb.String("\x00\"\\<\u2028\n${A}$${B}"), wrapperspb.Bytes([]byte{0xfb, 0xff, 0}), wrapperspb.Bytes(nil),
		&fieldmaskpb.FieldMask{Paths: []string{"a_b", "c"}}, &fieldmaskpb.FieldMask{Paths: []string{"aB"}}, &fieldmaskpb.FieldMask{},
		&structpb.Struct{Fields: map[string]*structpb.Value{"b": structpb.NewBoolValue(true), "a": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{number(1), structpb.NewNullValue()}})}},
		&structpb.Struct{}, &structpb.ListValue{}, &anypb.Any{}, &anypb.Any{Value: []byte{1}}, &anypb.Any{TypeUrl: "a.b/c.D"},
		&anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.Duration", Value: []byte{1}},
	)
	for _, m := range messages {
		checkMessageValue(t, m)
		inner := packed(t, m)
		checkMessageValue(t, inner)
		checkMessageValue(t, packed(t, inner))
	}
}

// TestVariablesInSettings verifies that names and texts of settings may contain "${".
func TestVariablesInSettings(t *testing.T) {
	got, err := readFilter(t, `{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"${A}": {"issuer": "$${B}", "remote_jwks": {"http_uri": {"uri": "https://a/jwks", "cluster": "c", "timeout": "5s"}}}},
		"rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "${A}"}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if issuer := got.(*jwtauthn.Config).Providers["${A}"].Issuer; issuer != "$${B}" {
		t.Errorf("issuer = %q, want $${B}", issuer)
	}
}

// checkMessageValue fails if messageValue and protojson differ for m.
func checkMessageValue(t *testing.T, m proto.Message) {
	t.Helper()
	v, err := messageValue(m.ProtoReflect())
	text, wantErr := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if errorText(err) != errorText(wantErr) {
		t.Errorf("%T: the error is %v, want %v", m, err, wantErr)
	}
	if err != nil || wantErr != nil {
		return
	}
	built, parsed := &document.Report{}, &document.Report{}
	got := document.Build("", v, built)
	want := document.Parse("", []byte(strings.ReplaceAll(string(text), "${", "$${")), document.Options{Format: document.JSON}, parsed)
	if g, w := diagnosticTexts(built), diagnosticTexts(parsed); g != w {
		t.Errorf("%s: Build reports %q, want %q", text, g, w)
	}
	checkSameNode(t, got, want)
}

func diagnosticTexts(r *document.Report) string {
	var texts []string
	for _, d := range r.Diagnostics() {
		texts = append(texts, d.Path+": "+d.Text())
	}
	return strings.Join(texts, "\n")
}

// checkSameNode fails if two trees differ in more than their positions.
func checkSameNode(t *testing.T, got, want document.Node) {
	t.Helper()
	if got.Kind() != want.Kind() || got.Text() != want.Text() || got.Len() != want.Len() {
		t.Errorf("%s is %v %q with %d members, want %v %q with %d", want.Path(), got.Kind(), got.Text(), got.Len(), want.Kind(), want.Text(), want.Len())
		return
	}
	var members []document.Node
	for member := range got.All() {
		members = append(members, member)
	}
	i := 0
	for member := range want.All() {
		if want.Kind() == document.Object && strings.ReplaceAll(members[i].Key(), "${", "$${") != member.Key() {
			t.Errorf("key of %s = %q, want %q", member.Path(), members[i].Key(), member.Key())
		}
		checkSameNode(t, members[i], member)
		i++
	}
}

// testMessages returns resources that a real istiod sent, and the messages of known types in
// example and test files of the repository.
func testMessages(t testing.TB) (out []proto.Message) {
	t.Helper()
	for name, m := range map[string]proto.Message{
		"01-CDS.pb": &clusterv3.Cluster{}, "02-LDS.pb": &listenerv3.Listener{}, "03-EDS.pb": &endpointv3.ClusterLoadAssignment{}, "04-RDS.pb": &routev3.RouteConfiguration{},
	} {
		for _, body := range capturedResources(t, name) {
			resource := m.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(body, resource); err != nil {
				t.Fatal(err)
			}
			out = append(out, resource)
			out = append(out, packedMessages(resource.ProtoReflect())...)
		}
	}
	files, err := filepath.Glob("../../../cmd/weft/testdata/envoy/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	files = append(files, "../../../configs/envoy_bootstrap.yaml", "../../../test/xds/sample/resources.json")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		previous := len(out)
		out = append(out, typedMessages(t, document.Parse(file, text, document.Options{}, &document.Report{}).Value())...)
		if len(out) == previous {
			t.Errorf("%s has no message with a type", file)
		}
	}
	return out
}

// typedMessages returns the messages in a JSON value that have a member "@type" with a known type.
func typedMessages(t testing.TB, v any) (out []proto.Message) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			out = append(out, typedMessages(t, element)...)
		}
	case map[string]any:
		for _, member := range v {
			out = append(out, typedMessages(t, member)...)
		}
		url, _ := v["@type"].(string)
		if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
			return out
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		packed := &anypb.Any{}
		if err := protojson.Unmarshal(text, packed); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		m, err := packed.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// packedMessages returns the messages of known types in the Any messages of m.
func packedMessages(m protoreflect.Message) (out []proto.Message) {
	if packed, ok := m.Interface().(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			return nil
		}
		return append(packedMessages(inner.ProtoReflect()), inner)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				out = append(out, packedMessages(v.Message())...)
				return true
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				out = append(out, packedMessages(v.List().Get(i).Message())...)
			}
		default:
			out = append(out, packedMessages(v.Message())...)
		}
		return true
	})
	return out
}

// FuzzMessageValue verifies that messageValue and protojson agree about the settings of filters.
func FuzzMessageValue(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x02\x05\x01\x02\x03\x01\x04\x05\x09\x02\x01\x03\x02\x05\x07\x01\x00\x08"))
	f.Fuzz(func(t *testing.T, choices []byte) {
		checkMessageValue(t, randomSettings(choices))
	})
}

// randomSettings returns settings of a filter. The bytes of choices select the type and the fields.
func randomSettings(choices []byte) proto.Message {
	r := &randomMessage{choices: choices}
	types := []proto.Message{&networkrbacv3.RBAC{}}
	for _, t := range filterMappings {
		types = append(types, t.messages...)
	}
	m := types[r.choose(len(types))].ProtoReflect().New()
	r.fill(m)
	return m.Interface()
}

// randomMessage fills messages from choices until no choices remain.
type randomMessage struct{ choices []byte }

// choose returns a number below n.
func (r *randomMessage) choose(n int) int {
	if len(r.choices) == 0 {
		return 0
	}
	c := int(r.choices[0])
	r.choices = r.choices[1:]
	return c % n
}

// fill sets some fields of m.
func (r *randomMessage) fill(m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		r.fillAny(a)
		return
	}
	fields := m.Descriptor().Fields()
	for count := r.choose(6); count > 0 && fields.Len() > 0 && len(r.choices) > 0; count-- {
		f := fields.Get(r.choose(fields.Len()))
		switch {
		case f.IsMap():
			key := r.scalar(f.MapKey()).MapKey()
			if f.MapValue().Message() != nil {
				r.fill(m.Mutable(f).Map().Mutable(key).Message())
			} else {
				m.Mutable(f).Map().Set(key, r.scalar(f.MapValue()))
			}
		case f.IsList() && f.Message() != nil:
			r.fill(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(r.scalar(f))
		case f.Message() != nil:
			r.fill(m.Mutable(f).Message())
		default:
			m.Set(f, r.scalar(f))
		}
	}
}

func (r *randomMessage) fillAny(a *anypb.Any) {
	types := []proto.Message{
		&wrapperspb.StringValue{}, &durationpb.Duration{}, &structpb.Struct{}, &structpb.Value{}, &anypb.Any{}, &timestamppb.Timestamp{}, &networkrbacv3.RBAC{}, &routev3.Route{},
	}
	switch c := r.choose(len(types) + 4); {
	case c < len(types):
		m := types[c].ProtoReflect().New()
		r.fill(m)
		_ = a.MarshalFrom(m.Interface()) // an error leaves a empty
	case c == len(types):
		a.TypeUrl = "a.b/unknown.Type"
	case c == len(types)+1:
		a.Value = []byte{1}
	case c == len(types)+2:
		a.TypeUrl, a.Value = "type.googleapis.com/google.protobuf.StringValue", []byte{0xff}
	}
}

// scalar returns a value of the scalar type of f.
func (r *randomMessage) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	number := []int64{0, 1, -1, 5, 80, 200, 503, 1000, 1_500_000_000, 1 << 31, -1 << 31, 1<<63 - 1}[r.choose(12)]
	texts := []string{"", "a", "b", "x-a", "%REQ(x-b)%", "%NONE%", "100%%", "127.0.0.1:80", "http://a", "\x00\"<\n", "\u00e9\u2028", "envoy.lb"}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(number != 0)
	case protoreflect.EnumKind:
		if number < int64(f.Enum().Values().Len()) && number >= 0 {
			return protoreflect.ValueOfEnum(f.Enum().Values().Get(int(number)).Number())
		}
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(number)) //nolint:gosec // any number
	case protoreflect.StringKind:
		if !f.ContainingMessage().IsMapEntry() {
			texts = append(texts, "${A}", "$${A}", "${")
		}
		return protoreflect.ValueOfString(texts[r.choose(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(texts[r.choose(len(texts))]))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(number) / 7)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(number) / 7)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(number)) //nolint:gosec // any number
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(number)) //nolint:gosec // any number
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(protowire.EncodeZigZag(number))
	}
	return protoreflect.ValueOfInt64(number)
}

// TestProblemOfWholeSettings verifies that a problem of the settings as a whole is reported under
// the path of the settings.
func TestProblemOfWholeSettings(t *testing.T) {
	_, err := readFilter(t, `{"@type": "health_check.v3.HealthCheck", "pass_through_mode": true}`)
	if got := errorText(err); !strings.Contains(got, "typed_config: passthrough applies to HTTP health checks") {
		t.Errorf("error %q, want one about typed_config as a whole", got)
	}
}
