// Package resource turns resources of Envoy's v3 API into the model, and says what it
// refuses in them and what it leaves out of account. It is pure: what a resource refers
// to by name (endpoints, routes, secrets) is told to the caller, not looked for.
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

// The types of resources that the package reads, as type URLs.
const (
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	// DubboRouteType is of the routes of Dubbo.
	DubboRouteType = "type.googleapis.com/envoy.extensions.filters.network.dubbo_proxy.v3.MultipleRouteConfiguration"
	RouteType      = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	SecretType     = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// RejectedError is why a resource cannot be accepted: everything that is wrong with it.
type RejectedError []string

// Error names field and reason of each.
func (r RejectedError) Error() string { return strings.Join(r, "; ") }

// report gathers what is found in one resource.
type report struct {
	capabilities   Capabilities
	reasons        RejectedError
	ignored        []string
	usedKeys       []string // of the runtime
	unknown        []unknownField
	unknownFinder  unknownFinder
	omittedReasons int // reasons that are not in wrong
}

// rejection is the error that the resource is refused with, nil if it is not. It completes
// ignored.
func (r *report) rejection() error {
	r.resolveUnknown(0)
	if len(r.reasons) == 0 {
		return nil
	}
	if r.omittedReasons > 0 {
		r.reasons = append(r.reasons, fmt.Sprintf("and %d more", r.omittedReasons))
		r.omittedReasons = 0
	}
	return r.reasons
}

// fieldReader is a field of the resource that is read.
type fieldReader struct {
	report *report
	path   string // "filter_chains[0].filters"; "": the resource itself
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

// reject says that the resource cannot be accepted because of the field.
func (p fieldReader) reject(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.path != "" {
		text = p.path + ": " + text
	}
	p.report.addReason(text)
}

// maxReasons is how many reasons are named for which one resource is refused: of a resource
// that is wrong everywhere the others would tell nothing new, and take memory without bound.
const maxReasons = 1000

// addReason adds a reason.
func (r *report) addReason(reason string) {
	if len(r.reasons) >= maxReasons {
		r.omittedReasons++
		return
	}
	r.reasons = append(r.reasons, reason)
}

// rejectOneof refuses a message of which a member of a oneof is set that is not read, or none at
// all; expected are those that are read.
func (p fieldReader) rejectOneof(m proto.Message, oneof protoreflect.Name, expected ...string) {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName(oneof))
	switch {
	case f == nil && len(r.GetUnknown()) > 0 && p.report.capabilities.UnknownFields == config.RejectUnknownFields: // which is refused
	case f == nil:
		p.reject("expected %s", alternatives(expected))
	case p.field(string(f.Name())).isRejectedUnsupported():
	default:
		p.field(string(f.Name())).reject("is not supported, expected %s", alternatives(expected))
	}
}

// alternatives are names as one reads them: "a, b or c".
func alternatives(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// isRejectedUnsupported reports whether unbuilt was just called of the field.
func (p fieldReader) isRejectedUnsupported() bool {
	const few = 32 // only looks at one message
	all := p.report.reasons
	return slices.Contains(all[max(0, len(all)-few):], p.path+": "+unsupported)
}

// unsupported says of a field that it is not read.
const unsupported = "is not supported"

// rejectUnsupported refuses a field that asks for what is not built.
func (p fieldReader) rejectUnsupported() { p.reject(unsupported) }

// ignore says that the field has no effect.
func (p fieldReader) ignore() { p.report.ignored = append(p.report.ignored, p.path) }

// checkFields looks for fields of m that are set and not among read: those of critical make
// the resource refused, for without them it would let more pass than it says, or send
// it elsewhere; the others are ignored.
func (p fieldReader) checkFields(m proto.Message, read, critical []string) {
	var unbuilt []string
	ignored := len(p.report.ignored)
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case slices.Contains(read, name):
		case slices.Contains(critical, name):
			unbuilt = append(unbuilt, name)
		default:
			p.field(name).ignore()
		}
		return true
	})
	slices.Sort(p.report.ignored[ignored:]) // Range has no order
	slices.Sort(unbuilt)
	for _, name := range unbuilt {
		p.field(name).rejectUnsupported()
	}
}

