package resource

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
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
	p, text := p.field("path_template"), t.GetPathTemplate()
	if !strings.HasPrefix(text, "/") {
		p.reject("%q does not begin with a slash", text)
		return ""
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
			return ""
		}
		if !hasPattern {
			pattern = "*"
		}
		b.WriteString(p.templateRegex(pattern))
		rest = after
	}
	expression := b.String()
	if _, after, found := strings.Cut(expression, segmentsRegex); found && strings.Contains(after, "[") {
		p.reject("%q: only literal text may follow **", text)
	}
	return `\A(?:` + expression + `)\z`
}

// templateRegex returns the regular expression for a part of a template without variables.
func (p fieldReader) templateRegex(text string) string {
	if strings.ContainsAny(text, "{}") || strings.Contains(text, "***") {
		p.reject("%q is not a valid part of a path template", text)
		return ""
	}
	return strings.NewReplacer(`\*\*`, segmentsRegex, `\*`, segmentRegex).Replace(regexp.QuoteMeta(text))
}
