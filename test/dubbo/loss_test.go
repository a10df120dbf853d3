package dubbo

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/zookeeper"
)

// sessionLasts is how long the servers of these tests keep a session that they do not hear
// of, at most: twenty ticks. It is less than Dubbo asks for.
const sessionLasts = 10 * time.Second

// lossLasts is how long a loss lasts: longer than any session.
func lossLasts() time.Duration {
	if testing.Short() {
		return 5 * time.Second
	}
	return 30 * time.Second
}

// load is callers that call through a sidecar without pause.
type load struct {
	t        *testing.T
	consumer *process
}

// callers is how many callers a load has.
const callers = 8

// startLoad returns when calls are answered.
func startLoad(t *testing.T, near *sidecar) *load {
	t.Helper()
	l := &load{t, startConsumer(t, "dubbo27")}
	l.consumer.say(fmt.Sprintf("load %d callers=%d millis=5", near.egress, callers))
	l.consumer.awaitLine("first answer of")
	return l
}

// stop ends the load and returns the calls that failed, with how often.
func (l *load) stop() (lost []lostCalls, answered int) {
	l.t.Helper()
	l.consumer.say("stop")
	for _, c := range l.consumer.calls() {
		switch c.Name {
		case "answered":
			n, _ := c.Value.(float64)
			answered = int(n)
		case "lost":
			what, ok := c.Value.(map[string]any)
			if !ok {
				l.t.Fatalf("the load reports %s", c.text)
			}
			number := func(key string) int {
				n, _ := what[key].(float64)
				return int(n)
			}
			lost = append(lost, lostCalls{number("count"), time.UnixMilli(int64(number("last_began_ms"))), c.text})
		}
	}
	if answered == 0 {
		l.t.Error("no call was answered")
	}
	return lost, answered
}

// lostCalls are calls that failed in the same way.
type lostCalls struct {
	count int
	last  time.Time // when the last of them began
	text  string
}

// stopWithoutLoss ends the load, of which every call must have been answered well.
func (l *load) stopWithoutLoss() {
	l.t.Helper()
	lost, answered := l.stop()
	for _, c := range lost {
		l.t.Errorf("calls failed: %s", c.text)
	}
	l.t.Logf("%d calls were answered", answered)
}

// wait lets time pass while others call.
func wait(d time.Duration) { <-time.After(d) }

// pair is a consumer's sidecar, and two providers of which the first has a sidecar.
type pair struct {
	near, far *sidecar
	plain     int // port of the provider without
}

// startPair runs both providers, registered at the addresses of one registry for the far
// sidecar, the near one and plain Dubbo, and returns when both are known.
func startPair(t *testing.T, far, near, plain string) pair {
	t.Helper()
	app := freePort(t)
	p := pair{plain: freePort(t)}
	startProvider(t, "dubbo27", "behind", app)
	startProvider(t, "dubbo3", "plain", p.plain, "registry=zookeeper://"+plain)
	p.far = startSidecar(t, setting{registry: far, app: app})
	p.far.askAll("/pub")
	p.near = startSidecar(t, setting{registry: near})
	p.near.askAll("/sub")
	p.near.awaitProviders(p.far.ingress, p.plain)
	return p
}

// published is a line of ZooKeeper's for each provider of the export without group and
// version: port of host, and the session that it is of.
func (s session) published() map[string]int64 {
	s.t.Helper()
	folder := "/dubbo/" + echo + "/providers"
	children, _, err := s.conn.Children(folder)
	if err != nil {
		return nil // the next look tells
	}
	found := map[string]int64{}
	for _, child := range children {
		_, stat, err := s.conn.Get(folder + "/" + child)
		if err != nil || strings.Contains(child, "group%3D") {
			continue
		}
		_, rest, _ := strings.Cut(child, "%3A%2F%2F")
		address, _, _ := strings.Cut(rest, "%2F")
		found[strings.Replace(address, "%3A", ":", 1)] = stat.EphemeralOwner
	}
	return found
}