// maxMessageDepth is how deep messages may be in messages: what protobuf's decoders for C++ and Java
// take if nothing else is said. A matcher that is nested deeper could exhaust the stack of what
// evaluates it.
const maxMessageDepth = 100

// unmarshalOptions is how serialized messages are read.
func unmarshalOptions() proto.UnmarshalOptions {
	return proto.UnmarshalOptions{RecursionLimit: maxMessageDepth}
}

// unmarshal reads body, which is at p, into m. Fields that m does not have are noted.
func (p fieldReader) unmarshal(body []byte, m proto.Message) error {
	if err := unmarshalOptions().Unmarshal(body, m); err != nil {
		return RejectedError{malformedReason(err)}
	}
	p.findUnknown(m.ProtoReflect())
	return nil
}

// malformedReason says why a message cannot be decoded.
func malformedReason(err error) string {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "proto:"), "\u00a0", " ")
	if strings.Contains(text, "recursion depth") {
		return fmt.Sprintf("messages are nested more than %d levels deep", maxMessageDepth)
	}
	return "malformed message: " + strings.TrimSpace(text)
}

// unpack reads the message that a is to hold into m, and reports whether it did.
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
	p.findUnknown(m.ProtoReflect())
	return true
}

// prefixError has the reasons of a Refused be those of p.
func (p fieldReader) prefixError(err error) error {
	var reasons RejectedError
	if !errors.As(err, &reasons) {
		return err
	}
	out := make(RejectedError, len(reasons))
	for i, reason := range reasons {
		out[i] = p.path + ": " + reason
	}
	return out
}

// unpackAny reads the message that a holds, whichever it is, and reports whether it could.
func (p fieldReader) unpackAny(a *anypb.Any) (m proto.Message, ok bool) {
	m, err := anypb.UnmarshalNew(a, unmarshalOptions())
	if err != nil {
		p.reject("%s", malformedReason(err))
		return nil, false
	}
	p.findUnknown(m.ProtoReflect())
	return m, true
}

// isType reports whether a is a message of the given full name.
func isType(a *anypb.Any, m proto.Message) bool {
	return a != nil && a.MessageName() == m.ProtoReflect().Descriptor().FullName()
}

// duration is what a field says, or unset.
func (p fieldReader) duration(d *durationpb.Duration, unset time.Duration) time.Duration {
	if d == nil {
		return unset
	}
	if err := d.CheckValid(); err != nil {
		p.reject("%v", err)
		return unset
	}
	if d.GetSeconds() < 0 || d.GetNanos() < 0 {
		p.reject("is negative")
		return unset
	}
	return min(d.AsDuration(), maxDuration)
}

// maxDuration is as good as for ever, which control planes say by the largest number that
// there is: times that are added to it, or multiplied, stay what they are.
const maxDuration = 365 * 24 * time.Hour

// uint32Or is the number that a field says, or unset.
func uint32Or(w *wrapperspb.UInt32Value, unset int) int {
	if w == nil {
		return unset
	}
	return int(w.GetValue())
}

// limitOr is count of one of config.CircuitBreakers: the largest number, by which control planes
// say that there is none, is 0, and 0 is config.LimitZero.
func limitOr(w *wrapperspb.UInt32Value, unset int) int {
	switch {
	case w == nil:
		return unset
	case w.GetValue() == 1<<32-1:
		return 0
	case w.GetValue() == 0:
		return config.LimitZero
	}
	return uint32Or(w, unset)
}

// boolOr is what a field says, or unset.
func boolOr(w *wrapperspb.BoolValue, unset bool) bool {
	if w == nil {
		return unset
	}
	return w.GetValue()
}

// labels are the texts among the fields of a metadata namespace; numbers and booleans
// are written as JSON has them.
func labels(s *structpb.Struct) map[string]string {
	if len(s.GetFields()) == 0 {
		return nil
	}
	all := make(map[string]string, len(s.GetFields()))
	for k, v := range s.GetFields() {
		switch v := v.GetKind().(type) {
		case *structpb.Value_StringValue:
			all[k] = v.StringValue
		case *structpb.Value_NumberValue:
			all[k] = strconv.FormatFloat(v.NumberValue, 'f', -1, 64)
		case *structpb.Value_BoolValue:
			all[k] = strconv.FormatBool(v.BoolValue)
		}
	}
	return all
}
