package configjson

import (
	"fmt"
	"regexp"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// checkRegex compiles an expression to see whether it is one; nil if not.
func (r *reader) checkRegex(n document.Node, key, text string) *regexp.Regexp {
	expression, err := regexp.Compile(text)
	if err != nil {
		r.report.Errorf(n.Get(key).Or(n), "%v", fmt.Errorf("not an expression (RE2): %w", err))
		return nil
	}
	return expression
}

// checkTemplate compiles a text with %variables% to see whether it is one.
func (r *reader) checkTemplate(at document.Node, text string) {
	if _, err := variable.Compile(text); err != nil {
		r.report.Errorf(at, "%v", err)
	}
}

// checkVariable checks that a variable exists.
func (r *reader) checkVariable(n document.Node, key, name string) {
	if _, ok := variable.Lookup(name); ok || name == "" {
		return // "" was reported
	}
	var known []string
	for name := range variable.Names() {
		known = append(known, name)
	}
	r.report.Unknown(n.Get(key).Or(n), "variable", name, known)
}