// awaitPublished waits until the sidecar's provider is registered by another session than
// the one before, which is 0 if any is right, and returns the session.
func (s session) awaitPublished(w *sidecar, before int64) int64 {
	s.t.Helper()
	var owner int64
	eventually(s.t, func() string {
		all := s.published()
		owner = all[fmt.Sprintf("%s:%d", host, w.ingress)]
		if owner == 0 || owner == before {
			return fmt.Sprintf("of %d is registered: %v; before, the session was %d", w.ingress, all, before)
		}
		return ""
	})
	return owner
}

// TestRegistryIsKilled: while ZooKeeper is not there no call is lost, and when it is back
// everything goes on, with its data and without them.
func TestRegistryIsKilled(t *testing.T) {
	begin(t)
	t.Parallel()
	for _, forgets := range []bool{false, true} {
		t.Run(fmt.Sprintf("forgets %v", forgets), func(t *testing.T) {
			server := zookeeper.Start(t, zookeeper.Options{})
			p := startPair(t, server.Address(), server.Address(), server.Address())
			l := startLoad(t, p.near)
			server.Kill()
			if forgets {
				server.Forget()
				wait(time.Second)
			} else {
				wait(lossLasts())
			}
			server.Restart()
			// Plain Dubbo has its own ways of coming back; Weft's are looked at.
			dial(t, server).awaitPublished(p.far, 0)
			third := freePort(t)
			startProvider(t, "dubbo27", "third", third, plainly(server, ""))
			eventually(t, func() string {
				s, err := p.near.subscribed(echo)
				if used := strings.Join(s.used(), " "); err != nil || !strings.Contains(used, fmt.Sprint(third)) || !strings.Contains(used, fmt.Sprint(p.far.ingress)) {
					return fmt.Sprintf("calls go to %s, want also %d and %d: %v", used, third, p.far.ingress, err)
				}
				return ""
			})
			l.stopWithoutLoss()
		})
	}
}

// TestLeaderIsKilled: of three servers the one that leads goes.
func TestLeaderIsKilled(t *testing.T) {
	begin(t)
	t.Parallel()
	ensemble := zookeeper.StartEnsemble(t, zookeeper.Options{})
	one := ensemble.Servers[0].Address()
	p := startPair(t, ensemble.Address(), ensemble.Address(), one+"?backup="+ensemble.Servers[1].Address()+","+ensemble.Servers[2].Address())
	l := startLoad(t, p.near)
	leader := ensemble.Leader()
	leader.Kill()
	wait(sessionLasts)
	for _, s := range ensemble.Servers {
		if s != leader {
			s.Await()
			dial(t, s).awaitPublished(p.far, 0)
		}
	}
	p.near.awaitProviders(p.far.ingress, p.plain)
	l.stopWithoutLoss()
}

// TestNetworkIsCut: ZooKeeper cannot be reached from one side, until the sessions there
// have expired.
func TestNetworkIsCut(t *testing.T) {
	begin(t)
	t.Parallel()
	// Both sidecars see the server at an address of their own, which can be cut off.
	const forFar, forNear = "10.77.1.1", "10.77.1.2"
	for _, address := range []string{forFar, forNear} {
		if err := addHost(address); err != nil {
			t.Fatal(err)
		}
	}
	server := zookeeper.Start(t, zookeeper.Options{Config: []string{"clientPortAddress=0.0.0.0"}})
	port := server.Address()[strings.LastIndexByte(server.Address(), ':'):]
	p := startPair(t, forFar+port, forNear+port, server.Address())
	judge := dial(t, server)
	owner := judge.awaitPublished(p.far, 0)
	l := startLoad(t, p.near)

	restore := cut(t, forFar)
	eventually(t, func() string {
		if all := judge.published(); all[fmt.Sprintf("%s:%d", host, p.far.ingress)] != 0 {
			return fmt.Sprintf("the session of the provider's sidecar has not expired: %v", all)
		}
		return ""
	})
	p.near.awaitProviders(p.plain)
	restore()
	judge.awaitPublished(p.far, owner)
	p.near.awaitProviders(p.far.ingress, p.plain)

	restore = cut(t, forNear)
	wait(sessionLasts)
	third := freePort(t)
	startProvider(t, "dubbo27", "third", third, plainly(server, ""))
	restore()
	p.near.awaitProviders(p.far.ingress, p.plain, third)
	l.stopWithoutLoss()
}

