package dubbo

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// sessionTimeout is the maximum session timeout of the servers of these tests: twenty ticks. Dubbo
// requests a longer one.
const sessionTimeout = 10 * time.Second

// outageDuration returns how long an outage lasts: WEFT_OUTAGE, or 15 seconds, which is longer than
// every session timeout. With -short it is 5 seconds, which is shorter than Dubbo's timeout.
func outageDuration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("WEFT_OUTAGE")
	switch {
	case text == "" && testing.Short():
		return 5 * time.Second
	case text == "":
		return 15 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("WEFT_OUTAGE: %v", err)
	}
	return d
}

// load is a consumer process whose threads call through a sidecar continuously.
type load struct {
	t        *testing.T
	consumer *process
}

// concurrency is the number of threads of a load.
const concurrency = 8

// startLoad starts a load and returns when calls succeed.
func startLoad(t *testing.T, consumerSidecar *sidecar) *load {
	t.Helper()
	l := &load{t, startConsumer(t, "dubbo27")}
	l.consumer.send(fmt.Sprintf("load %d threads=%d millis=5", consumerSidecar.egress, concurrency))
	l.consumer.awaitLine("first response of")
	return l
}

// stop ends the load and returns the failed calls by kind, and the number of successful ones.
func (l *load) stop() (failed []failedCalls, succeeded int) {
	l.t.Helper()
	l.consumer.send("stop")
	for _, c := range l.consumer.readCalls() {
		switch c.Name {
		case "total responses":
			n, _ := c.Value.(float64)
			succeeded = int(n)
		case "lost":
			fields, ok := c.Value.(map[string]any)
			if !ok {
				l.t.Fatalf("the load reports %s", c.text)
			}
			number := func(key string) int {
				n, _ := fields[key].(float64)
				return int(n)
			}
			failed = append(failed, failedCalls{number("count"), time.UnixMilli(int64(number("last_began_ms"))), c.text})
		}
	}
	if succeeded == 0 {
		l.t.Error("no call succeeded")
	}
	return failed, succeeded
}

// failedCalls is a group of calls that failed in the same way.
type failedCalls struct {
	count int
	last  time.Time // when the last of them began
	text  string
}

// stopWithoutFailures ends the load and verifies that every call succeeded.
func (l *load) stopWithoutFailures() {
	l.t.Helper()
	failed, succeeded := l.stop()
	for _, c := range failed {
		l.t.Errorf("calls failed: %s", c.text)
	}
	l.t.Logf("%d calls succeeded", succeeded)
}

// sleep waits in real time, because the sessions of a real registry do not expire otherwise.
//
//arch:clock an outage of real servers lasts for real time
func sleep(d time.Duration) { time.Sleep(d) }

// sidecarPair holds the sidecar of a consumer, and two providers. The first provider has a sidecar.
type sidecarPair struct {
	consumerSidecar, providerSidecar *sidecar
	directPort                       int // port of the provider without a sidecar
}

// startSidecarPair starts both providers and both sidecars. The arguments are the registry
// addresses of the provider's sidecar, of the consumer's sidecar and of the provider without a
// sidecar. It returns when the consumer's sidecar has discovered both providers.
func startSidecarPair(t *testing.T, providerRegistry, consumerRegistry, directRegistry string) sidecarPair {
	t.Helper()
	app := freePort(t)
	p := sidecarPair{directPort: freePort(t)}
	startProvider(t, "dubbo27", "behind", app)
	startProvider(t, "dubbo3", "plain", p.directPort, "registry=zookeeper://"+directRegistry)
	p.providerSidecar = startSidecar(t, sidecarOptions{registry: providerRegistry, providerPort: app})
	p.providerSidecar.callAPIForExports("/pub")
	p.consumerSidecar = startSidecar(t, sidecarOptions{registry: consumerRegistry})
	p.consumerSidecar.callAPIForExports("/sub")
	p.consumerSidecar.awaitProviders(p.providerSidecar.ingress, p.directPort)
	return p
}

// registeredProviders returns the registered providers of the export without group and version:
// host:port, and the ZooKeeper session of the registration.
func (s session) registeredProviders() map[string]int64 {
	s.t.Helper()
	parent := "/dubbo/" + echo + "/providers"
	children, _, err := s.conn.Children(parent)
	if err != nil {
		return nil // the caller polls again
	}
	found := map[string]int64{}
	for _, child := range children {
		_, stat, err := s.conn.Get(parent + "/" + child)
		if err != nil || strings.Contains(child, "group%3D") {
			continue
		}
		_, rest, _ := strings.Cut(child, "%3A%2F%2F")
		address, _, _ := strings.Cut(rest, "%2F")
		found[strings.Replace(address, "%3A", ":", 1)] = stat.EphemeralOwner
	}
	return found
}

