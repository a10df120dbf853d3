package dubbo

import (
	"fmt"
	"testing"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// TestWeftFindsApplicationProviders verifies that Weft finds Dubbo 3 providers that register
// only as instances of their application. The service metadata is in ZooKeeper, or Weft asks the
// instance for it.
func TestWeftFindsApplicationProviders(t *testing.T) {
	skipUnlessReady(t)
	for _, metadataType := range []string{"remote", "local"} {
		t.Run(metadataType, func(t *testing.T) {
			server := zookeeper.Start(t, zookeeper.Options{})
			// Dubbo reads these environment variables.
			t.Setenv("DUBBO_METADATA-REPORT_ADDRESS", "zookeeper://"+server.Address())
			t.Setenv("DUBBO_APPLICATION_METADATA-TYPE", metadataType)
			consumerSide := startSidecar(t, sidecarOptions{registry: server.Address()})
			consumerSide.callAPIForExports("/sub") // before any provider registers
			first, second := freePort(t), freePort(t)
			p := startProvider(t, "dubbo3", "p", first, registryOption(server, "?register-mode=instance"))
			consumerSide.awaitProviders(first)
			consumer := startConsumer(t, "dubbo27")
			checkExports(t, consumer.runScenario(fmt.Sprintf("groups %d", consumerSide.egress)))
			// A provider that registers in both forms must be one host.
			startProvider(t, "dubbo3", "q", second, registryOption(server, "?register-mode=all"), "weight=50", "warmup=1")
			consumerSide.awaitProviders(first, second)
			consumerSide.awaitWeight(second, 50)
			p.Kill()
			consumerSide.awaitProviders(second)
		})
	}
}
