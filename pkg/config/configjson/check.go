package configjson

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
	"github.com/weft-proxy/weft/pkg/router"
)

// compile checks a table as those who run it will. What this package's own
// checks left is found by compiling route after route, once it is known that
// there is something.
func (r *reader) compile(t *table) {
	_, err := router.Compile(t.model)
	if err == nil {
		return
	}
	before := r.report.Errors()
	at := 0
	for _, v := range t.model.VirtualHosts {
		for _, route := range v.Routes {
			alone := config.RouteTable{VirtualHosts: []*config.VirtualHost{
				{Domains: []string{"*"}, Routes: []*config.Route{route}},
			}}
			if _, err := router.Compile(&alone); err != nil {
				where := fmt.Sprintf("virtual host %q: route %q: ", "", route.Name)
				r.report.Errorf(t.routes[at], "%s", oneLine(strings.TrimPrefix(err.Error(), where)))
			}
			at++
		}
	}
	if r.report.Errors() == before {
		r.report.Errorf(t.node, "%s", oneLine(err.Error()))
	}
}

// oneLine makes one line of joined errors.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// checkRegex compiles an expression to see whether it is one.
func (r *reader) checkRegex(n document.Node, key, text string) {
	if _, err := regexp.Compile(text); err != nil {
		r.report.Errorf(n.Get(key).Or(n), "not an expression (RE2): %v", err)
	}
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
