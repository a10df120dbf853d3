package interop

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// drainTimeout bounds the time from SIGTERM to the exit of a Weft under load: half of the default
// drain time. Weft usually needs some milliseconds, or half a second if clients keep their
// connections.
const drainTimeout = 15 * time.Second

// TestDrain stops one of two Wefts with SIGTERM while clients use both. Each Weft has its own
// provider. No call may be lost: Weft sends Dubbo's read-only event or Bolt's GOAWAY, and responds
// to the requests in flight. Bolt's library for Java does not handle GOAWAY, so its consumer calls
// a Weft in front of the two. The test runs alone, as TestRestart does.
func TestDrain(t *testing.T) {
	requireKit(t, "java")
	for _, proto := range loadProtocols() {
		t.Run(proto.name, func(t *testing.T) {
			ports := []int{freePort(t), freePort(t)}
			r := &restartTest{loadProtocol: proto, t: t}
			providers := []*peer{r.start(ports[0], "first"), r.start(ports[1], "second")}
			r.consumer = startJava(t, proto.name+" consumer", proto.module, proto.consumer)
			for _, p := range append(providers, r.consumer) {
				p.awaitReady(t)
			}
			p := pair{consumer: proto.name, provider: proto.name}
			p.runSubtest(t, "drain of a provider's sidecar", twoWefts, func(t *testing.T) {
				wefts := startWeftPair(t, proto.protocol, ports)
				port := freePort(t)
				client := startWeft(t, "the consumer's weft", writeConfig(t, "client", proto.protocol, []int{port}, []service{{hosts: wefts.ports}}))
				r.drainUnderLoad(t, wefts, client, fmt.Sprint("load ", port))
			})
			if proto.protocol == "dubbo" {
				p.runSubtest(t, "drain of a consumer's sidecar", twoWefts, func(t *testing.T) {
					wefts := startWeftPair(t, proto.protocol, ports)
					r.drainUnderLoad(t, wefts, r.consumer, "load 0 ports="+portList(wefts.ports))
				})
			}
		})
	}
}

// weftPair is a pair of Wefts, each with one provider.
type weftPair struct {
	wefts [2]*peer
	ports []int // of the Wefts
}

func startWeftPair(t *testing.T, protocol string, providers []int) weftPair {
	t.Helper()
	var pair weftPair
	for i, provider := range providers {
		port := freePort(t)
		pair.ports = append(pair.ports, port)
		config := writeConfig(t, "server", protocol, []int{port}, []service{{hosts: []int{provider}}})
		pair.wefts[i] = startWeft(t, fmt.Sprintf("weft %d of 2", i+1), config)
	}
	return pair
}

// startWeft starts a Weft and waits until it is ready.
func startWeft(t *testing.T, name, config string) *peer {
	t.Helper()
	p := start(t, name, os.Getenv(weftEnv), "start", "-c", config)
	p.awaitServing(t)
	return p
}

// drainUnderLoad starts a load on the consumer and stops the first of two Wefts. client sends
// requests to both: it is the consumer, or the Weft in front of them.
func (r *restartTest) drainUnderLoad(t *testing.T, pair weftPair, client *peer, load string) {
	t.Helper()
	r.consumer.send(t, fmt.Sprintf("%s threads=%d millis=5 %s", load, concurrency, r.options))
	start := time.Now()
	for range pair.wefts {
		r.awaitReport(t, firstResponse)
	}
	r.awaitResponses(t)
	if len(connections(t, client, pair.ports[0])) == 0 {
		t.Errorf("%s has no connection to the Weft that will stop", client.Name())
	}
	stoppedAt := time.Now()
	pair.wefts[0].terminate(t, drainTimeout)
	exitTime := time.Since(stoppedAt)
	r.awaitResponses(t) // responses of the other Weft
	var o outage
	r.stop(t, &o)
	o.duration = time.Since(start)
	t.Logf("%v; exited after %v", o, exitTime)
	o.checkLatency(t)
	for _, group := range o.failures {
		t.Errorf("lost %v after SIGTERM: %v", time.UnixMilli(group.LastEnded).Sub(stoppedAt), group)
	}
}

// terminate sends SIGTERM to a process, and verifies that it exits with status 0 within d.
func (p *peer) terminate(t *testing.T, d time.Duration) {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case <-p.Done():
		if status := p.ExitCode(); status != 0 {
			t.Errorf("%s exited with status %d after SIGTERM, want 0", p.Name(), status)
		}
	case <-timeout.C:
		t.Fatalf("%s has not exited after %v", p.Name(), d)
	}
}
