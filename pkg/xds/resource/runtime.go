package resource

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// RuntimeType is the type of resources that have a layer of the runtime.
const RuntimeType = "type.googleapis.com/envoy.service.runtime.v3.Runtime"

// Runtime has values of settings that other resources name by a key, beside the value
// that counts if there is none here. Immutable. A nil Runtime has none.
type Runtime struct {
	values map[string]setting
}

// Layer is a part of a Runtime. Immutable. The zero value is empty.
type Layer struct {
	values  map[string]setting
	ignored []string
}

// Ignored returns the fields that have no effect here and have one in Envoy wherever they
// are given: limits of connections.
func (l *Layer) Ignored() []string { return l.ignored }

// setting is one value. It may be taken for several kinds of one.
type setting struct {
	number, flag, share bool // it is one

	of      float64 // number
	on      bool    // flag
	percent float64 // share
}

// NewRuntime returns the runtime of layers, of which a later one counts for more.
func NewRuntime(layers ...*Layer) *Runtime {
	r := &Runtime{values: map[string]setting{}}
	for _, l := range layers {
		maps.Copy(r.values, l.values)
	}
	return r
}

// Differs reports whether one of keys has another value in r than in o.
func (r *Runtime) Differs(o *Runtime, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return r.value(k) != o.value(k) })
}

func (r *Runtime) value(key string) setting {
	if r == nil {
		return setting{}
	}
	return r.values[key]
}

// ReadRuntime reads a serialized Runtime of the API. The error is Refused.
func ReadRuntime(body []byte, k Kinds) (*Layer, error) {
	m := &runtimev3.Runtime{}
	r := &report{kinds: k}
	p := place{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return &Layer{}, err
	}
	return p.field("layer").layerOf(m.GetLayer())
}

// ReadLayer reads a layer: keys are the fields, or, of fields that have fields, all their
// names with dots between them. An error is Refused, and names the fields below name.
func ReadLayer(name string, s *structpb.Struct) (*Layer, error) {
	return place{report: &report{}}.field(name).layerOf(s)
}

// layerOf is ReadLayer of a layer that is at p.
func (p place) layerOf(s *structpb.Struct) (*Layer, error) {
	l := &Layer{values: map[string]setting{}}
	p.readLayer("", s, l)
	err := p.report.result()
	l.ignored = p.report.ignored
	return l, err
}

func (p place) readLayer(prefix string, s *structpb.Struct, l *Layer) {
	for _, name := range slices.Sorted(keys(s.GetFields())) {
		at, key := p.field(name), prefix+name
		switch v := s.GetFields()[name].GetKind().(type) {
		case *structpb.Value_NumberValue:
			l.values[key] = number(v.NumberValue)
		case *structpb.Value_BoolValue:
			l.values[key] = setting{flag: true, on: v.BoolValue}
		case *structpb.Value_StringValue:
			l.values[key] = written(v.StringValue)
		case *structpb.Value_StructValue:
			if fields := v.StructValue.GetFields(); fields["numerator"] != nil || fields["denominator"] != nil {
				l.values[key] = at.readShare(v.StructValue)
			} else {
				at.readLayer(key+".", v.StructValue, l)
			}
		default:
			at.refuse("expected a number, a boolean, a string, a fraction or an object")
		}
		if v := l.values[key]; v.number && v.of < math.MaxInt32 && limitsConnections(key) {
			at.ignore()
		}
	}
}

// limitsConnections reports whether Envoy closes connections beyond what a key says; from
// math.MaxInt32 on it says nothing.
func limitsConnections(key string) bool {
	return key == "overload.global_downstream_max_connections" ||
		strings.HasPrefix(key, "envoy.resource_limits.listener.") && strings.HasSuffix(key, ".connection_limit")
}

// number is a setting; a whole one is also a percentage.
func number(n float64) setting {
	s := setting{number: true, of: n}
	if n >= 0 && n == math.Trunc(n) {
		s.share, s.percent = true, min(n, 100)
	}
	return s
}

// written is a setting that is given as text: a number, or a boolean, or nothing of use.
func written(text string) setting {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return number(n)
	}
	switch strings.ToLower(text) {
	case "true":
		return setting{flag: true, on: true}
	case "false":
		return setting{flag: true}
	}
	return setting{}
}

// readShare reads a FractionalPercent.
func (p place) readShare(s *structpb.Struct) setting {
	f := &typev3.FractionalPercent{}
	n := 0.0
	if v := s.GetFields()["numerator"]; v != nil {
		_, isNumber := v.GetKind().(*structpb.Value_NumberValue)
		if n = v.GetNumberValue(); !isNumber || n != math.Trunc(n) || n < 0 || n > math.MaxUint32 {
			p.field("numerator").refuse("is %v, expected a whole number", v.AsInterface())
			return setting{}
		}
	}
	f.Numerator = uint32(n)
	if d := s.GetFields()["denominator"]; d != nil {
		value, known := typev3.FractionalPercent_DenominatorType_value[d.GetStringValue()]
		if _, isNumber := d.GetKind().(*structpb.Value_NumberValue); isNumber {
			value, known = int32(d.GetNumberValue()), true //nolint:gosec // fraction refuses others
		}
		if !known {
			p.field("denominator").refuse("%q is not a valid denominator: expected HUNDRED, TEN_THOUSAND or MILLION", d.GetStringValue())
			return setting{}
		}
		f.Denominator = typev3.FractionalPercent_DenominatorType(value)
	}
	return setting{share: true, percent: p.fraction(f)}
}

