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

// compile compiles a table as the proxy does. If that fails, it compiles each route separately to
// report the error at the route.
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

// oneLine joins the lines of an error text.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// checkRegex reports an invalid regular expression.
func (r *reader) checkRegex(n document.Node, key, text string) {
	if _, err := regexp.Compile(text); err != nil {
		r.report.Errorf(n.Get(key).Or(n), "not a valid regular expression (RE2): %v", err)
	}
}

// checkTemplate reports an invalid text with %variables%.
func (r *reader) checkTemplate(at document.Node, text string) {
	if _, err := variable.Compile(text); err != nil {
		r.report.Errorf(at, "%v", err)
	}
}

// checkVariable reports an unknown variable.
func (r *reader) checkVariable(n document.Node, key, name string) {
	if _, ok := variable.Lookup(name); ok || name == "" {
		return // an empty name has been reported
	}
	var known []string
	for name := range variable.Names() {
		known = append(known, name)
	}
	r.report.Unknown(n.Get(key).Or(n), "variable", name, known)
}
