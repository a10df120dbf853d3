package extauthz

import (
	"errors"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestACallerCannotSayThatItWasNotJudged verifies that neither the service nor the application
// receives failureHeader from a client, for any setting and decision.
func TestACallerCannotSayThatItWasNotJudged(t *testing.T) {
	broken := func(*protocol.Exchange) error { return errors.New("broken") }
	for _, test := range []struct {
		name, more string
		answer     func(*protocol.Exchange) error
		outcome    string
	}{
		{"allowed", "", says(200, ""), "passed a:b"},
		{"open, and allowed", `, "failure_mode_allow": true`, says(200, ""), "passed a:b"},
		{"open, and broken", `, "failure_mode_allow": true`, broken, "passed a:b"},
		{"open, broken, and told", `, "failure_mode_allow": true, "failure_mode_allow_header_add": true`, broken, "passed a:b X-Envoy-Auth-Failure-Mode-Allowed:true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := &authority{answer: test.answer}
			x := get("x-envoy-auth-failure-mode-allowed: true", "a: b", "X_Envoy_Auth_Failure_Mode_Allowed: true")
			got, _ := outcome(t, httpSettings(`, "allowed_headers": {"patterns": [{"prefix": "x"}]}`+test.more), to, x)
			if got != test.outcome {
				t.Errorf("outcome %q, want %q", got, test.outcome)
			}
			if want := "GET shop.test/check/buy?n=1 x-gate:front"; to.asked != want {
				t.Errorf("the service received %q, want %q", to.asked, want)
			}
		})
	}
}

// TestAnEarlierFilterMaySayThatItDidNotJudge verifies that a second ext_authz filter keeps
// failureHeader if the first one set it.
func TestAnEarlierFilterMaySayThatItDidNotJudge(t *testing.T) {
	build := func(more string, answer func(*protocol.Exchange) error) func(protocol.Service) protocol.Service {
		calls := &filtertest.Calls{Clusters: map[string]protocol.Service{"authz": &authority{answer: answer}}}
		made, _ := filtertest.BuildWith(t, Kind(), httpSettings(more), calls)
		return made
	}
	first := build(`, "failure_mode_allow": true, "failure_mode_allow_header_add": true`, says(500, ""))
	second := build("", says(200, ""))
	both := func(next protocol.Service) protocol.Service { return first(second(next)) }
	const want = "passed X-Envoy-Auth-Failure-Mode-Allowed:true"
	if got := serve(t, both, get("X_Envoy_Auth_Failure_Mode_Allowed: forged")); got != want {
		t.Errorf("outcome %q, want %q", got, want)
	}
}
