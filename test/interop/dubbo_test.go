package interop

import (
	"fmt"
	"strings"
	"testing"
)

// dubboVersion is a module of test/interop/java.
type dubboVersion struct {
	module         string
	serializations []string // in addition to Hessian 2
}

func dubboVersions() []dubboVersion {
	return []dubboVersion{
		{"dubbo27", []string{"java", "fastjson"}},
		{"dubbo3", []string{"java", "fastjson2"}},
	}
}

func dubboScenarios() []string {
	return []string{
		"value", "object", "null", "user-exception", "runtime-exception", "attachments", "one-way", "async", "generic",
		"large", "concurrent", "groups", "timeout", "unknown-method", "unknown-service", "serialization",
	}
}

// dubboProvider is a running provider and the sidecars in front of it.
type dubboProvider struct {
	dubboVersion
	peer             *peer
	port             int
	sidecars         sidecars
	changingSidecars sidecars // with a route that changes attachments
}

// changeAttachments returns keys of a route that adds, replaces and removes headers in both
// directions, for the scenario "attachments".
func changeAttachments() object {
	add := func(name, value string) object {
		return object{"header": object{"key": name, "value": value}, "append": false}
	}
	return object{
		"request_headers_to_add":     []object{add("added", "on the way, by %listener_name%"), add("unicode", "\u20ac\u00e4")},
		"request_headers_to_remove":  []string{"user-key"},
		"response_headers_to_add":    []object{add("added", "on the way back"), add("answer-empty", "no more")},
		"response_headers_to_remove": []string{"answered-by"},
	}
}

// TestDubbo runs all scenarios with consumers of each version and providers of each version.
func TestDubbo(t *testing.T) {
	t.Parallel()
	requireKit(t, "java")
	var providers []dubboProvider
	var services []service
	consumers := map[string]*peer{}
	for _, v := range dubboVersions() {
		port := freePort(t)
		args := append([]string{fmt.Sprint(port), v.module}, v.serializations...)
		p := startJava(t, v.module+" provider", v.module, "dubbo.EchoProvider", args...)
		providers = append(providers, dubboProvider{dubboVersion: v, peer: p, port: port})
		services = append(services, service{hosts: []int{port}})
		consumers[v.module] = startJava(t, v.module+" consumer", v.module, "dubbo.EchoConsumer")
	}
	for _, p := range providers {
		p.peer.awaitReady(t)
	}
	for _, p := range providers {
		services = append(services, service{hosts: []int{p.port}, actionKeys: changeAttachments()})
	}
	wefts := startSidecars(t, "dubbo", services...)
	for i := range providers {
		providers[i].sidecars, providers[i].changingSidecars = wefts.forService(i), wefts.forService(len(providers)+i)
	}
	t.Run("all", func(t *testing.T) {
		for _, v := range dubboVersions() {
			t.Run(v.module, func(t *testing.T) {
				t.Parallel() // the consumers are independent
				consumers[v.module].awaitReady(t)
				callDubbo(t, v, consumers[v.module], providers)
			})
		}
	})
}

// callDubbo runs all scenarios with one consumer.
func callDubbo(t *testing.T, v dubboVersion, consumer *peer, providers []dubboProvider) {
	t.Helper()
	var pairs []pair
	for _, p := range providers {
		pair := pair{v.module, p.module, openGolden(t, v.module, p.module)}
		pairs = append(pairs, pair)
		scenarios := dubboScenarios()
		if v.module == p.module { // Dubbo 3 does not read Java objects of 2.7
			for _, s := range v.serializations {
				scenarios = append(scenarios, "serialization name="+s)
			}
		}
		for _, scenario := range scenarios {
			name, option, _ := strings.Cut(scenario, " ")
			target{pair, p.port, p.sidecars}.runScenario(t, consumer, strings.Replace(scenario, " name=", "-", 1), name, option)
		}
		target{pair, p.port, p.sidecars}.runThroughWefts(t, consumer, "deadline", "deadline", "")
		target{pair, p.port, p.changingSidecars}.runThroughWefts(t, consumer, "attachments-changed", "attachments", "")
	}
	var targets []target
	for i, p := range providers {
		targets = append(targets, target{pairs[i], p.port, p.sidecars})
	}
	runIdle(t, consumer, "", targets)
}
