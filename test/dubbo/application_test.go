package dubbo

import (
	"fmt"
	"testing"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// TestWeftFindsProvidersOfApplications: providers of Dubbo 3 register as instances of
// their application alone. What those provide is in ZooKeeper, or to be asked of the
// instance itself.
func TestWeftFindsProvidersOfApplications(t *testing.T) {
	begin(t)
	for _, stored := range []string{"remote", "local"} {
		t.Run(stored, func(t *testing.T) {
			server := zookeeper.Start(t, zookeeper.Options{})
			// Dubbo reads these from the environment.
			t.Setenv("DUBBO_METADATA-REPORT_ADDRESS", "zookeeper://"+server.Address())
			t.Setenv("DUBBO_APPLICATION_METADATA-TYPE", stored)
			near := startSidecar(t, setting{registry: server.Address()})
			near.askAll("/sub") // before there is anybody
			one, two := freePort(t), freePort(t)
			p := startProvider(t, "dubbo3", "p", one, plainly(server, "?register-mode=instance"))
			near.awaitProviders(one)
			consumer := startConsumer(t, "dubbo27")
			named(t, consumer.play(fmt.Sprintf("groups %d", near.egress)))
			// Another registers in both ways, and is one host.
			startProvider(t, "dubbo3", "q", two, plainly(server, "?register-mode=all"), "weight=50", "warmup=1")
			near.awaitProviders(one, two)
			near.awaitWeight(two, 50)
			p.Kill()
			near.awaitProviders(two)
		})
	}
}
