// Package resource converts resources of Envoy's v3 API to Weft configuration, and reports which
// fields it rejects and ignores. It does no I/O: it returns the names of the resources that a
// resource refers to, such as endpoints, and leaves the lookup to the caller.
package resource

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// These are the type URLs of the resources that the package reads, in addition to ExtensionType and
// RuntimeType.
const (
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	// DubboRouteType is the type of Dubbo routes.
	DubboRouteType = "type.googleapis.com/envoy.extensions.filters.network.dubbo_proxy.v3.MultipleRouteConfiguration"
	RouteType      = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	SecretType     = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// Rejection is one reason why a resource is rejected.
type Rejection struct {
	Path   string // path of the field in the resource; "" means the resource itself
	Reason string // one clause
}

// String returns the reason, after the path of its field.
func (r Rejection) String() string {
	if r.Path == "" {
		return r.Reason
	}
	return r.Path + ": " + r.Reason
}

// RejectedError lists the reasons why a resource is rejected: all of them, or the first maxReasons
// and the number of the others.
type RejectedError []Rejection

// Error returns the reasons, each with the path of its field, separated by semicolons.
func (r RejectedError) Error() string {
	texts := make([]string, len(r))
	for i := range r {
		texts[i] = r[i].String()
	}
	return strings.Join(texts, "; ")
}

// report collects the findings in one resource.
type report struct {
	capabilities   Capabilities
	reasons        RejectedError
	ignored        []string
	usedKeys       []string // runtime keys
	unknown        []unknownField
	unknownFinder  unknownFinder
	violations     []Rejection // of the rules of the API
	omittedReasons int         // number of reasons beyond maxReasons
}

// rejection returns the error that rejects the resource, or nil if the resource is accepted. It
// first rejects or ignores the unknown fields, and rejects violations of rules: see resolveUnknown
// and resolveViolations.
func (r *report) rejection() error {
	r.resolveUnknown(0)
	r.resolveViolations()
	if len(r.reasons) == 0 {
		return nil
	}
	if r.omittedReasons > 0 {
		r.reasons = append(r.reasons, Rejection{Reason: fmt.Sprintf("and %d more", r.omittedReasons)})
		r.omittedReasons = 0
	}
	return r.reasons
}

// fieldReader reads one field of a resource and reports findings under its path. By convention, the
// receiver p is the reader of a message, and a variable called at is the reader of one of its
// fields.
type fieldReader struct {
	report *report
	path   string // "filter_chains[0].filters"; "" means the resource itself
}

func (p fieldReader) field(name string) fieldReader {
	if p.path != "" {
		name = p.path + "." + name
	}
	return fieldReader{p.report, name}
}

func (p fieldReader) index(i int) fieldReader {
	return fieldReader{p.report, p.path + "[" + strconv.Itoa(i) + "]"}
}

func (p fieldReader) key(k string) fieldReader { return fieldReader{p.report, p.path + "[" + k + "]"} }

// reject rejects the resource because of the field.
func (p fieldReader) reject(format string, args ...any) {
	p.report.addReason(Rejection{p.path, fmt.Sprintf(format, args...)})
}

// maxReasons limits the reasons that a report stores, to bound its memory.
const maxReasons = 1000

// addReason adds a reason, or only counts it if there are already maxReasons.
func (r *report) addReason(reason Rejection) {
	if len(r.reasons) >= maxReasons {
		r.omittedReasons++
		return
	}
	r.reasons = append(r.reasons, reason)
}

// rejectOneof rejects m because no supported member of the oneof is set. expected lists the
// supported members. rejectOneof adds no reason if checkFields or resolveUnknown rejects the
// member.
func (p fieldReader) rejectOneof(m proto.Message, oneof protoreflect.Name, expected ...string) {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName(oneof))
	switch {
	case f == nil && len(r.GetUnknown()) > 0 && p.report.capabilities.UnknownFields == config.RejectUnknownFields: // resolveUnknown rejects the unknown member
	case f == nil:
		p.reject("expected %s", alternatives(expected))
	case p.field(string(f.Name())).isRejectedUnsupported():
	default:
		p.field(string(f.Name())).reject("is not supported, expected %s", alternatives(expected))
	}
}

// alternatives joins names: "a, b or c".
func alternatives(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// isRejectedUnsupported reports whether one of the last reasons is from rejectUnsupported for this
// field.
func (p fieldReader) isRejectedUnsupported() bool {
	const maxRecent = 32
	reasons := p.report.reasons
	return slices.Contains(reasons[max(0, len(reasons)-maxRecent):], Rejection{p.path, unsupported})
}

// unsupported is the reason for a field that Weft does not support.
const unsupported = "is not supported"

// rejectUnsupported rejects a field that Weft does not support.
func (p fieldReader) rejectUnsupported() { p.reject(unsupported) }

// ignore reports that the field has no effect.
func (p fieldReader) ignore() { p.report.ignored = append(p.report.ignored, p.path) }

// checkFields checks the fields of m that are set and not in supportedFields. It rejects those in
// rejectedFields and ignores the others. rejectedFields are the fields without which Weft would,
// for example, allow more requests or select other hosts.
func (p fieldReader) checkFields(m proto.Message, supportedFields, rejectedFields []string) {
	var unsupportedNames []string
	ignored := len(p.report.ignored)
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case slices.Contains(supportedFields, name):
		case slices.Contains(rejectedFields, name):
			unsupportedNames = append(unsupportedNames, name)
		default:
			p.field(name).ignore()
		}
		return true
	})
	slices.Sort(p.report.ignored[ignored:]) // Range has no defined order
	slices.Sort(unsupportedNames)
	for _, name := range unsupportedNames {
		p.field(name).rejectUnsupported()
	}
}