// TestProviderDies: calls that were under way on it are lost unless they may be made
// again, and no others; and it leaves the list when its session ends.
func TestProviderDies(t *testing.T) {
	begin(t)
	t.Parallel()
	for _, retries := range []int{0, 2} {
		t.Run(fmt.Sprintf("%d retries", retries), func(t *testing.T) {
			server := zookeeper.Start(t, zookeeper.Options{})
			dies, lives := freePort(t), freePort(t)
			doomed := startProvider(t, "dubbo27", "dies", dies, plainly(server, ""), "warmup=1")
			startProvider(t, "dubbo3", "lives", lives, plainly(server, ""), "warmup=1")
			near := startSidecar(t, setting{registry: server.Address()})
			near.askAll("/sub", object{"parameters": object{"retries": fmt.Sprint(retries)}})
			near.awaitProviders(dies, lives)
			l := startLoad(t, near)
			l.consumer.awaitLine("answers until now")
			doomed.Kill()
			died := time.Now()
			near.awaitProviders(lives)
			if took := time.Since(died); took > sessionLasts+5*time.Second {
				t.Errorf("the provider is in the list %v after it died", took)
			}
			lost, answered := l.stop()
			sum := 0
			for _, c := range lost {
				sum += c.count
				if after := c.last.Sub(died); after > time.Second {
					t.Errorf("a call fails that began %v after the provider died: %s", after, c.text)
				}
			}
			// Five failures in a row eject a host, beside those that were under way.
			most := callers + 5
			if retries > 0 {
				most = 0
			}
			if sum > most {
				t.Errorf("%d calls are lost, want at most %d: %v", sum, most, lost)
			}
			t.Logf("%d calls of %d are lost", sum, sum+answered)
		})
	}
}

// TestSidecarIsKilled: what was published before is published again by the Weft after it,
// and stays when the session before expires.
func TestSidecarIsKilled(t *testing.T) {
	begin(t)
	t.Parallel()
	server := zookeeper.Start(t, zookeeper.Options{})
	p := startPair(t, server.Address(), server.Address(), server.Address())
	judge := dial(t, server)
	owner := judge.awaitPublished(p.far, 0)
	p.far.awaitSaved()
	p.far.weft.Kill()
	p.far.restart()
	judge.awaitPublished(p.far, owner)
	wait(p.far.setting.session + 3*time.Second)
	judge.awaitPublished(p.far, owner)
	p.near.awaitProviders(p.far.ingress, p.plain)
	l := startLoad(t, p.near)
	l.consumer.awaitLine("answers until now")
	l.stopWithoutLoss()

	// The consumer's sidecar knows whom to call before anybody says it again.
	server.Kill()
	p.near.weft.Kill()
	p.near.restart()
	p.near.awaitProviders(p.far.ingress, p.plain)
	l = startLoad(t, p.near)
	l.consumer.awaitLine("answers until now")
	l.stopWithoutLoss()
}

// TestSidecarIsStopped: a Weft that is told to end unpublishes, waits and drains, and comes
// back: no call is lost.
func TestSidecarIsStopped(t *testing.T) {
	begin(t)
	t.Parallel()
	server := zookeeper.Start(t, zookeeper.Options{})
	p := startPair(t, server.Address(), server.Address(), server.Address())
	l := startLoad(t, p.near)
	l.consumer.awaitLine("first answer of") // of the second
	for range 2 {
		p.far.weft.signal(syscall.SIGTERM)
		p.near.awaitProviders(p.plain)
		p.far.weft.awaitExit()
		p.far.restart()
		p.near.awaitProviders(p.far.ingress, p.plain)
	}
	l.stopWithoutLoss()
}
