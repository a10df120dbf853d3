package extauthz

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestEnabledMetadata(t *testing.T) {
	const condition = `"filter_enabled_metadata": {"filter": "envoy.filters.http.rbac", "path": [{"key": "id"}], "value": {"string_match": {"prefix": "istio-"}}`
	service := `{"http_service": {"server_uri": {"uri": "http://a.test", "cluster": "c", "timeout": "1s"}}, `
	for _, test := range []struct {
		settings, value string // value of the metadata; "": none
		want            bool
	}{
		{condition + `}}`, "istio-a", true},
		{condition + `}}`, "other", false},
		{condition + `}}`, "", false},
		{condition + `, "invert": true}}`, "istio-a", false},
		{condition + `, "invert": true}}`, "", true},
	} {
		c := filtertest.Decode(t, Factory(), filtertest.Settings(service+test.settings)).(*Config)
		compiled, err := c.EnabledMetadata.compile()
		if err != nil {
			t.Fatal(err)
		}
		var m protocol.Metadata
		if test.value != "" {
			m.Set("envoy.filters.http.rbac", "id", test.value)
		}
		if got := compiled.matches(&m); got != test.want {
			t.Errorf("%s with %q: %t, want %t", test.settings, test.value, got, test.want)
		}
	}
	var none *metadataCondition
	if !none.matches(new(protocol.Metadata)) {
		t.Error("no condition does not match, want a match")
	}
	got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(service+`"filter_enabled_metadata": {"filter": "f", "path": [], "value": {"string_match": {"exact": "a"}}}}`))
	if !strings.Contains(got, "path") {
		t.Errorf("empty path: %q, want an error", got)
	}
}

// TestSkippedRequests verifies that a request that the condition does not match passes without a
// check, and without the headers that only the service may set.
func TestSkippedRequests(t *testing.T) {
	clusters := new(filtertest.ClusterClient)
	f, _ := filtertest.BuildWith(t, Factory(), `{"http_service": {"server_uri": {"uri": "http://a.test", "cluster": "c", "timeout": "1s"}},
		"filter_enabled_metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"string_match": {"exact": "v"}}}}`, clusters)
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = "GET", "/"
	if err := x.Serve(t.Context(), f(filtertest.Application())); err != nil || x.Response.Status != 200 {
		t.Errorf("Serve = %v, status %d, want 200 without a check", err, x.Response.Status)
	}
}
