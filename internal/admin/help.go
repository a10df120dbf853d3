package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Parameter is a query parameter of an endpoint.
type Parameter struct {
	Name, Doc string
}

// HelpText returns the endpoints that have a handler, sorted by path, in the format of Envoy's
// /help: a line with the path, the method unless it is GET, and the documentation; then a line for
// each parameter.
func HelpText(endpoints []Endpoint) string {
	endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e Endpoint) bool { return e.Handler == nil })
	slices.SortStableFunc(endpoints, func(a, b Endpoint) int { return cmp.Compare(a.Route(), b.Route()) })
	var b strings.Builder
	b.WriteString("admin commands are:\n  /: The index of the pages.\n")
	for _, e := range endpoints {
		b.WriteString("  " + e.Route())
		if e.Method != http.MethodGet {
			b.WriteString(" (" + e.Method + ")")
		}
		b.WriteString(": " + e.Doc + "\n")
		for _, p := range e.Parameters {
			fmt.Fprintf(&b, "      %s: %s\n", p.Name, p.Doc)
		}
	}
	return b.String()
}

// WriteText writes a text as the response.
func WriteText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client may have disconnected
}