// maxMessageDepth limits how deep messages are nested, and so the recursion of matchers. It is the
// default of the protobuf decoders for C++ and Java.
const maxMessageDepth = 100

// unmarshalOptions returns the options for decoding serialized messages.
func unmarshalOptions() proto.UnmarshalOptions {
	return proto.UnmarshalOptions{RecursionLimit: maxMessageDepth}
}

// inspect records the unknown fields of a decoded message, and the rules that it violates, under
// the path of p.
func (p fieldReader) inspect(m proto.Message) {
	p.findUnknown(m.ProtoReflect())
	p.checkRules(m)
}

// unmarshal decodes body into m and inspects it.
func (p fieldReader) unmarshal(body []byte, m proto.Message) error {
	if err := unmarshalOptions().Unmarshal(body, m); err != nil {
		return RejectedError{{"", malformedReason(err)}}
	}
	p.inspect(m)
	return nil
}

// malformedReason returns why a message cannot be decoded. protobuf exports no error for messages
// that are nested too deep, so malformedReason looks at the text.
func malformedReason(err error) string {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "proto:"), "\u00a0", " ")
	if strings.Contains(text, "recursion depth") {
		return fmt.Sprintf("messages are nested more than %d levels deep", maxMessageDepth)
	}
	return "malformed message: " + strings.TrimSpace(text)
}

// unpack decodes a into m and reports whether it succeeded. Otherwise it rejects the field.
func (p fieldReader) unpack(a *anypb.Any, m proto.Message) bool {
	if a == nil {
		p.reject("is missing, expected a %s", m.ProtoReflect().Descriptor().FullName())
		return false
	}
	if !isType(a, m) {
		p.reject("is a %s, expected a %s", a.GetTypeUrl(), m.ProtoReflect().Descriptor().FullName())
		return false
	}
	if err := unmarshalOptions().Unmarshal(a.GetValue(), m); err != nil {
		p.reject("%s", malformedReason(err))
		return false
	}
	p.inspect(m)
	return true
}

// prefixError adds the path of p to each reason of a RejectedError.
func (p fieldReader) prefixError(err error) error {
	var reasons RejectedError
	if !errors.As(err, &reasons) {
		return err
	}
	out := make(RejectedError, len(reasons))
	for i, reason := range reasons {
		out[i] = Rejection{p.path, reason.Reason}
		if reason.Path != "" {
			out[i].Path = p.field(reason.Path).path
		}
	}
	return out
}

// unpackAny decodes a message of any known type and reports whether it succeeded. Otherwise it
// rejects the field.
func (p fieldReader) unpackAny(a *anypb.Any) (m proto.Message, ok bool) {
	m, err := anypb.UnmarshalNew(a, unmarshalOptions())
	if err != nil {
		p.reject("%s", malformedReason(err))
		return nil, false
	}
	p.inspect(m)
	return m, true
}

// isType reports whether a holds a message of the type of m.
func isType(a *anypb.Any, m proto.Message) bool {
	return a != nil && a.MessageName() == m.ProtoReflect().Descriptor().FullName()
}

// readDuration returns d, at most maxDuration, or fallback if d is nil or rejected.
func (p fieldReader) readDuration(d *durationpb.Duration, fallback time.Duration) time.Duration {
	if d == nil {
		return fallback
	}
	if err := d.CheckValid(); err != nil {
		p.reject("%v", err)
		return fallback
	}
	if d.GetSeconds() < 0 || d.GetNanos() < 0 {
		p.reject("is negative")
		return fallback
	}
	return min(d.AsDuration(), maxDuration)
}

// maxDuration stands for "no limit", which control planes express by the largest duration. It is
// small enough that sums and small multiples of it do not overflow.
const maxDuration = 365 * 24 * time.Hour

// uint32Or returns the value of w, or fallback if w is nil.
func uint32Or(w *wrapperspb.UInt32Value, fallback int) int {
	if w == nil {
		return fallback
	}
	return int(w.GetValue())
}

// limitOr returns a limit of config.CircuitBreakers, or fallback if w is nil. The largest uint32
// means no limit and becomes 0; 0 becomes config.LimitNoneAllowed.
func limitOr(w *wrapperspb.UInt32Value, fallback int) int {
	switch {
	case w == nil:
		return fallback
	case w.GetValue() == 1<<32-1:
		return 0
	case w.GetValue() == 0:
		return config.LimitNoneAllowed
	}
	return uint32Or(w, fallback)
}

// boolOr returns the value of w, or fallback if w is nil.
func boolOr(w *wrapperspb.BoolValue, fallback bool) bool {
	if w == nil {
		return fallback
	}
	return w.GetValue()
}

// labels returns the strings, numbers and booleans of a metadata namespace as strings.
func labels(s *structpb.Struct) map[string]string {
	if len(s.GetFields()) == 0 {
		return nil
	}
	out := make(map[string]string, len(s.GetFields()))
	for k, v := range s.GetFields() {
		switch v := v.GetKind().(type) {
		case *structpb.Value_StringValue:
			out[k] = v.StringValue
		case *structpb.Value_NumberValue:
			out[k] = strconv.FormatFloat(v.NumberValue, 'f', -1, 64)
		case *structpb.Value_BoolValue:
			out[k] = strconv.FormatBool(v.BoolValue)
		}
	}
	return out
}