// awaitRegistered waits until a session other than previous has registered the sidecar's provider,
// and returns that session. If previous is 0, any session matches.
func (s session) awaitRegistered(w *sidecar, previous int64) int64 {
	s.t.Helper()
	var owner int64
	eventually(s.t, func() string {
		providers := s.registeredProviders()
		owner = providers[fmt.Sprintf("%s:%d", host, w.ingress)]
		if owner == 0 || owner == previous {
			return fmt.Sprintf("registrations of %d: %v; previous session %d", w.ingress, providers, previous)
		}
		return ""
	})
	return owner
}

// TestRegistryIsKilled verifies that no call fails while ZooKeeper is down, and that registration
// and discovery work after its restart, with and without its data.
func TestRegistryIsKilled(t *testing.T) {
	skipUnlessReady(t)
	t.Parallel()
	for _, losesData := range []bool{false, true} {
		t.Run(fmt.Sprintf("loses data: %v", losesData), func(t *testing.T) {
			server := zookeeper.Start(t, zookeeper.Options{})
			p := startSidecarPair(t, server.Address(), server.Address(), server.Address())
			l := startLoad(t, p.consumerSidecar)
			server.Kill()
			if losesData {
				server.RemoveData()
				sleep(time.Second)
			} else {
				sleep(outageDuration(t))
			}
			server.Restart()
			// The test does not check how the provider without a sidecar reconnects.
			dial(t, server).awaitRegistered(p.providerSidecar, 0)
			third := freePort(t)
			startProvider(t, "dubbo27", "third", third, registryOption(server, ""))
			eventually(t, func() string {
				s, err := p.consumerSidecar.subscribed(echo)
				if active := strings.Join(s.activeAddresses(), " "); err != nil || !strings.Contains(active, fmt.Sprint(third)) || !strings.Contains(active, fmt.Sprint(p.providerSidecar.ingress)) {
					return fmt.Sprintf("calls go to %s, want also %d and %d: %v", active, third, p.providerSidecar.ingress, err)
				}
				return ""
			})
			l.stopWithoutFailures()
		})
	}
}

// TestLeaderIsKilled verifies that no call fails when the leader of three servers is killed.
func TestLeaderIsKilled(t *testing.T) {
	skipUnlessReady(t)
	t.Parallel()
	ensemble := zookeeper.StartEnsemble(t, zookeeper.Options{})
	first := ensemble.Servers[0].Address()
	p := startSidecarPair(t, ensemble.Address(), ensemble.Address(), first+"?backup="+ensemble.Servers[1].Address()+","+ensemble.Servers[2].Address())
	l := startLoad(t, p.consumerSidecar)
	leader := ensemble.Leader()
	leader.Kill()
	sleep(sessionTimeout)
	for _, s := range ensemble.Servers {
		if s != leader {
			s.AwaitReady()
			dial(t, s).awaitRegistered(p.providerSidecar, 0)
		}
	}
	p.consumerSidecar.awaitProviders(p.providerSidecar.ingress, p.directPort)
	l.stopWithoutFailures()
}

// TestNetworkPartition verifies that no call fails while one side cannot reach ZooKeeper until its
// sessions have expired.
func TestNetworkPartition(t *testing.T) {
	skipUnlessReady(t)
	t.Parallel()
	// Each sidecar connects to a separate address of the ZooKeeper server, so that the test can
	// block one of them.
	const providerZK, consumerZK = "10.77.1.1", "10.77.1.2"
	for _, address := range []string{providerZK, consumerZK} {
		if err := addHost(address); err != nil {
			t.Fatal(err)
		}
	}
	server := zookeeper.Start(t, zookeeper.Options{Config: []string{"clientPortAddress=0.0.0.0"}})
	port := server.Address()[strings.LastIndexByte(server.Address(), ':'):]
	p := startSidecarPair(t, providerZK+port, consumerZK+port, server.Address())
	zkSession := dial(t, server)
	owner := zkSession.awaitRegistered(p.providerSidecar, 0)
	l := startLoad(t, p.consumerSidecar)

	restore := blockAddress(t, providerZK)
	eventually(t, func() string {
		if providers := zkSession.registeredProviders(); providers[fmt.Sprintf("%s:%d", host, p.providerSidecar.ingress)] != 0 {
			return fmt.Sprintf("the session of the provider's sidecar has not expired: %v", providers)
		}
		return ""
	})
	p.consumerSidecar.awaitProviders(p.directPort)
	restore()
	zkSession.awaitRegistered(p.providerSidecar, owner)
	p.consumerSidecar.awaitProviders(p.providerSidecar.ingress, p.directPort)

	restore = blockAddress(t, consumerZK)
	sleep(sessionTimeout)
	third := freePort(t)
	startProvider(t, "dubbo27", "third", third, registryOption(server, ""))
	restore()
	p.consumerSidecar.awaitProviders(p.providerSidecar.ingress, p.directPort, third)
	l.stopWithoutFailures()
}

