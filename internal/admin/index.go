package admin

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
)

// HTML of the index. The package does not use html/template because with it the linker keeps every
// exported method of the program: 2.4 MB.
const (
	pageHead = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Weft</title>
<style>body{font:1rem/1.5 system-ui;margin:2rem}td{padding:0 1rem 0 0}</style>
<h1>Weft</h1>
<table>
`
	pageEnd = `</table>
</html>
`
)

// writePage writes the index as HTML. It returns the error of w.
func writePage(w io.Writer, endpoints []Endpoint) error {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, e := range endpoints {
		path := html.EscapeString(e.Path)
		if e.Method == http.MethodGet {
			path = `<a href="` + html.EscapeString(e.Route()) + `">` + path + `</a>`
		}
		b.WriteString("<tr><td>" + html.EscapeString(e.Method) + "</td><td>" + path + "</td><td>" + html.EscapeString(e.Doc) + "</td></tr>\n")
	}
	b.WriteString(pageEnd)
	_, err := io.WriteString(w, b.String())
	return err
}

// index returns a handler that lists the endpoints: as HTML for browsers, as text for other
// clients.
func index(endpoints []Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
			_ = writePage(w, endpoints) // the client may have disconnected
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, e := range endpoints {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", e.Method, e.Path, e.Doc) // Flush returns the error
		}
		_ = table.Flush() // the client may have disconnected
	}
}
