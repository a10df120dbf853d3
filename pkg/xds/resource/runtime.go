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

// RuntimeType is the type URL of resources that hold a runtime layer.
const RuntimeType = "type.googleapis.com/envoy.service.runtime.v3.Runtime"

// Runtime holds values that override the defaults of settings with a runtime key. Immutable. A nil
// Runtime is empty.
type Runtime struct {
	values map[string]setting
}

// Layer is a part of a Runtime. Immutable. The zero value is empty.
type Layer struct {
	values  map[string]setting
	texts   map[string]string // texts of the values as Envoy prints them
	ignored []string
}

// Ignored returns the fields that have no effect: connection limits, which Envoy applies and Weft
// does not support, and unknown fields.
func (l *Layer) Ignored() []string { return l.ignored }

// Texts returns the values by key, as Envoy's /runtime prints them. The caller must not change the
// map.
func (l *Layer) Texts() map[string]string { return l.texts }

// setting is the value of a key. It may have more than one type: see numberSetting.
type setting struct {
	isNumber, isBool, isPercent bool // types that the value has

	numberValue  float64
	boolValue    bool
	percentValue float64 // 0 to 100
}

// NewRuntime merges layers; a later layer takes precedence.
func NewRuntime(layers ...*Layer) *Runtime {
	r := &Runtime{values: map[string]setting{}}
	for _, l := range layers {
		maps.Copy(r.values, l.values)
	}
	return r
}

// Differs reports whether one of keys has different values in r and o.
func (r *Runtime) Differs(o *Runtime, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return r.value(k) != o.value(k) })
}

func (r *Runtime) value(key string) setting {
	if r == nil {
		return setting{}
	}
	return r.values[key]
}

// ReadRuntime parses a serialized Runtime resource. The error is a RejectedError.
func ReadRuntime(body []byte, caps Capabilities) (*Layer, error) {
	m := &runtimev3.Runtime{}
	r := &report{capabilities: caps}
	p := fieldReader{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return &Layer{}, err
	}
	return p.field("layer").parseLayer(m.GetLayer())
}

// ReadLayer parses a layer. The keys of nested objects are joined with dots. The error is a
// RejectedError whose paths begin with name.
func ReadLayer(name string, s *structpb.Struct) (*Layer, error) {
	return fieldReader{report: &report{}}.field(name).parseLayer(s)
}

// parseLayer is ReadLayer for a layer at the path of p.
func (p fieldReader) parseLayer(s *structpb.Struct) (*Layer, error) {
	l := &Layer{values: map[string]setting{}, texts: map[string]string{}}
	p.readLayer("", s, l)
	err := p.report.rejection()
	l.ignored = p.report.ignored
	return l, err
}

func (p fieldReader) readLayer(prefix string, s *structpb.Struct, l *Layer) {
	for _, name := range slices.Sorted(maps.Keys(s.GetFields())) {
		at, key := p.field(name), prefix+name
		switch v := s.GetFields()[name].GetKind().(type) {
		case *structpb.Value_NumberValue:
			l.values[key], l.texts[key] = numberSetting(v.NumberValue), runtimeNumberText(v.NumberValue)
		case *structpb.Value_BoolValue:
			l.values[key], l.texts[key] = setting{isBool: true, boolValue: v.BoolValue}, strconv.FormatBool(v.BoolValue)
		case *structpb.Value_StringValue:
			l.values[key], l.texts[key] = textSetting(v.StringValue), v.StringValue
		case *structpb.Value_StructValue:
			if fields := v.StructValue.GetFields(); fields["numerator"] != nil || fields["denominator"] != nil {
				l.values[key], l.texts[key] = at.readFraction(v.StructValue), runtimeFractionText(v.StructValue)
			} else {
				at.readLayer(key+".", v.StructValue, l)
			}
		default:
			at.reject("expected a number, a boolean, a string, a fraction or an object")
		}
		if v := l.values[key]; v.isNumber && v.numberValue < math.MaxInt32 && isConnectionLimit(key) {
			at.ignore()
		}
	}
}

// isConnectionLimit reports whether key is a connection limit in Envoy. A value of math.MaxInt32 or
// more means no limit.
func isConnectionLimit(key string) bool {
	return key == "overload.global_downstream_max_connections" ||
		strings.HasPrefix(key, "envoy.resource_limits.listener.") && strings.HasSuffix(key, ".connection_limit")
}

// numberSetting returns the setting of a number; a non-negative integer is also a percentage.
func numberSetting(n float64) setting {
	s := setting{isNumber: true, numberValue: n}
	if n >= 0 && n == math.Trunc(n) {
		s.isPercent, s.percentValue = true, min(n, 100)
	}
	return s
}

// textSetting returns the setting of a string: a number, a boolean, or else the zero value.
func textSetting(text string) setting {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return numberSetting(n)
	}
	switch strings.ToLower(text) {
	case "true":
		return setting{isBool: true, boolValue: true}
	case "false":
		return setting{isBool: true}
	}
	return setting{}
}

// readFraction reads a FractionalPercent from its JSON form.
func (p fieldReader) readFraction(s *structpb.Struct) setting {
	f := &typev3.FractionalPercent{}
	n := 0.0
	if v := s.GetFields()["numerator"]; v != nil {
		_, isNumber := v.GetKind().(*structpb.Value_NumberValue)
		if n = v.GetNumberValue(); !isNumber || n != math.Trunc(n) || n < 0 || n > math.MaxUint32 {
			p.field("numerator").reject("is %v, expected a whole number", v.AsInterface())
			return setting{}
		}
	}
	f.Numerator = uint32(n)
	if d := s.GetFields()["denominator"]; d != nil {
		value, ok := typev3.FractionalPercent_DenominatorType_value[d.GetStringValue()]
		if _, isNumber := d.GetKind().(*structpb.Value_NumberValue); isNumber {
			value, ok = int32(d.GetNumberValue()), true //nolint:gosec // readFractionPercent rejects other values
		}
		if !ok {
			p.field("denominator").reject("%q is not a valid denominator: expected HUNDRED, TEN_THOUSAND or MILLION", d.GetStringValue())
			return setting{}
		}
		f.Denominator = typev3.FractionalPercent_DenominatorType(value)
	}
	return setting{isPercent: true, percentValue: p.readFractionPercent(f)}
}

