package dubbo

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// modules returns the Dubbo generations of the Java peers.
func modules() []string { return []string{"dubbo27", "dubbo3"} }

// TestWholeWay verifies calls between applications without registry clients: both only use the API
// of their sidecars. The results of calls are the same as without Weft.
func TestWholeWay(t *testing.T) {
	begin(t)
	server := zookeeper.Start(t, zookeeper.Options{})
	for _, providing := range modules() {
		t.Run(providing, func(t *testing.T) {
			registry := server.Address() + "/" + providing
			app := freePort(t)
			startProvider(t, providing, "p", app)
			far := startSidecar(t, setting{registry: registry, app: app})
			far.askAll("/pub")
			for _, calling := range modules() {
				t.Run("called by "+calling, func(t *testing.T) {
					near := startSidecar(t, setting{registry: registry})
					near.askAll("/sub")
					near.awaitProviders(far.ingress)
					consumer := startConsumer(t, calling)
					for _, scenario := range []string{"value", "object", "null", "attachments", "user-exception", "large", "concurrent"} {
						same(t, scenario, consumer.play(fmt.Sprintf("%s %d", scenario, app)), consumer.play(fmt.Sprintf("%s %d", scenario, near.egress)))
					}
					named(t, consumer.play(fmt.Sprintf("groups %d", near.egress)))
				})
			}
		})
	}
}

// same verifies that the calls of a scenario had the same results.
func same(t *testing.T, scenario string, direct, through []call) {
	t.Helper()
	texts := func(calls []call) []string {
		var all []string
		for _, c := range calls {
			all = append(all, c.text)
		}
		return all
	}
	if d, w := texts(direct), texts(through); len(d) == 0 || !slices.Equal(d, w) {
		t.Errorf("%s: through Weft calls come to\n%s\nwithout it to\n%s", scenario, w, d)
	}
}

// named verifies that each export responded itself and that the call of a missing export failed.
func named(t *testing.T, calls []call) {
	t.Helper()
	want := map[string]any{"without": "p", "blue 1.0": "p blue 1.0", "green 1.0": "p green 1.0", "green 2.0": "p green 2.0", "blue 2.0": nil}
	if len(calls) != len(want) {
		t.Fatalf("%d calls, want %d", len(calls), len(want))
	}
	for _, c := range calls {
		if c.Value != want[c.Name] {
			t.Errorf("%s is answered %s, want %v", c.Name, c.text, want[c.Name])
		}
	}
}
