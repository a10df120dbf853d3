package rules

import (
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/registry"
)

// readDocument parses a document of the configuration center, whose root must be an object.
func readDocument(u registry.URL) (document.Node, error) {
	report := &document.Report{}
	root := document.Parse("rule.yaml", []byte(u.Get(keyYAML)), document.Options{Format: document.YAML}, report)
	switch {
	case report.Errors() > 0:
		return document.Node{}, fmt.Errorf("cannot parse the document: %w", report.Diagnostics()[0])
	case root.Kind() != document.Object:
		return document.Node{}, fmt.Errorf("the document is %s, not an object", root.Describe())
	}
	return root, nil
}

// stringList returns the texts of the elements of a list, or the text of a single value.
func stringList(n document.Node) (list []string) {
	if n.Kind() != document.Array {
		if n.Exists() {
			list = append(list, strings.TrimSpace(n.Text()))
		}
		return list
	}
	for item := range n.All() {
		list = append(list, strings.TrimSpace(item.Text()))
	}
	return list
}

// boolOr returns a value that is written as a boolean or as a text; fallback is the result for an
// absent value.
func boolOr(n document.Node, fallback bool) bool {
	if !n.Exists() {
		return fallback
	}
	return strings.EqualFold(n.Text(), "true")
}

// isDocumentDisabled reports whether a document of routers disables itself.
func isDocumentDisabled(root document.Node) bool {
	return !boolOr(root.Get("enabled"), true) || !boolOr(root.Get("valid"), true)
}

// parameterMatch is a condition on a parameter of a URL.
type parameterMatch struct {
	key   string
	value textMatch
}

// readParameterMatches parses [{key: k, value: {exact: v}}].
func readParameterMatches(n document.Node) (matches []parameterMatch, problem string) {
	if n.Exists() && n.Kind() != document.Array {
		return nil, n.Path() + " is " + n.Describe() + ", not a list"
	}
	for item := range n.All() {
		value, problem := readTextMatch(item.Get("value"))
		if problem != "" {
			return nil, problem
		}
		matches = append(matches, parameterMatch{item.Get("key").Text(), value})
	}
	return matches, ""
}

func (m parameterMatch) matches(u registry.URL) bool {
	text, _ := urlValue(u, m.key)
	return m.value.matches(text)
}