// setting returns the value of a key, which is noted; ok is false if there is none.
func (p place) setting(key string) (s setting, ok bool) {
	if key == "" {
		return setting{}, false
	}
	p.report.keys = append(p.report.keys, key)
	s = p.report.kinds.Runtime.value(key)
	return s, s != setting{}
}

// runtimeKeys are the keys of a resource, each once, in order.
func (r *report) runtimeKeys() []string {
	slices.Sort(r.keys)
	return slices.Compact(r.keys)
}

// share is a share that the runtime may have another value of, in percent.
func (p place) share(m *corev3.RuntimeFractionalPercent) float64 {
	percent := p.field("default_value").fraction(m.GetDefaultValue())
	if s, ok := p.setting(m.GetRuntimeKey()); ok && s.share {
		return s.percent
	}
	return percent
}

// wholeNumber is one that the runtime may have another value of.
func (p place) wholeNumber(key string, otherwise uint32) uint32 {
	if s, ok := p.setting(key); ok && s.number && s.of == math.Trunc(s.of) && s.of >= 0 && s.of <= math.MaxUint32 {
		return uint32(s.of)
	}
	return otherwise
}

// resolve has m and all messages in it say the values in force instead of keys of the
// runtime.
func (p place) resolve(m protoreflect.Message) {
	switch m := m.Interface().(type) {
	case *corev3.RuntimeFractionalPercent:
		m.DefaultValue = p.fractionOf(m.GetRuntimeKey(), m.GetDefaultValue())
		m.RuntimeKey = ""
		return
	case *corev3.RuntimeFeatureFlag:
		if s, ok := p.setting(m.GetRuntimeKey()); ok && s.flag {
			m.DefaultValue = wrapperspb.Bool(s.on)
		}
		m.RuntimeKey = ""
		return
	case *corev3.RuntimeDouble:
		if s, ok := p.setting(m.GetRuntimeKey()); ok && s.number {
			m.DefaultValue = s.of
		}
		m.RuntimeKey = ""
		return
	case *corev3.RuntimeUInt32:
		m.DefaultValue, m.RuntimeKey = p.wholeNumber(m.GetRuntimeKey(), m.GetDefaultValue()), ""
		return
	case *faultv3.HTTPFault:
		p.resolveFault(m)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, one protoreflect.Value) bool {
				p.resolve(one.Message())
				return true
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				p.resolve(v.List().Get(i).Message())
			}
		default:
			p.resolve(v.Message())
		}
		return true
	})
}

// fractionOf is a fraction that the runtime may have another value of.
func (p place) fractionOf(key string, otherwise *typev3.FractionalPercent) *typev3.FractionalPercent {
	s, ok := p.setting(key)
	if !ok || !s.share {
		return otherwise
	}
	return &typev3.FractionalPercent{Numerator: uint32(math.Round(s.percent * 10_000)), Denominator: typev3.FractionalPercent_MILLION}
}

// resolveFault is resolve of a fault, whose keys have names even where none are given.
func (p place) resolveFault(m *faultv3.HTTPFault) {
	named := func(key *string, usual string) string {
		name := *key
		*key = ""
		if name == "" {
			return usual
		}
		return name
	}
	share, time := named(&m.DelayPercentRuntime, "fault.http.delay.fixed_delay_percent"), named(&m.DelayDurationRuntime, "fault.http.delay.fixed_duration_ms")
	if d := m.GetDelay(); d != nil {
		d.Percentage = p.fractionOf(share, d.GetPercentage())
		p.resolveDelay(time, d.GetFixedDelay())
	}
	share, status := named(&m.AbortPercentRuntime, "fault.http.abort.abort_percent"), named(&m.AbortHttpStatusRuntime, "fault.http.abort.http_status")
	if a := m.GetAbort(); a != nil {
		a.Percentage = p.fractionOf(share, a.GetPercentage())
		if fixed, ok := a.GetErrorType().(*faultv3.FaultAbort_HttpStatus); ok {
			if n := p.wholeNumber(status, fixed.HttpStatus); n >= 200 && n < 600 {
				fixed.HttpStatus = n
			}
		}
	}
}

// resolveDelay has d, if there is one, be as many milliseconds as a key of the runtime says.
func (p place) resolveDelay(key string, d *durationpb.Duration) {
	if d == nil {
		return
	}
	if n := p.wholeNumber(key, 0); n > 0 {
		d.Seconds, d.Nanos = int64(n/1000), int32(n%1000)*1e6
	}
}
