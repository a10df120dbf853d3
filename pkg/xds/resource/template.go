package resource

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	rewritev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/rewrite/uri_template/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// These expressions stand for "*" (one path segment) and "**" (any number of segments) in a URI
// template.
const (
	segmentRegex  = `[a-zA-Z0-9\-._~%!$&'()+,;=:@]+`
	segmentsRegex = `[a-zA-Z0-9\-._~%!$&'()+,;=:@/]*`
)

// readURITemplate converts a URI template to a regular expression that matches the entire path.
// Examples of templates are "/shop/*", "/shop/{id}/**" and "/{file=docs/*}.html".
func (p fieldReader) readURITemplate(m *corev3.TypedExtensionConfig) string {
	t := &templatev3.UriTemplateMatchConfig{}
	if !isType(m.GetTypedConfig(), t) {
		p.reject("%s is not supported", m.GetTypedConfig().GetTypeUrl())
		return ""
	}
	p = p.field("typed_config")
	if !p.unpack(m.GetTypedConfig(), t) {
		return ""
	}
	p = p.field("path_template")
	expression, _ := p.templateExpression(t.GetPathTemplate())
	return expression
}

// templateExpression converts a URI template to a regular expression with one group for each variable
// of the template, whose names it returns.
func (p fieldReader) templateExpression(text string) (expression string, names []string) {
	if !strings.HasPrefix(text, "/") {
		p.reject("%q does not begin with a slash", text)
		return "", nil
	}
	var b strings.Builder
	for rest := text; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			open = len(rest)
		}
		b.WriteString(p.templateRegex(rest[:open]))
		if rest = rest[open:]; rest == "" {
			break
		}
		variable, after, closed := strings.Cut(rest[1:], "}")
		name, pattern, hasPattern := strings.Cut(variable, "=")
		if !closed || name == "" || hasPattern && pattern == "" {
			p.reject("%q has a malformed variable: expected {name} or {name=pattern}", text)
			return "", nil
		}
		if !hasPattern {
			pattern = "*"
		}
		names = append(names, name)
		b.WriteString("(" + p.templateRegex(pattern) + ")")
		rest = after
	}
	expression = b.String()
	if _, after, found := strings.Cut(expression, segmentsRegex); found && strings.Contains(after, "[") {
		p.reject("%q: only literal text may follow **", text)
	}
	if unique := newSet(names); len(unique) < len(names) {
		p.reject("%q names a variable twice", text)
	}
	return `\A(?:` + expression + `)\z`, names
}

// readTemplateRewrite reads a rewrite of the path with the variables of the URI template in match. m
// may be nil.
func (p fieldReader) readTemplateRewrite(match *routev3.RouteMatch, m *corev3.TypedExtensionConfig, out *config.Forward) {
	rewrite := &rewritev3.UriTemplateRewriteConfig{}
	switch {
	case m == nil:
		return
	case !isType(m.GetTypedConfig(), rewrite):
		p.reject("%s is not supported", m.GetTypedConfig().GetTypeUrl())
		return
	case out.PrefixRewrite != "" || out.RegexRewrite != nil:
		p.reject("only one of path_rewrite_policy, prefix_rewrite and regex_rewrite can be set")
		return
	}
	template := &templatev3.UriTemplateMatchConfig{}
	if packed := match.GetPathMatchPolicy().GetTypedConfig(); !isType(packed, template) || packed.UnmarshalTo(template) != nil {
		p.reject("requires a URI template in path_match_policy")
		return
	}
	if p = p.field("typed_config"); !p.unpack(m.GetTypedConfig(), rewrite) {
		return
	}
	pattern, names := fieldReader{report: &report{}}.templateExpression(template.GetPathTemplate()) // readMatch reports its problems
	if substitution, ok := p.field("path_template_rewrite").templateSubstitution(rewrite.GetPathTemplateRewrite(), names); ok {
		out.RegexRewrite = &config.RegexRewrite{Pattern: pattern, Substitution: substitution, KeepIfEmpty: true}
	}
}

// templateSubstitution converts a template such as "/{x}/b" to the substitution of a regular
// expression whose groups have these names.
func (p fieldReader) templateSubstitution(text string, names []string) (substitution string, ok bool) {
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "*$") {
		p.reject("%q is not valid: expected a path with variables such as {name}", text)
		return "", false
	}
	var b strings.Builder
	for rest := text; ; {
		literal, after, found := strings.Cut(rest, "{")
		name, end, closed := strings.Cut(after, "}")
		index := slices.Index(names, name)
		switch {
		case strings.Contains(literal, "}"), found && !closed:
			p.reject("%q has a malformed variable: expected {name}", text)
			return "", false
		case found && index < 0:
			p.reject("%q: the path template has no variable %q", text, name)
			return "", false
		}
		b.WriteString(strings.ReplaceAll(literal, `\`, `\\`))
		if !found {
			return b.String(), true
		}
		fmt.Fprintf(&b, "${%d}", index+1)
		rest = end
	}
}

// templateRegex returns the regular expression for a part of a template without variables.
func (p fieldReader) templateRegex(text string) string {
	if strings.ContainsAny(text, "{}") || strings.Contains(text, "***") {
		p.reject("%q is not a valid part of a path template", text)
		return ""
	}
	return strings.NewReplacer(`\*\*`, segmentsRegex, `\*`, segmentRegex).Replace(regexp.QuoteMeta(text))
}
