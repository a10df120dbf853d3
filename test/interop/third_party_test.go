package interop

import (
	"fmt"
	"path/filepath"
	"testing"
)

// foreignLibrary is a library in a language other than Java, with its own codecs.
type foreignLibrary struct {
	name     string // of its peers
	protocol string // its name in Weft
	provider func(t *testing.T, port int) *peer
	consumer func(t *testing.T) *peer

	scenarios         []string // of its consumer, with its own provider and with one in Java
	withJava          []string // additional scenarios of its consumer with a provider in Java
	fromJava          []string // scenarios of a consumer in Java with its provider
	reportsRejections bool     // its consumer reports why Weft rejects a call
}

// javaPeers are the peers in Java that a foreign library calls, and that call it.
type javaPeers struct{ name, module, provider, consumer string }

// dubboPeers returns the peers of a version.
func dubboPeers(v dubboVersion) javaPeers {
	return javaPeers{v.module, v.module, "dubbo.EchoProvider", "dubbo.EchoConsumer"}
}

// runScenarios runs the scenarios of a library with peers in Java and with its own provider.
func (lib foreignLibrary) runScenarios(t *testing.T, java javaPeers) {
	t.Helper()
	javaPort, ownPort := freePort(t), freePort(t)
	javaProvider := startJava(t, java.name+" provider", java.module, java.provider, fmt.Sprint(javaPort), java.name)
	provider, consumer := lib.provider(t, ownPort), lib.consumer(t)
	wefts := startSidecars(t, lib.protocol, service{hosts: []int{javaPort}}, service{hosts: []int{ownPort}},
		service{hosts: []int{ownPort}, routeKeys: abortKeys()}, service{hosts: []int{ownPort}, routeKeys: unmatchedKeys()})
	for _, p := range []*peer{provider, consumer, javaProvider} {
		p.awaitReady(t)
	}
	toJava := target{pair{lib.name, java.name, openGolden(t, lib.name, java.name)}, javaPort, wefts.forService(0)}
	for _, scenario := range append(lib.withJava, lib.scenarios...) {
		toJava.runScenario(t, consumer, scenario, scenario, "")
	}
	toSelf := target{pair{lib.name, lib.name, openGolden(t, lib.name, lib.name)}, ownPort, wefts.forService(1)}
	for _, scenario := range lib.scenarios {
		toSelf.runScenario(t, consumer, scenario, scenario, "")
	}
	if lib.reportsRejections {
		target{toSelf.pair, ownPort, wefts.forService(2)}.runThroughWefts(t, consumer, "refused", "value", "")
		target{toSelf.pair, ownPort, wefts.forService(3)}.runThroughWefts(t, consumer, "no-route", "value", "")
	}
	if len(lib.fromJava) == 0 {
		return
	}
	javaConsumer := startJava(t, java.name+" consumer", java.module, java.consumer)
	javaConsumer.awaitReady(t)
	fromJava := target{pair{java.name, lib.name, openGolden(t, java.name, lib.name)}, ownPort, wefts.forService(1)}
	for _, scenario := range lib.fromJava {
		fromJava.runScenario(t, javaConsumer, scenario, scenario, "")
	}
}

// TestNode runs the libraries for Node as consumers of Java and Node providers, and as providers of
// Java consumers.
func TestNode(t *testing.T) {
	t.Parallel()
	requireKit(t, "java")
	requireKit(t, "node")
	for _, v := range dubboVersions() {
		t.Run(v.module, func(t *testing.T) {
			t.Parallel()
			lib := nodeLibrary("dubbo", "dubbo")
			lib.withJava, lib.fromJava = []string{"attachments"}, []string{"value"}
			lib.runScenarios(t, dubboPeers(v))
		})
	}
	for name, protocol := range map[string]string{"v1": "bolt", "v2": "boltv2", "v2crc": "boltv2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lib := nodeLibrary(name, protocol)
			lib.withJava, lib.reportsRejections = []string{"one-way"}, true
			if name == "v1" { // the version that SOFARPC uses
				lib.fromJava = []string{"value"}
			}
			lib.runScenarios(t, javaPeers{"sofarpc", "sofa", "sofa.DeskProvider", "sofa.DeskConsumer"})
		})
	}
}

// nodeLibrary returns the peers in Node for a family of link.js.
func nodeLibrary(family, protocol string) foreignLibrary {
	program := func(name string) string { return filepath.Join(kitDir("node"), name) }
	return foreignLibrary{
		name:     "node-" + family,
		protocol: protocol,
		provider: func(t *testing.T, port int) *peer {
			t.Helper()
			return start(t, "node provider", "node", program("provider.js"), family, fmt.Sprint(port))
		},
		consumer: func(t *testing.T) *peer {
			t.Helper()
			return start(t, "node consumer", "node", program("consumer.js"), family)
		},
		scenarios: []string{"value", "runtime-exception", "concurrent", "heartbeat"},
	}
}

// TestDubboGo runs dubbo-go as a consumer of Java and Go providers, and as a provider of Java
// consumers.
func TestDubboGo(t *testing.T) {
	t.Parallel()
	requireKit(t, "java")
	requireKit(t, "go")
	program := filepath.Join(kitDir("go"), "peer")
	lib := foreignLibrary{
		name:     "dubbo-go",
		protocol: "dubbo",
		provider: func(t *testing.T, port int) *peer {
			t.Helper()
			return start(t, "dubbo-go provider", program, "provider", fmt.Sprint(port))
		},
		consumer: func(t *testing.T) *peer {
			t.Helper()
			return start(t, "dubbo-go consumer", program, "consumer")
		},
		scenarios: []string{"value", "runtime-exception", "concurrent"},
		withJava:  []string{"attachments", "null", "user-exception"},
		fromJava:  []string{"value", "runtime-exception"},
	}
	for _, v := range dubboVersions() {
		t.Run(v.module, func(t *testing.T) {
			t.Parallel()
			lib.runScenarios(t, dubboPeers(v))
		})
	}
}
