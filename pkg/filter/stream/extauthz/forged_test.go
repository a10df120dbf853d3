package extauthz

import (
	"errors"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestClientCannotForgeFailureHeader verifies that neither the service nor the application
// receives failureHeader from a client, for any setting and decision.
func TestClientCannotForgeFailureHeader(t *testing.T) {
	fail := func(*protocol.Exchange) error { return errors.New("failure") }
	for _, test := range []struct {
		name, extra string
		respond     func(*protocol.Exchange) error
		want        string
	}{
		{"allowed", "", respondHTTP(200, ""), "passed a:b"},
		{"failure_mode_allow, allowed", `, "failure_mode_allow": true`, respondHTTP(200, ""), "passed a:b"},
		{"failure_mode_allow, failure", `, "failure_mode_allow": true`, fail, "passed a:b"},
		{"failure_mode_allow, failure, with the failure header", `, "failure_mode_allow": true, "failure_mode_allow_header_add": true`, fail, "passed a:b X-Envoy-Auth-Failure-Mode-Allowed:true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := &fakeService{respond: test.respond}
			x := newGET("x-envoy-auth-failure-mode-allowed: true", "a: b", "X_Envoy_Auth_Failure_Mode_Allowed: true")
			got, _ := serveWith(t, httpSettings(`, "allowed_headers": {"patterns": [{"prefix": "x"}]}`+test.extra), service, x)
			if got != test.want {
				t.Errorf("outcome %q, want %q", got, test.want)
			}
			if want := "GET shop.test/check/buy?n=1 x-gate:front"; service.received != want {
				t.Errorf("the service received %q, want %q", service.received, want)
			}
		})
	}
}

// TestFailureHeaderOfEarlierFilterIsKept verifies that a second ext_authz filter keeps
// failureHeader if the first one set it.
func TestFailureHeaderOfEarlierFilterIsKept(t *testing.T) {
	build := func(extra string, respond func(*protocol.Exchange) error) func(protocol.Service) protocol.Service {
		clusters := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"authz": &fakeService{respond: respond}}}
		f, _ := filtertest.BuildWith(t, Factory(), httpSettings(extra), clusters)
		return f
	}
	first := build(`, "failure_mode_allow": true, "failure_mode_allow_header_add": true`, respondHTTP(500, ""))
	second := build("", respondHTTP(200, ""))
	both := func(next protocol.Service) protocol.Service { return first(second(next)) }
	const want = "passed X-Envoy-Auth-Failure-Mode-Allowed:true"
	if got := serve(t, both, newGET("X_Envoy_Auth_Failure_Mode_Allowed: forged")); got != want {
		t.Errorf("outcome %q, want %q", got, want)
	}
}
