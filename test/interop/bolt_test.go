package interop

import (
	"fmt"
	"testing"
)

func boltScenarios() []string {
	return []string{
		"sync", "null", "future", "callback", "one-way", "server-exception", "headers", "large", "concurrent", "timeout",
		"no-processor",
	}
}

// TestBolt runs the SOFA Bolt library without SOFARPC in each version of the protocol: 1, 2, and 2
// with a checksum in every frame.
func TestBolt(t *testing.T) {
	t.Parallel()
	requireKit(t, "java")
	port := freePort(t)
	provider := startJava(t, "bolt provider", "sofa", "sofa.BoltProvider", fmt.Sprint(port), "bolt")
	protocols := map[string]string{"v1": "bolt", "v2": "boltv2", "v2crc": "boltv2"}
	consumers := map[string]*peer{}
	for version := range protocols {
		consumers[version] = startJava(t, "bolt consumer "+version, "sofa", "sofa.BoltConsumer")
	}
	provider.awaitReady(t)
	t.Run("all", func(t *testing.T) {
		for version, protocol := range protocols {
			t.Run(version, func(t *testing.T) {
				t.Parallel() // the consumers are independent
				name := "bolt-" + version
				tgt := target{
					pair: pair{name, name, openGolden(t, name, name)},
					port: port,
				}
				changing, aborting := tgt, tgt
				hosts := []int{port}
				wefts := startSidecars(t, protocol, service{hosts: hosts}, service{hosts: hosts, actionKeys: changeAttachments()},
					service{hosts: hosts, routeKeys: abortKeys()})
				tgt.sidecars, changing.sidecars, aborting.sidecars = wefts.forService(0), wefts.forService(1), wefts.forService(2)
				consumers[version].awaitReady(t)
				for _, scenario := range boltScenarios() {
					tgt.runScenario(t, consumers[version], scenario, scenario, "version="+version)
				}
				tgt.runThroughWefts(t, consumers[version], "deadline", "deadline", "version="+version)
				changing.runThroughWefts(t, consumers[version], "headers-changed", "headers", "version="+version)
				aborting.runThroughWefts(t, consumers[version], "refused", "sync", "version="+version)
				runIdle(t, consumers[version], "version="+version, []target{tgt})
			})
		}
	})
}
