package interop

import (
	"fmt"
	"path/filepath"
	"testing"
)

// nodeFamily is a protocol that the peers in Node speak.
type nodeFamily struct {
	name      string   // as link.js has it
	protocol  string   // Weft's name
	scenarios []string // beside those that each family has, with a provider in Java
}

// TestNode has the libraries for Node, which have codecs of their own, call the
// peers in Java, each other, and be called.
func TestNode(t *testing.T) {
	t.Parallel()
	need(t, "java")
	need(t, "node")
	dubbo := nodeFamily{"dubbo", "dubbo", []string{"attachments"}}
	for _, version := range dubboVersions() {
		t.Run(version.module, func(t *testing.T) {
			t.Parallel()
			playNode(t, dubbo, javaPeers{version.module, version.module, "dubbo.EchoProvider", "dubbo.EchoConsumer"})
		})
	}
	for name, protocol := range map[string]string{"v1": "bolt", "v2": "boltv2", "v2crc": "boltv2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bolt := nodeFamily{name, protocol, []string{"one-way"}}
			playNode(t, bolt, javaPeers{"sofarpc", "sofa", "sofa.DeskProvider", "sofa.DeskConsumer"})
		})
	}
}

// javaPeers are the peers in Java of a family in Node.
type javaPeers struct{ name, module, provider, consumer string }

// playNode plays a family with its peers in Java.
func playNode(t *testing.T, f nodeFamily, java javaPeers) {
	t.Helper()
	inJava, inNode := freePort(t), freePort(t)
	javaProvider := startJava(t, java.name+" provider", java.module, java.provider, fmt.Sprint(inJava), java.name)
	nodeProvider := startNode(t, "node provider", "provider", f.name, fmt.Sprint(inNode))
	consumer := startNode(t, "node consumer", "consumer", f.name)
	wefts := startSidecars(t, f.protocol, service{hosts: []int{inJava}}, service{hosts: []int{inNode}})
	for _, p := range []*peer{nodeProvider, consumer, javaProvider} {
		p.awaitReady(t)
	}
	name := "node-" + f.name
	toJava := way{pair{name, java.name, openGolden(t, name, java.name)}, inJava, wefts.to(0)}
	toNode := way{pair{name, name, openGolden(t, name, name)}, inNode, wefts.to(1)}
	common := []string{"value", "runtime-exception", "concurrent", "heartbeat"}
	for _, scenario := range append(common, f.scenarios...) {
		toJava.play(t, consumer, scenario, scenario, "")
	}
	for _, scenario := range common {
		toNode.play(t, consumer, scenario, scenario, "")
	}
	if f.protocol == "boltv2" {
		return // SOFARPC in Java speaks version 1
	}
	javaConsumer := startJava(t, java.name+" consumer", java.module, java.consumer)
	javaConsumer.awaitReady(t)
	fromJava := way{pair{java.name, name, openGolden(t, java.name, name)}, inNode, wefts.to(1)}
	fromJava.play(t, javaConsumer, "value", "value", "")
}

// startNode runs a program of test/interop/node.
func startNode(t *testing.T, name, program string, args ...string) *peer {
	t.Helper()
	return start(t, name, "node", append([]string{filepath.Join(kitDir("node"), program+".js")}, args...)...)
}
