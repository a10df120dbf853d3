package dubbo

import (
	"fmt"
	"testing"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// TestWeftFindsApplicationProviders verifies that Weft finds Dubbo 3 providers that register only
// as instances of their application. Weft reads the service metadata from ZooKeeper, or requests it
// from the instance.
func TestWeftFindsApplicationProviders(t *testing.T) {
	skipUnlessReady(t)
	for _, metadataType := range []string{"remote", "local"} {
		t.Run(metadataType, func(t *testing.T) {
			server := zookeeper.Start(t, zookeeper.Options{})
			// Dubbo reads these environment variables.
			t.Setenv("DUBBO_METADATA-REPORT_ADDRESS", "zookeeper://"+server.Address())
			t.Setenv("DUBBO_APPLICATION_METADATA-TYPE", metadataType)
			consumerSidecar := startSidecar(t, sidecarOptions{registry: server.Address()})
			consumerSidecar.callAPIForExports("/sub") // before any provider registers
			first, second := freePort(t), freePort(t)
			p := startProvider(t, "dubbo3", "p", first, registryOption(server, "?register-mode=instance"))
			consumerSidecar.awaitProviders(first)
			consumer := startConsumer(t, "dubbo27")
			checkExports(t, consumer.runScenario(fmt.Sprintf("groups %d", consumerSidecar.egress)))
			// A provider that registers in both forms must be one host.
			startProvider(t, "dubbo3", "q", second, registryOption(server, "?register-mode=all"), "weight=50", "warmup=1")
			consumerSidecar.awaitProviders(first, second)
			consumerSidecar.awaitWeight(second, 50)
			p.Kill()
			consumerSidecar.awaitProviders(second)
		})
	}
}
