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

// TestSOFARPC has SOFARPC call itself over Bolt.
func TestSOFARPC(t *testing.T) {
	t.Parallel()
	need(t, "java")
	port := freePort(t)
	provider := startJava(t, "sofarpc provider", "sofa", "sofa.DeskProvider", fmt.Sprint(port), "sofarpc")
	consumer := startJava(t, "sofarpc consumer", "sofa", "sofa.DeskConsumer")
	provider.awaitReady(t)
	consumer.awaitReady(t)
	w := way{
		pair:     pair{"sofarpc", "sofarpc", openGolden(t, "sofarpc", "sofarpc")},
		port:     port,
		sidecars: startSidecars(t, "bolt", service{hosts: []int{port}}),
	}
	for _, scenario := range sofaRPCScenarios() {
		w.play(t, consumer, scenario, scenario, "")
	}
	playIdle(t, consumer, "", []way{w})
}
