package interop

import (
	"fmt"
	"testing"
)

func sofaRPCScenarios() []string {
	return []string{
		"value", "object", "null", "user-exception", "runtime-exception", "future", "callback", "one-way", "baggage", "large",
		"concurrent", "unique-id", "timeout", "unknown-service",
	}
}

// changeBaggage returns keys of a route that adds and replaces entries in both directions, for the
// scenario "baggage". SOFARPC sends baggage in the header and in the content of a frame. The header
// takes precedence. An entry that is removed from the header is still in the content.
func changeBaggage() object {
	add := func(name, value string) object {
		return object{"header": object{"key": name, "value": value}, "append": false}
	}
	return object{
		"request_headers_to_add": []object{
			add("rpc_req_baggage.added", "on the way, by %listener_name%"), add("rpc_req_baggage.unicode", "\u20ac\u00e4"),
		},
		"request_headers_to_remove": []string{"rpc_req_baggage.user-key"},
		"response_headers_to_add": []object{
			add("rpc_resp_baggage.added", "on the way back"), add("rpc_resp_baggage.answered-by", "Weft"),
		},
	}
}

// TestSOFARPC runs SOFARPC as consumer and provider, over Bolt.
func TestSOFARPC(t *testing.T) {
	t.Parallel()
	requireKit(t, "java")
	port := freePort(t)
	provider := startJava(t, "sofarpc provider", "sofa", "sofa.DeskProvider", fmt.Sprint(port), "sofarpc")
	consumer := startJava(t, "sofarpc consumer", "sofa", "sofa.DeskConsumer")
	provider.awaitReady(t)
	consumer.awaitReady(t)
	tgt := target{pair: pair{"sofarpc", "sofarpc", openGolden(t, "sofarpc", "sofarpc")}, port: port}
	changing, aborting := tgt, tgt
	hosts := []int{port}
	wefts := startSidecars(t, "bolt", service{hosts: hosts}, service{hosts: hosts, actionKeys: changeBaggage()},
		service{hosts: hosts, routeKeys: abortKeys()})
	tgt.sidecars, changing.sidecars, aborting.sidecars = wefts.forService(0), wefts.forService(1), wefts.forService(2)
	for _, scenario := range sofaRPCScenarios() {
		tgt.runScenario(t, consumer, scenario, scenario, "")
	}
	changing.runThroughWefts(t, consumer, "baggage-changed", "baggage", "")
	aborting.runThroughWefts(t, consumer, "refused", "value", "")
	runIdle(t, consumer, "", []target{tgt})
}
