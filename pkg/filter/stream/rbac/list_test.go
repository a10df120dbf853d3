package rbac

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestListOfOneDoesNotMatchString verifies that a string condition does not match a list, even
// if the string is its only element, as in Envoy.
func TestListOfOneDoesNotMatchString(t *testing.T) {
	for value, want := range map[string]protocol.Reason{
		`{"string_match": {"exact": "admin"}}`:                                             protocol.ReasonDenied,
		`{"or_match": {"value_matchers": [{"string_match": {"exact": "admin"}}]}}`:         protocol.ReasonDenied,
		`{"list_match": {"one_of": {"string_match": {"exact": "admin"}}}}`:                 protocol.ReasonNone,
		`{"string_match": {"exact": "admin"}}, "invert": true`:                             protocol.ReasonNone,
		`{"list_match": {"one_of": {"string_match": {"exact": "admin"}}}}, "invert": true`: protocol.ReasonDenied,
	} {
		x := httpRequest("GET /", "10.0.0.1:1")
		x.Metadata.AddElement("jwt", "scope", "admin")
		settings := permissionPolicy("ALLOW", `{"metadata": {"filter": "jwt", "path": [{"key": "scope"}], "value": `+value+`}}`)
		if got, _ := serveRequest(t, settings, x); got != want {
			t.Errorf("%s: %v, want %v", value, got, want)
		}
	}
}
