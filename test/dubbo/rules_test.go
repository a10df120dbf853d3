package dubbo

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// write creates or replaces a document in a persistent znode.
func (s session) write(path, document string) {
	s.t.Helper()
	s.create(path)
	if _, err := s.conn.Set(path, []byte(document), -1); err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
}

// openedConnections returns the metric of the connections that were opened to the providers of
// echo.
func (w *sidecar) openedConnections() string {
	w.t.Helper()
	text, err := fetch(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", w.admin), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, fmt.Sprintf("weft_cluster_connections_opened_total{cluster=%q}", echo)) {
			return line
		}
	}
	w.t.Fatal("the metric of connections is missing")
	return ""
}

// TestConfigurationCenterRules verifies that rules in ZooKeeper change the routing and parameters
// of a running sidecar, and that their deletion restores the previous behavior.
func TestConfigurationCenterRules(t *testing.T) {
	skipUnlessReady(t)
	server := zookeeper.Start(t, zookeeper.Options{})
	consumerSidecar := startSidecar(t, sidecarOptions{registry: server.Address()})
	first, second, gray := freePort(t), freePort(t), freePort(t)
	startProvider(t, "dubbo27", "first", first, registryOption(server, ""), "warmup=1")
	startProvider(t, "dubbo3", "second", second, registryOption(server, ""), "warmup=1")
	startProvider(t, "dubbo3", "gray", gray, registryOption(server, ""), "warmup=1", "dubbo.tag=gray")
	consumerSidecar.callAPIForExports("/sub")
	consumerSidecar.awaitProviders(first, second, gray)
	consumer := startConsumer(t, "dubbo27")
	awaitCounts := func(want string) {
		t.Helper()
		eventually(t, func() string {
			got := fmt.Sprint(consumer.runScenario(fmt.Sprintf("shares %d calls=40", consumerSidecar.egress))[0].Value)
			if got != want {
				return fmt.Sprintf("calls go to %s, want %s", got, want)
			}
			return ""
		})
	}
	zk := dial(t, server)
	parent := "/dubbo/config/dubbo/"
	conditions := parent + echo + "::.condition-router"
	zk.write(conditions, fmt.Sprintf("configVersion: v2.7\nscope: service\nforce: true\nconditions:\n- 'method=name => port=%d'\n", second))
	awaitCounts("map[second:40]")
	zk.write(conditions, fmt.Sprintf("conditions: ['method!=name => port=%d', 'method=na* => port=%d']", second, first))
	awaitCounts("map[first:40]")
	zk.write(conditions, fmt.Sprintf("force: true\nconditions: ['=> port=%d']", second))
	consumerSidecar.awaitExport([2]string{}, second) // the rule applies to the service without group and version
	awaitCounts("map[second:40]")
	if err := zk.conn.Delete(conditions, -1); err != nil {
		t.Fatal(err)
	}
	consumerSidecar.awaitProviders(first, second, gray)

	// The tag gray now comes from the consumer's parameters.
	consumerSidecar.callAPI("/sub", object{"interface": echo, "methods": []string{"name"}, "parameters": object{"dubbo.tag": "gray"}})
	awaitCounts("map[gray:40]")
	consumerSidecar.callAPI("/sub", object{"interface": echo, "methods": []string{"name"}})
	consumerSidecar.awaitProviders(first, second, gray)

	consumer.runScenario(fmt.Sprintf("shares %d calls=40", consumerSidecar.egress)) // opens connections to the providers without a tag
	before := consumerSidecar.openedConnections()
	configurators := parent + echo + "::.configurators"
	zk.write(configurators, "configVersion: v3.0\nenabled: true\nconfigs:\n- side: consumer\n  parameters: {timeout: 1234, retries: 0, loadbalance: roundrobin}\n")
	await := func(want string) {
		t.Helper()
		eventually(t, func() string {
			s, err := consumerSidecar.subscribed(echo)
			if got := s.LoadBalance + " " + s.Timeout; err != nil || got != want {
				return fmt.Sprintf("%s, want %s: %v", got, want, err)
			}
			return ""
		})
	}
	await("roundrobin 1.234s")
	awaitCounts("map[first:20 second:20]")
	if after := consumerSidecar.openedConnections(); after != before {
		t.Errorf("connections to providers: %q, before the configurators %q; want no change", after, before)
	}
	if err := zk.conn.Delete(configurators, -1); err != nil {
		t.Fatal(err)
	}
	await("random 1m0s")
}
