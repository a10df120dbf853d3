package interop

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// How long the call of Dubbo's scenario "timeout" may take that has 400 ms and an
// answer after 1 s. Dubbo looks at its clock every 30 ms.
const (
	timeoutFloor   = 350 * time.Millisecond
	timeoutCeiling = 900 * time.Millisecond
)

// dubboVersion is a module of test/interop/java.
type dubboVersion struct {
	module         string
	serializations []string // that it has beside Hessian 2
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

// dubboProvider is a running one, and the ways to it.
type dubboProvider struct {
	dubboVersion
	peer     *peer
	port     int
	sidecars sidecars
}

// TestDubbo has consumers of each version call providers of each version, in
// every way that Dubbo has.
func TestDubbo(t *testing.T) {
	needJava(t)
	var providers []dubboProvider
	var services []service
	consumers := map[string]*peer{}
	for _, v := range dubboVersions() {
		port := freePort(t)
		args := append([]string{fmt.Sprint(port), v.module}, v.serializations...)
		p := startJava(t, v.module+" provider", v.module, "dubbo.EchoProvider", args...)
		providers = append(providers, dubboProvider{dubboVersion: v, peer: p, port: port})
		services = append(services, service{port})
		consumers[v.module] = startJava(t, v.module+" consumer", v.module, "dubbo.EchoConsumer")
	}
	for _, p := range providers {
		p.peer.awaitReady(t)
	}
	wefts := startSidecars(t, "dubbo", services...)
	for i := range providers {
		providers[i].sidecars = wefts
		if wefts.problem == "" {
			providers[i].sidecars.ports = wefts.ports[i : i+1]
		}
	}
	t.Run("all", func(t *testing.T) {
		for _, v := range dubboVersions() {
			t.Run(v.module, func(t *testing.T) {
				t.Parallel() // the consumers know nothing of each other
				consumers[v.module].awaitReady(t)
				callDubbo(t, v, consumers[v.module], providers)
			})
		}
	})
	t.Logf("\n%s", &results)
}

// callDubbo plays everything with one consumer.
func callDubbo(t *testing.T, v dubboVersion, consumer *peer, providers []dubboProvider) {
	t.Helper()
	var pairs []pair
	for _, p := range providers {
		pair := pair{v.module, p.module, openGolden(t, v.module, p.module)}
		pairs = append(pairs, pair)
		scenarios := dubboScenarios()
		if v.module == p.module { // Dubbo 3 reads no Java objects of 2.7
			for _, s := range v.serializations {
				scenarios = append(scenarios, "serialization name="+s)
			}
		}
		for _, scenario := range scenarios {
			name, option, _ := strings.Cut(scenario, " ")
			label := strings.Replace(scenario, " name=", "-", 1)
			calls := consumer.play(t, fmt.Sprintf("%s %d %s", name, p.port, option), patience)
			pair.hold(t, label, direct, calls)
			if p.sidecars.problem != "" {
				pair.skip(t, label, through, p.sidecars.problem)
				continue
			}
			calls = consumer.play(t, fmt.Sprintf("%s %d %s", name, p.sidecars.ports[0], option), patience)
			pair.hold(t, label, through, calls)
		}
	}
	idleDubbo(t, consumer, providers, pairs)
}

// idleDubbo lets the consumer's connections rest, all at the same time, for more
// than the three heartbeats after which either side would give them up.
func idleDubbo(t *testing.T, consumer *peer, providers []dubboProvider, pairs []pair) {
	t.Helper()
	idle := 10 * time.Second
	if os.Getenv("WEFT_INTEROP_LONG") != "" {
		idle = time.Minute
	}
	var ports []int
	for _, p := range providers {
		ports = append(ports, p.port)
	}
	for _, p := range providers {
		ports = append(ports, p.sidecars.ports...)
	}
	command := fmt.Sprintf("idle 0 ports=%s seconds=%d", portList(ports), int(idle.Seconds()))
	reports := consumer.play(t, command, patience+idle)
	for i := range ports {
		number := fmt.Sprintf("%d ", i)
		var calls []call
		for _, c := range reports {
			if strings.HasPrefix(c.Name, number) {
				c.text = strings.Replace(c.text, number, "", 1)
				calls = append(calls, c)
			}
		}
		by := direct
		if i >= len(pairs) {
			by = through
		}
		pairs[i%len(pairs)].hold(t, "idle", by, calls)
	}
	for i, p := range providers {
		if p.sidecars.problem != "" {
			pairs[i].skip(t, "idle", through, p.sidecars.problem)
		}
	}
}