// runtimeSetting records key as used and returns its value. ok is false if key is "" or has no
// value.
func (p fieldReader) runtimeSetting(key string) (s setting, ok bool) {
	if key == "" {
		return setting{}, false
	}
	p.report.usedKeys = append(p.report.usedKeys, key)
	s = p.report.capabilities.Runtime.value(key)
	return s, s != setting{}
}

// runtimeKeys returns the used keys, sorted and without duplicates.
func (r *report) runtimeKeys() []string {
	slices.Sort(r.usedKeys)
	return slices.Compact(r.usedKeys)
}

// runtimeFractionPercent returns a percentage that the runtime may override.
func (p fieldReader) runtimeFractionPercent(m *corev3.RuntimeFractionalPercent) float64 {
	percent := p.field("default_value").readFractionPercent(m.GetDefaultValue())
	if s, ok := p.runtimeSetting(m.GetRuntimeKey()); ok && s.isPercent {
		return s.percentValue
	}
	return percent
}

// runtimeUint32 returns the value of key if it is a valid uint32, or else fallback.
func (p fieldReader) runtimeUint32(key string, fallback uint32) uint32 {
	if s, ok := p.runtimeSetting(key); ok && s.isNumber && s.numberValue == math.Trunc(s.numberValue) && s.numberValue >= 0 && s.numberValue <= math.MaxUint32 {
		return uint32(s.numberValue)
	}
	return fallback
}

// resolveRuntimeKeys replaces the runtime keys in m and its nested messages with their values.
func (p fieldReader) resolveRuntimeKeys(m protoreflect.Message) {
	switch m := m.Interface().(type) {
	case *corev3.RuntimeFractionalPercent:
		m.DefaultValue = p.runtimeFraction(m.GetRuntimeKey(), m.GetDefaultValue())
		m.RuntimeKey = ""
		return
	case *corev3.RuntimeFeatureFlag:
		if s, ok := p.runtimeSetting(m.GetRuntimeKey()); ok && s.isBool {
			m.DefaultValue = wrapperspb.Bool(s.boolValue)
		}
		m.RuntimeKey = ""
		return
	case *corev3.RuntimeDouble:
		if s, ok := p.runtimeSetting(m.GetRuntimeKey()); ok && s.isNumber {
			m.DefaultValue = s.numberValue
		}
		m.RuntimeKey = ""
		return
	case *corev3.RuntimeUInt32:
		m.DefaultValue, m.RuntimeKey = p.runtimeUint32(m.GetRuntimeKey(), m.GetDefaultValue()), ""
		return
	case *faultv3.HTTPFault:
		p.resolveFault(m)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
				p.resolveRuntimeKeys(value.Message())
				return true
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				p.resolveRuntimeKeys(v.List().Get(i).Message())
			}
		default:
			p.resolveRuntimeKeys(v.Message())
		}
		return true
	})
}

// runtimeFraction returns the value of key if it is a percentage, or else fallback.
func (p fieldReader) runtimeFraction(key string, fallback *typev3.FractionalPercent) *typev3.FractionalPercent {
	s, ok := p.runtimeSetting(key)
	if !ok || !s.isPercent {
		return fallback
	}
	return &typev3.FractionalPercent{Numerator: uint32(math.Round(s.percentValue * 10_000)), Denominator: typev3.FractionalPercent_MILLION}
}

// resolveFault is resolveRuntimeKeys for a fault, whose keys have default names.
func (p fieldReader) resolveFault(m *faultv3.HTTPFault) {
	takeKey := func(key *string, defaultKey string) string {
		name := *key
		*key = ""
		if name == "" {
			return defaultKey
		}
		return name
	}
	percentKey, delayKey := takeKey(&m.DelayPercentRuntime, "fault.http.delay.fixed_delay_percent"), takeKey(&m.DelayDurationRuntime, "fault.http.delay.fixed_duration_ms")
	if d := m.GetDelay(); d != nil {
		d.Percentage = p.runtimeFraction(percentKey, d.GetPercentage())
		p.resolveDelay(delayKey, d.GetFixedDelay())
	}
	percentKey, statusKey := takeKey(&m.AbortPercentRuntime, "fault.http.abort.abort_percent"), takeKey(&m.AbortHttpStatusRuntime, "fault.http.abort.http_status")
	if a := m.GetAbort(); a != nil {
		a.Percentage = p.runtimeFraction(percentKey, a.GetPercentage())
		if fixed, ok := a.GetErrorType().(*faultv3.FaultAbort_HttpStatus); ok {
			if n := p.runtimeUint32(statusKey, fixed.HttpStatus); n >= 200 && n < 600 {
				fixed.HttpStatus = n
			}
		}
	}
}

// resolveDelay sets d to the milliseconds that key specifies. It does nothing if d is nil or key
// has no value greater than 0.
func (p fieldReader) resolveDelay(key string, d *durationpb.Duration) {
	if d == nil {
		return
	}
	if n := p.runtimeUint32(key, 0); n > 0 {
		d.Seconds, d.Nanos = int64(n/1000), int32(n%1000)*1e6
	}
}
