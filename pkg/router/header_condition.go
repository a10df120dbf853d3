package router

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// HeaderCondition is a compiled condition on a header of a request, as routes evaluate it. It is
// immutable.
type HeaderCondition struct{ matcher headerMatcher }

// CompileHeaderCondition compiles m.
func CompileHeaderCondition(m *config.HeaderMatch) (*HeaderCondition, error) {
	matcher, err := make(expressions).compileHeader(m)
	if err != nil {
		return nil, err
	}
	return &HeaderCondition{matcher}, nil
}

// Matches reports whether the request of x meets the condition.
func (c *HeaderCondition) Matches(x *protocol.Exchange) bool { return c.matcher.matches(x) }

// CompileValue compiles a condition on a value, with the bounds of routes for expressions.
func CompileValue(m *config.ValueMatch) (headermatch.Matcher, error) {
	return make(expressions).compileValue(m)
}
