package interop

import (
	"fmt"
	"path/filepath"
	"testing"
)

// foreign is a library in a language other than Java, with its own codecs.
type foreign struct {
	name     string // of its peers
	protocol string // its name in Weft
	provider func(t *testing.T, port int) *peer
	consumer func(t *testing.T) *peer

	scenarios []string // of its consumer, with its own provider and with one in Java
	withJava  []string // additional ones, with a provider in Java
	fromJava  []string // of a consumer in Java, with its provider
	refused   bool     // its consumer reports why Weft rejects a call
}

// javaPeers are the peers in Java that a foreign library calls, and that call it.
type javaPeers struct{ name, module, provider, consumer string }

// dubboPeers returns the peers of a version.
func dubboPeers(v dubboVersion) javaPeers {
	return javaPeers{v.module, v.module, "dubbo.EchoProvider", "dubbo.EchoConsumer"}
}

// play plays the scenarios of a library with peers in Java and with its own provider.
func (f foreign) play(t *testing.T, java javaPeers) {
	t.Helper()
	inJava, own := freePort(t), freePort(t)
	javaProvider := startJava(t, java.name+" provider", java.module, java.provider, fmt.Sprint(inJava), java.name)
	provider, consumer := f.provider(t, own), f.consumer(t)
	wefts := startSidecars(t, f.protocol, service{hosts: []int{inJava}}, service{hosts: []int{own}},
		service{hosts: []int{own}, beside: refusing()}, service{hosts: []int{own}, beside: missing()})
	for _, p := range []*peer{provider, consumer, javaProvider} {
		p.awaitReady(t)
	}
	toJava := way{pair{f.name, java.name, openGolden(t, f.name, java.name)}, inJava, wefts.to(0)}
	for _, scenario := range append(f.withJava, f.scenarios...) {
		toJava.play(t, consumer, scenario, scenario, "")
	}
	toOwn := way{pair{f.name, f.name, openGolden(t, f.name, f.name)}, own, wefts.to(1)}
	for _, scenario := range f.scenarios {
		toOwn.play(t, consumer, scenario, scenario, "")
	}
	if f.refused {
		way{toOwn.pair, own, wefts.to(2)}.playThrough(t, consumer, "refused", "value", "")
		way{toOwn.pair, own, wefts.to(3)}.playThrough(t, consumer, "no-route", "value", "")
	}
	if len(f.fromJava) == 0 {
		return
	}
	javaConsumer := startJava(t, java.name+" consumer", java.module, java.consumer)
	javaConsumer.awaitReady(t)
	fromJava := way{pair{java.name, f.name, openGolden(t, java.name, f.name)}, own, wefts.to(1)}
	for _, scenario := range f.fromJava {
		fromJava.play(t, javaConsumer, scenario, scenario, "")
	}
}

// TestNode runs the libraries for Node as consumers of Java and Node providers, and as providers of
// Java consumers.
func TestNode(t *testing.T) {
	t.Parallel()
	need(t, "java")
	need(t, "node")
	for _, v := range dubboVersions() {
		t.Run(v.module, func(t *testing.T) {
			t.Parallel()
			f := inNode("dubbo", "dubbo")
			f.withJava, f.fromJava = []string{"attachments"}, []string{"value"}
			f.play(t, dubboPeers(v))
		})
	}
	for name, protocol := range map[string]string{"v1": "bolt", "v2": "boltv2", "v2crc": "boltv2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := inNode(name, protocol)
			f.withJava, f.refused = []string{"one-way"}, true
			if name == "v1" { // the version that SOFARPC uses
				f.fromJava = []string{"value"}
			}
			f.play(t, javaPeers{"sofarpc", "sofa", "sofa.DeskProvider", "sofa.DeskConsumer"})
		})
	}
}

// inNode returns the peers in Node for a family of link.js.
func inNode(family, protocol string) foreign {
	program := func(name string) string { return filepath.Join(kitDir("node"), name) }
	return foreign{
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
	need(t, "java")
	need(t, "go")
	program := filepath.Join(kitDir("go"), "peer")
	f := foreign{
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
			f.play(t, dubboPeers(v))
		})
	}
}
