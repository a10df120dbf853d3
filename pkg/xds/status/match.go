package status

import (
	"fmt"
	"regexp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// matchesAnyNode reports whether one of the matchers matches the node, or matchers is empty. An
// error names the part of a matcher that is not valid or not supported.
func matchesAnyNode(matchers []*matcherv3.NodeMatcher, node *corev3.Node) (bool, error) {
	if len(matchers) == 0 {
		return true, nil
	}
	for i, m := range matchers {
		ok, err := matchesNode(m, node)
		if err != nil {
			return false, fmt.Errorf("node_matchers[%d].%w", i, err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

func matchesNode(m *matcherv3.NodeMatcher, node *corev3.Node) (bool, error) {
	if m.GetNodeId() != nil {
		if ok, err := matchesString(m.GetNodeId(), node.GetId()); !ok || err != nil {
			return false, wrapField("node_id", err)
		}
	}
	for i, metadata := range m.GetNodeMetadatas() {
		value := structpb.NewStructValue(node.GetMetadata())
		for _, segment := range metadata.GetPath() {
			value = value.GetStructValue().GetFields()[segment.GetKey()]
		}
		if ok, err := matchesValue(metadata.GetValue(), value); !ok || err != nil {
			return false, wrapField(fmt.Sprintf("node_metadatas[%d].value", i), err)
		}
	}
	return true, nil
}

// wrapField adds the field to err; nil stays nil.
func wrapField(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// matchesString reports whether m matches text.
func matchesString(m *matcherv3.StringMatcher, text string) (bool, error) {
	condition := config.ValueMatch{IgnoreCase: m.GetIgnoreCase()}
	var expression *regexp.Regexp
	var err error
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		condition.Kind, condition.Text = config.ValueExact, p.Exact
	case *matcherv3.StringMatcher_Prefix:
		condition.Kind, condition.Text = config.ValuePrefix, p.Prefix
	case *matcherv3.StringMatcher_Suffix:
		condition.Kind, condition.Text = config.ValueSuffix, p.Suffix
	case *matcherv3.StringMatcher_Contains:
		condition.Kind, condition.Text = config.ValueContains, p.Contains
	case *matcherv3.StringMatcher_SafeRegex:
		condition.Kind = config.ValueRegex
		if expression, err = regexp.Compile(headermatch.Anchored(p.SafeRegex.GetRegex())); err != nil {
			return false, err
		}
	default:
		return false, fmt.Errorf("%s: the pattern is not supported", m.ProtoReflect().Descriptor().FullName())
	}
	matcher := headermatch.New(condition, expression)
	return matcher.MatchValue(text), nil
}

// matchesValue reports whether m matches v; nil means that there is no value.
func matchesValue(m *matcherv3.ValueMatcher, v *structpb.Value) (bool, error) {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_PresentMatch:
		return (v != nil) == p.PresentMatch, nil
	case *matcherv3.ValueMatcher_NullMatch_:
		_, null := v.GetKind().(*structpb.Value_NullValue)
		return null, nil
	case *matcherv3.ValueMatcher_BoolMatch:
		b, ok := v.GetKind().(*structpb.Value_BoolValue)
		return ok && b.BoolValue == p.BoolMatch, nil
	case *matcherv3.ValueMatcher_StringMatch:
		s, ok := v.GetKind().(*structpb.Value_StringValue)
		if !ok {
			return false, nil
		}
		return matchesString(p.StringMatch, s.StringValue)
	case *matcherv3.ValueMatcher_DoubleMatch:
		n, ok := v.GetKind().(*structpb.Value_NumberValue)
		return ok && matchesDouble(p.DoubleMatch, n.NumberValue), nil
	case *matcherv3.ValueMatcher_ListMatch:
		return matchesAny(v.GetListValue().GetValues(), func(element *structpb.Value) (bool, error) {
			return matchesValue(p.ListMatch.GetOneOf(), element)
		})
	case *matcherv3.ValueMatcher_OrMatch:
		return matchesAny(p.OrMatch.GetValueMatchers(), func(alternative *matcherv3.ValueMatcher) (bool, error) {
			return matchesValue(alternative, v)
		})
	default:
		return false, fmt.Errorf("%s: the pattern is not supported", m.ProtoReflect().Descriptor().FullName())
	}
}

func matchesDouble(m *matcherv3.DoubleMatcher, n float64) bool {
	if r := m.GetRange(); r != nil {
		return r.GetStart() <= n && n < r.GetEnd()
	}
	return m.GetExact() == n
}

// matchesAny reports whether matches returns true for any of elements.
func matchesAny[T any](elements []T, matches func(T) (bool, error)) (bool, error) {
	for _, element := range elements {
		if ok, err := matches(element); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