// TestProviderDies verifies that, when a provider dies, at most the calls in flight and the five
// that eject the host fail, and no call fails if retries are allowed. It also verifies that the
// provider disappears from the provider list when its session ends.
func TestProviderDies(t *testing.T) {
	skipUnlessReady(t)
	t.Parallel()
	for _, retries := range []int{0, 2} {
		t.Run(fmt.Sprintf("%d retries", retries), func(t *testing.T) {
			server := zookeeper.Start(t, zookeeper.Options{})
			dying, live := freePort(t), freePort(t)
			provider := startProvider(t, "dubbo27", "dying", dying, registryOption(server, ""), "warmup=1")
			startProvider(t, "dubbo3", "live", live, registryOption(server, ""), "warmup=1")
			consumerSidecar := startSidecar(t, sidecarOptions{registry: server.Address()})
			consumerSidecar.callAPIForExports("/sub", object{"parameters": object{"retries": fmt.Sprint(retries)}})
			consumerSidecar.awaitProviders(dying, live)
			l := startLoad(t, consumerSidecar)
			l.consumer.awaitLine("responses until now")
			provider.Kill()
			died := time.Now()
			consumerSidecar.awaitProviders(live)
			if elapsed := time.Since(died); elapsed > sessionTimeout+5*time.Second {
				t.Errorf("the provider is in the list %v after it died, want at most %v", elapsed, sessionTimeout+5*time.Second)
			}
			failed, succeeded := l.stop()
			sum := 0
			for _, c := range failed {
				sum += c.count
				if after := c.last.Sub(died); after > time.Second {
					t.Errorf("a call that began %v after the provider died failed: %s, want only calls in the first second", after, c.text)
				}
			}
			// Five consecutive failures eject a host, in addition to the calls in flight.
			maximum := concurrency + 5
			if retries > 0 {
				maximum = 0
			}
			if sum > maximum {
				t.Errorf("%d calls failed, want at most %d: %v", sum, maximum, failed)
			}
			t.Logf("%d calls of %d failed", sum, sum+succeeded)
		})
	}
}

// TestSidecarIsKilled verifies that a restarted Weft publishes its saved services again, and that
// these registrations remain when the previous session expires.
func TestSidecarIsKilled(t *testing.T) {
	skipUnlessReady(t)
	t.Parallel()
	server := zookeeper.Start(t, zookeeper.Options{})
	p := startSidecarPair(t, server.Address(), server.Address(), server.Address())
	zkSession := dial(t, server)
	owner := zkSession.awaitRegistered(p.providerSidecar, 0)
	p.providerSidecar.awaitSaved()
	p.providerSidecar.weft.Kill()
	p.providerSidecar.restart()
	zkSession.awaitRegistered(p.providerSidecar, owner)
	sleep(p.providerSidecar.options.sessionTimeout + 3*time.Second)
	zkSession.awaitRegistered(p.providerSidecar, owner)
	p.consumerSidecar.awaitProviders(p.providerSidecar.ingress, p.directPort)
	l := startLoad(t, p.consumerSidecar)
	l.consumer.awaitLine("responses until now")
	l.stopWithoutFailures()

	// The consumer's sidecar restores the providers without the registry and the application.
	server.Kill()
	p.consumerSidecar.weft.Kill()
	p.consumerSidecar.restart()
	p.consumerSidecar.awaitProviders(p.providerSidecar.ingress, p.directPort)
	l = startLoad(t, p.consumerSidecar)
	l.consumer.awaitLine("responses until now")
	l.stopWithoutFailures()
}

// TestSidecarIsStopped verifies that no call fails while the test stops and restarts a sidecar
// twice. The sidecar unregisters, waits and drains.
func TestSidecarIsStopped(t *testing.T) {
	skipUnlessReady(t)
	t.Parallel()
	server := zookeeper.Start(t, zookeeper.Options{})
	p := startSidecarPair(t, server.Address(), server.Address(), server.Address())
	l := startLoad(t, p.consumerSidecar)
	l.consumer.awaitLine("first response of") // from the provider that responds second
	for range 2 {
		p.providerSidecar.weft.signal(syscall.SIGTERM)
		p.consumerSidecar.awaitProviders(p.directPort)
		p.providerSidecar.weft.awaitExit()
		p.providerSidecar.restart()
		p.consumerSidecar.awaitProviders(p.providerSidecar.ingress, p.directPort)
	}
	l.stopWithoutFailures()
}
