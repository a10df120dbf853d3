package configjson

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type matchJSON struct {
	Node      document.Node       `key:"."`
	Prefix    *string             `key:"prefix" doc:"Prefix of the path. At most one of prefix, path and regex." example:"\"/shop/\""`
	Path      *string             `key:"path" doc:"Exact path, without the query." example:"\"/shop\""`
	Regex     *string             `key:"regex" doc:"Regular expression (RE2) that matches any part of the path, without the query. Use ^ and $ to match all of it." example:"\"^/v[0-9]+/\""`
	Headers   []headerMatchJSON   `key:"headers" doc:"Headers of the request; method, host and path refer to the request itself. Each value of a repeated header is compared separately."`
	Variables []variableMatchJSON `key:"variables" doc:"Variables of the request."`
	DSL       []document.Node     `key:"dsl_expressions" doc:"Expressions over the request." unsupported:"dsl_expressions" example:"[{\"expression\": \"true\"}]"`
}

type headerMatchJSON struct {
	Node  document.Node `key:"."`
	Name  string        `key:"name" doc:"Name of the header, case-insensitive." required:"true" example:"\"service\""`
	Value string        `key:"value" doc:"Value that the header must have." example:"\"v2\""`
	Regex bool          `key:"regex" doc:"Treat value as a regular expression (RE2) that matches any part of the header value. The value \".*\" is always treated as one." example:"true"`
}

type variableMatchJSON struct {
	Node  document.Node `key:"."`
	Name  string        `key:"name" doc:"Name of the variable." required:"true" example:"\"x-mosn-method\""`
	Value *string       `key:"value" doc:"Value that the variable must have. Exactly one of value and regex." example:"\"GET\""`
	Regex *string       `key:"regex" doc:"Regular expression (RE2) that matches any part of the value, instead of value." example:"\"^(GET|HEAD)$\""`
	Model string        `key:"model" doc:"How the condition combines with the next one: \"or\" ends a group of conditions. The list matches if all conditions of one group match." enum:"and|or" default:"and" example:"\"or\""`
}

// readMatch converts the condition of a route.
func (r *routeReader) readMatch(j *matchJSON, m *config.RouteMatch) {
	paths := 0
	for _, path := range []struct {
		kind config.PathKind
		text *string
	}{{config.PathPrefix, j.Prefix}, {config.PathExact, j.Path}, {config.PathRegex, j.Regex}} {
		if path.text != nil {
			paths++
			m.PathKind, m.Path = path.kind, *path.text
		}
	}
	if paths > 1 {
		r.report.Errorf(j.Node, "prefix, path and regex are mutually exclusive")
	}
	if m.PathKind == config.PathRegex {
		r.checkRegex(j.Node, "regex", m.Path)
	}
	for i := range j.Headers {
		h := &j.Headers[i]
		regex := h.Regex || h.Value == ".*"
		if regex {
			r.checkRegex(h.Node, "value", h.Value)
		}
		m.Headers = append(m.Headers, config.HeaderMatch{Name: h.Name, Value: h.Value, Regex: regex})
	}
	for i := range j.Variables {
		v := &j.Variables[i]
		out := config.VariableMatch{Name: v.Name, Or: v.Model == "or"}
		switch {
		case v.Value != nil && v.Regex != nil, v.Value == nil && v.Regex == nil:
			r.report.Errorf(v.Node, "expected exactly one of \"value\" and \"regex\"")
		case v.Value != nil:
			out.Value = *v.Value
		default:
			out.Value, out.Regex = *v.Regex, true
			r.checkRegex(v.Node, "regex", out.Value)
		}
		r.checkVariable(v.Node, "name", v.Name)
		m.Variables = append(m.Variables, out)
	}
}
