package admin

import (
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"text/tabwriter"
)

// page is the index for browsers.
//
//nolint:gochecknoglobals // a constant, parsed
var page = template.Must(template.New("index").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Weft</title>
<style>body{font:1rem/1.5 system-ui;margin:2rem}td{padding:0 1rem 0 0}</style>
<h1>Weft</h1>
<table>
{{range .}}<tr><td>{{.Method}}</td><td>{{if eq .Method "GET"}}<a href="{{.Route}}">{{.Path}}</a>{{else}}{{.Path}}{{end}}</td><td>{{.Doc}}</td></tr>
{{end}}</table>
</html>
`))

// Route returns Path without its query.
func (e Endpoint) Route() string {
	route, _, _ := strings.Cut(e.Path, "?")
	return route
}

// index lists what there is: as a page for browsers, else as text.
func index(there []Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
			_ = page.Execute(w, there) // the client may be gone
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, e := range there {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", e.Method, e.Path, e.Doc) // shown by Flush
		}
		_ = table.Flush() // the client may be gone
	}
}
