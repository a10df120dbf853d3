package dubbo

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// modules returns the Dubbo generations of the Java peers.
func modules() []string { return []string{"dubbo27", "dubbo3"} }

// TestSidecarToSidecar verifies calls between applications without registry clients: both only use
// the API of their sidecars. The results of calls are the same as without Weft.
func TestSidecarToSidecar(t *testing.T) {
	skipUnlessReady(t)
	server := zookeeper.Start(t, zookeeper.Options{})
	for _, providerModule := range modules() {
		t.Run(providerModule, func(t *testing.T) {
			registry := server.Address() + "/" + providerModule
			app := freePort(t)
			startProvider(t, providerModule, "p", app)
			providerSidecar := startSidecar(t, sidecarOptions{registry: registry, providerPort: app})
			providerSidecar.callAPIForExports("/pub")
			for _, consumerModule := range modules() {
				t.Run("called by "+consumerModule, func(t *testing.T) {
					consumerSidecar := startSidecar(t, sidecarOptions{registry: registry})
					consumerSidecar.callAPIForExports("/sub")
					consumerSidecar.awaitProviders(providerSidecar.ingress)
					consumer := startConsumer(t, consumerModule)
					for _, scenario := range []string{"value", "object", "null", "attachments", "user-exception", "large", "concurrent"} {
						checkSameResults(t, scenario, consumer.runScenario(fmt.Sprintf("%s %d", scenario, app)), consumer.runScenario(fmt.Sprintf("%s %d", scenario, consumerSidecar.egress)))
					}
					checkExports(t, consumer.runScenario(fmt.Sprintf("groups %d", consumerSidecar.egress)))
				})
			}
		})
	}
}

// checkSameResults verifies that the calls of a scenario had the same results.
func checkSameResults(t *testing.T, scenario string, direct, throughWeft []call) {
	t.Helper()
	texts := func(calls []call) []string {
		var out []string
		for _, c := range calls {
			out = append(out, c.text)
		}
		return out
	}
	if d, w := texts(direct), texts(throughWeft); len(d) == 0 || !slices.Equal(d, w) {
		t.Errorf("%s: results through Weft\n%s\ndirect results\n%s", scenario, w, d)
	}
}

// checkExports verifies that each export responded itself and that the call of a missing export
// failed.
func checkExports(t *testing.T, calls []call) {
	t.Helper()
	want := map[string]any{"without": "p", "blue 1.0": "p blue 1.0", "green 1.0": "p green 1.0", "green 2.0": "p green 2.0", "blue 2.0": nil}
	if len(calls) != len(want) {
		t.Fatalf("%d calls, want %d", len(calls), len(want))
	}
	for _, c := range calls {
		if c.Value != want[c.Name] {
			t.Errorf("response of %s: %s, want %v", c.Name, c.text, want[c.Name])
		}
	}
}
