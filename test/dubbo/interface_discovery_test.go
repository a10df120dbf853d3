package dubbo

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// registryOption returns the registry option of a Dubbo application without a sidecar.
func registryOption(server *zookeeper.Server, extra string) string {
	return "registry=zookeeper://" + server.Address() + extra
}

// TestInterfaceConsumersFindWeftProviders verifies that consumers without a sidecar find a provider
// that a sidecar registers in ZooKeeper.
func TestInterfaceConsumersFindWeftProviders(t *testing.T) {
	skipUnlessReady(t)
	server := zookeeper.Start(t, zookeeper.Options{})
	app := freePort(t)
	startProvider(t, "dubbo27", "p", app)
	providerSidecar := startSidecar(t, sidecarOptions{registry: server.Address(), providerPort: app})
	providerSidecar.callAPIForExports("/pub")
	for _, consumerModule := range modules() {
		t.Run(consumerModule, func(t *testing.T) {
			consumer := startConsumer(t, consumerModule)
			checkExports(t, consumer.runScenario("groups 0 "+registryOption(server, "")))
			checkSameResults(t, "value", consumer.runScenario(fmt.Sprintf("value %d", app)), consumer.runScenario("value 0 "+registryOption(server, "")))
		})
	}
}

// TestWeftFindsInterfaceProviders verifies that the consumer's sidecar finds providers that
// register themselves in ZooKeeper with the default settings of Dubbo.
func TestWeftFindsInterfaceProviders(t *testing.T) {
	skipUnlessReady(t)
	for _, providerModule := range modules() {
		t.Run(providerModule, func(t *testing.T) {
			server := zookeeper.Start(t, zookeeper.Options{})
			consumerSidecar := startSidecar(t, sidecarOptions{registry: server.Address()})
			consumerSidecar.callAPIForExports("/sub") // before any provider registers
			app := freePort(t)
			p := startProvider(t, providerModule, "p", app, registryOption(server, ""))
			consumerSidecar.awaitProviders(app)
			for _, consumerModule := range modules() {
				consumer := startConsumer(t, consumerModule)
				checkExports(t, consumer.runScenario(fmt.Sprintf("groups %d", consumerSidecar.egress)))
				consumer.Kill()
			}
			// One more provider registers, and the first one exits.
			other := freePort(t)
			startProvider(t, providerModule, "q", other, registryOption(server, ""))
			consumerSidecar.awaitProviders(app, other)
			p.Kill()
			consumerSidecar.awaitProviders(other)
		})
	}
}

// TestWeights verifies that providers get calls in proportion to their weights, and to override
// rules that change while calls are made.
func TestWeights(t *testing.T) {
	skipUnlessReady(t)
	server := zookeeper.Start(t, zookeeper.Options{})
	consumerSidecar := startSidecar(t, sidecarOptions{registry: server.Address()})
	light, heavy := freePort(t), freePort(t)
	// warmup=1 gives a provider its full weight immediately.
	startProvider(t, "dubbo27", "light", light, registryOption(server, ""), "weight=100", "warmup=1")
	startProvider(t, "dubbo3", "heavy", heavy, registryOption(server, ""), "weight=300", "warmup=1")
	consumerSidecar.callAPIForExports("/sub", object{"parameters": object{"loadbalance": "random"}})
	consumerSidecar.awaitProviders(light, heavy)
	consumer := startConsumer(t, "dubbo27")
	const calls = 800
	shares := func() map[string]float64 {
		t.Helper()
		results := consumer.runScenario(fmt.Sprintf("shares %d calls=%d", consumerSidecar.egress, calls))
		responses, ok := results[0].Value.(map[string]any)
		if !ok {
			t.Fatalf("results of the calls: %s", results[0].text)
		}
		counts := map[string]float64{}
		for name, n := range responses {
			counts[name], _ = n.(float64)
		}
		return counts
	}
	checkShares := func(label string, want float64) {
		t.Helper()
		got := shares()
		// Five standard deviations: one run in a million fails.
		slack := 5 * math.Sqrt(calls*want*(1-want))
		if math.Abs(got["light"]-calls*want) > slack || got["light"]+got["heavy"] != calls {
			t.Errorf("%s, %v of %d calls go to the provider with less weight, want %v ± %v", label, got, calls, calls*want, slack)
		}
	}
	checkShares("registered weights", 0.25)

	rules := dial(t, server)
	rule := fmt.Sprintf("override://%s:%d/%s?category=configurators&dynamic=false&enabled=true&weight=900", host, light, echo)
	node := "/dubbo/" + echo + "/configurators/" + url.QueryEscape(rule)
	rules.create(node)
	consumerSidecar.awaitWeight(light, 900)
	checkShares("after an override", 0.75)
	if err := rules.conn.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	consumerSidecar.awaitWeight(light, 100)

	disabling := fmt.Sprintf("override://%s:%d/%s?category=configurators&dynamic=false&enabled=true&disabled=true", host, heavy, echo)
	rules.create("/dubbo/" + echo + "/configurators/" + url.QueryEscape(disabling))
	consumerSidecar.awaitExport([2]string{}, light) // the override applies to the service without group and version
	checkShares("one provider disabled", 1)
}

// awaitWeight waits until the provider at the port of host has the weight.
func (w *sidecar) awaitWeight(port, weight int) {
	w.t.Helper()
	eventually(w.t, func() string {
		s, err := w.subscribed(echo)
		if err != nil {
			return err.Error()
		}
		for _, p := range s.Providers {
			if p.Address == fmt.Sprintf("%s:%d", host, port) && p.Weight == weight {
				return ""
			}
		}
		return fmt.Sprintf("%+v, want the weight %d of %d", s.Providers, weight, port)
	})
}

// session is a ZooKeeper session of the test.
type session struct {
	t    *testing.T
	conn *zk.Conn
}

// dial opens a session until the end of the test.
func dial(t *testing.T, server *zookeeper.Server) session {
	t.Helper()
	conn, _, err := zk.Connect([]string{server.Address()}, 10*time.Second, zk.WithLogger(discardLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return session{t, conn}
}

// discardLogger discards the log of the ZooKeeper client: the tests kill its servers.
type discardLogger struct{}

// Printf discards its arguments.
func (discardLogger) Printf(string, ...any) {}

// create creates a persistent znode and its parents.
func (s session) create(path string) {
	s.t.Helper()
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if _, err := s.conn.Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !strings.Contains(err.Error(), "exists") {
			s.t.Fatalf("%s: %v", path[:i], err)
		}
	}
}
