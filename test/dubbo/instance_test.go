package dubbo

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// instances returns the znodes of an application's instances with the session of each.
func (s session) instances(application string) map[string]int64 {
	s.t.Helper()
	parent := "/services/" + application
	ids, _, err := s.conn.Children(parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		s.t.Fatalf("%s: %v", parent, err)
	}
	out := map[string]int64{}
	for _, id := range ids {
		if exists, stat, err := s.conn.Exists(parent + "/" + id); err == nil && exists {
			out[id] = stat.EphemeralOwner
		}
	}
	return out
}

// TestApplicationConsumersFindWeftProviders verifies that a Dubbo 3 consumer without a
// sidecar, which looks only for instances, finds a provider that a sidecar registers only as an
// instance.
func TestApplicationConsumersFindWeftProviders(t *testing.T) {
	skipUnlessReady(t)
	server := zookeeper.Start(t, zookeeper.Options{})
	zkSession := dial(t, server)
	app := freePort(t)
	startProvider(t, "dubbo3", "p", app)
	providerSidecar := startSidecar(t, sidecarOptions{registry: server.Address(), providerPort: app})
	providerSidecar.callAPIForExports("/pub", object{"name": "provider", "parameters": object{"register-mode": "instance"}})
	if urls, _, err := zkSession.conn.Children("/dubbo/" + echo + "/providers"); err == nil && len(urls) > 0 {
		t.Fatalf("also registered with URLs: %v", urls)
	}
	// Dubbo reads these environment variables.
	t.Setenv("DUBBO_APPLICATION_SERVICE-DISCOVERY_MIGRATION", "FORCE_APPLICATION")
	t.Setenv("DUBBO_METADATA-REPORT_ADDRESS", "zookeeper://"+server.Address())
	consumer := startConsumer(t, "dubbo3")
	registry := registryOption(server, "")
	checkExports(t, consumer.runScenario("groups 0 "+registry))

	// The session expires while the sidecar is stopped.
	id := fmt.Sprintf("%s:%d", host, providerSidecar.ingress)
	before := zkSession.instances("provider")[id]
	if before == 0 {
		t.Fatalf("the instances are %v, want %s", zkSession.instances("provider"), id)
	}
	providerSidecar.weft.signal(syscall.SIGSTOP)
	eventually(t, func() string {
		if instances := zkSession.instances("provider"); len(instances) > 0 {
			return fmt.Sprintf("the session has not expired: %v", instances)
		}
		return ""
	})
	providerSidecar.weft.signal(syscall.SIGCONT)
	eventually(t, func() string {
		if owner := zkSession.instances("provider")[id]; owner == 0 || owner == before {
			return fmt.Sprintf("the instance has the session %#x, before %#x", owner, before)
		}
		return ""
	})
	awaitCall(t, consumer, registry)

	// Adding and removing a service changes the revision of the same instance.
	other := object{"interface": "weft.interop.dubbo.Unknown", "methods": []string{"unknown"}, "name": "provider",
		"parameters": object{"register-mode": "instance"}}
	providerSidecar.callAPI("/pub", other)
	providerSidecar.callAPI("/unpub", other)
	awaitCall(t, consumer, registry)

	// Another sidecar also finds the instance, and finds it only once if it is registered in both
	// forms.
	consumerSidecar := startSidecar(t, sidecarOptions{registry: server.Address()})
	consumerSidecar.callAPIForExports("/sub")
	consumerSidecar.awaitProviders(providerSidecar.ingress)
	providerSidecar.callAPIForExports("/pub", object{"name": "provider", "parameters": object{"register-mode": "all"}})
	if urls, _, err := zkSession.conn.Children("/dubbo/" + echo + "/providers"); err != nil || len(urls) != len(exports()) {
		t.Errorf("registered URLs: %v, %v; want %d URLs, nil", urls, err, len(exports()))
	}
	consumerSidecar.awaitProviders(providerSidecar.ingress)

	providerSidecar.weft.signal(syscall.SIGTERM)
	providerSidecar.weft.awaitExit()
	if instances := zkSession.instances("provider"); len(instances) > 0 {
		t.Errorf("still registered: %v", instances)
	}
}

// awaitCall waits until a call of the first export succeeds.
func awaitCall(t *testing.T, consumer *process, registry string) {
	t.Helper()
	eventually(t, func() string {
		text := consumer.runScenario("shares 0 " + registry + " calls=1")[0].text
		if !strings.Contains(text, `"p":1`) {
			return "result of the call: " + text
		}
		return ""
	})
}
