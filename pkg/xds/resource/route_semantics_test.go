package resource

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestEnvoyRouteSemantics verifies the settings that the reader uses where Envoy and MOSN differ.
func TestEnvoyRouteSemantics(t *testing.T) {
	read := func(route string) *config.RouteTable {
		t.Helper()
		table, err := ReadRoutes(routeConfig(t, `match: {prefix: "/"} `+route), Capabilities{})
		if err != nil {
			t.Fatal(err)
		}
		return table.Config
	}
	for code, want := range map[string]int{
		``: 503, `cluster_not_found_response_code: SERVICE_UNAVAILABLE`: 503,
		`cluster_not_found_response_code: NOT_FOUND`: 404, `cluster_not_found_response_code: INTERNAL_SERVER_ERROR`: 500,
	} {
		c := read(`route: {cluster_header: "x" ` + code + `}`)
		if got := c.VirtualHosts[0].Routes[0].Forward.ClusterNotFoundStatus; got != want || !c.LiteralDomains {
			t.Errorf("%q: ClusterNotFoundStatus = %d, LiteralDomains = %v, want %d, true", code, got, c.LiteralDomains, want)
		}
	}
	rewrite := read(`route: {cluster: "c" regex_rewrite: {pattern: {regex: "a"} substitution: ""}}`).VirtualHosts[0].Routes[0].Forward.RegexRewrite
	if !rewrite.KeepIfEmpty {
		t.Error("KeepIfEmpty is false: regex_rewrite would replace an empty path with /")
	}
	const added = ` response_headers_to_add: {header: {key: "strict-transport-security" value: "max-age=1"}}`
	for _, action := range []string{`redirect: {https_redirect: true}`, `direct_response: {status: 200}`} {
		if got := read(action + added).VirtualHosts[0].Routes[0].Response.Add; len(got) != 1 || got[0].Name != "strict-transport-security" {
			t.Errorf("%s: headers added to the response = %v, want strict-transport-security", action, got)
		}
	}
}

func TestGRPCTimeoutLimits(t *testing.T) {
	for text, want := range map[string]config.GRPCTimeout{
		``: {},
		`max_stream_duration: {grpc_timeout_header_max: {seconds: 5}}`: {Max: 5 * time.Second},
		`max_stream_duration: {grpc_timeout_header_max: {}}`:           {},
		`max_grpc_timeout: {seconds: 5}`:                               {Max: 5 * time.Second, Replace: true},
		`max_grpc_timeout: {}`:                                         {Replace: true},
	} {
		table, err := ReadRoutes(routeConfig(t, `match: {prefix: "/"} route: {cluster: "c" `+text+`}`), Capabilities{})
		if err != nil {
			t.Errorf("%s: error %v, want none", text, err)
			continue
		}
		if got := table.Config.VirtualHosts[0].Routes[0].Forward.GRPCTimeout; got != want {
			t.Errorf("%s is read as %+v, want %+v", text, got, want)
		}
		if len(table.Ignored) > 0 {
			t.Errorf("%s: ignored fields %v, want none", text, table.Ignored)
		}
	}
}
