package resource

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
)

// What the stars of a URI template stand for: a segment of a path, and any number of them.
const (
	oneSegment   = `[a-zA-Z0-9\-._~%!$&'()+,;=:@]+`
	manySegments = `[a-zA-Z0-9\-._~%!$&'()+,;=:@/]*`
)

// template reads a policy that matches paths by a URI template, and returns an expression
// for all of the path: "/shop/*", "/shop/{id}/**", "/{file=docs/*}.html".
func (p place) template(m *corev3.TypedExtensionConfig) string {
	t := &templatev3.UriTemplateMatchConfig{}
	if !holds(m.GetTypedConfig(), t) {
		p.refuse("%s is not supported", m.GetTypedConfig().GetTypeUrl())
		return ""
	}
	p = p.field("typed_config")
	if !p.open(m.GetTypedConfig(), t) {
		return ""
	}
	p, text := p.field("path_template"), t.GetPathTemplate()
	if !strings.HasPrefix(text, "/") {
		p.refuse("%q does not begin with a slash", text)
		return ""
	}
	var b strings.Builder
	for rest := text; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			open = len(rest)
		}
		b.WriteString(p.pattern(rest[:open]))
		if rest = rest[open:]; rest == "" {
			break
		}
		variable, after, closed := strings.Cut(rest[1:], "}")
		name, pattern, given := strings.Cut(variable, "=")
		if !closed || name == "" || given && pattern == "" {
			p.refuse("%q has a malformed variable: expected {name} or {name=pattern}", text)
			return ""
		}
		if !given {
			pattern = "*"
		}
		b.WriteString(p.pattern(pattern))
		rest = after
	}
	expression := b.String()
	if _, after, found := strings.Cut(expression, manySegments); found && strings.Contains(after, "[") {
		p.refuse("%q: only literal text may follow **", text)
	}
	return `\A(?:` + expression + `)\z`
}

// pattern is an expression for text with stars, without braces.
func (p place) pattern(text string) string {
	if strings.ContainsAny(text, "{}") || strings.Contains(text, "***") {
		p.refuse("%q is not a valid part of a path template", text)
		return ""
	}
	return strings.NewReplacer(`\*\*`, manySegments, `\*`, oneSegment).Replace(regexp.QuoteMeta(text))
}
