package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// family is a consumer and providers of one protocol for load tests.
type family struct {
	name, module       string
	consumer, provider string // main classes
	protocol           string
	options            string // of the consumer's scenarios
	told               told
}

// told has the errors that a consumer reports for calls that Weft has failed, as prefixes.
type told struct {
	// inFlight: the provider died during the call. A killed process resets connections that have
	// unread data, and closes the others.
	inFlight  []string
	unreached []string // there is no connection to the provider
}

func loadFamilies() []family {
	// Texts of Weft.
	dubbo := told{
		inFlight: []string{
			"org.apache.dubbo.rpc.RpcException: 502|weft: upstream reset the connection ",
			"org.apache.dubbo.rpc.RpcException: 502|weft: upstream closed the connection ",
		},
		unreached: []string{"org.apache.dubbo.rpc.RpcException: 502|weft: upstream connect failed "},
	}
	// Texts of the library for the status of Weft's response, 16 and 6.
	const closed = "Connection closed! the address is ADDRESS"
	const noProcessor = "Rpc invocation exception: NO_PROCESSOR, the address is ADDRESS"
	bolt := told{
		inFlight:  []string{"com.alipay.remoting.exception.ConnectionClosedException: " + closed},
		unreached: []string{"com.alipay.remoting.rpc.exception.InvokeException: " + noProcessor},
	}
	const sofa = "com.alipay.sofa.rpc.core.exception.SofaRpcException: "
	sofarpc := told{[]string{sofa + closed}, []string{sofa + noProcessor}}
	return []family{
		{"dubbo27", "dubbo27", "dubbo.EchoConsumer", "dubbo.EchoProvider", "dubbo", "", dubbo},
		{"dubbo3", "dubbo3", "dubbo.EchoConsumer", "dubbo.EchoProvider", "dubbo", "", dubbo},
		{"sofarpc", "sofa", "sofa.DeskConsumer", "sofa.DeskProvider", "bolt", "", sofarpc},
		{"bolt-v2crc", "sofa", "sofa.BoltConsumer", "sofa.BoltProvider", "boltv2", "version=v2crc", bolt},
	}
}

// atOnce bounds how long it takes until everyone has learned of an event. It usually takes some
// milliseconds, and some hundreds on a busy machine. Without a notification, Weft's heartbeats
// detect the event after four seconds.
const atOnce = 2 * time.Second

// Parameters of the load, and names of the consumer's reports.
const (
	callers      = 16
	mostLost     = 2 * callers     // a process that ends can close connections before the port: the next is lost, too
	longestCall  = 5 * time.Second // half of the callers' timeout
	milestones   = 2               // reports of manyAnswers between two events
	firstAnswer  = "first answer of"
	manyAnswers  = "answers until now"
	lostAnswers  = "lost"
	longestInMS  = "longest in ms"
	stalledInMS  = "stalled in ms"
	totalAnswers = "answered"
)

// TestRestart kills a provider under load and restarts it on the same port. Only calls in flight on
// it may fail, immediately and with the reason. Without another provider, calls also fail until it
// is back. The consumer's connections to Weft stay open. The test runs alone, so that it has load
// on any machine.
func TestRestart(t *testing.T) {
	need(t, "java")
	for _, f := range loadFamilies() {
		t.Run(f.name, func(t *testing.T) {
			ports := []int{freePort(t), freePort(t)}
			sidecars := startSidecars(t, f.protocol, service{hosts: ports}, service{hosts: ports[:1]})
			p := pair{consumer: f.name, provider: f.name}
			if sidecars.problem != "" {
				p.skip(t, "restart of one of two", through, sidecars.problem)
				p.skip(t, "restart of the only one", through, sidecars.problem)
				return
			}
			r := &restart{family: f, t: t, port: ports[0]}
			r.provider = r.start(ports[0], "first")
			other := r.start(ports[1], "second")
			r.consumer = startJava(t, f.name+" consumer", f.module, f.consumer)
			r.provider.awaitReady(t)
			other.awaitReady(t)
			r.consumer.awaitReady(t)
			p.check(t, "restart of one of two", through, func(t *testing.T) {
				o := r.play(t, sidecars.ports[0], "third", "first", "second")
				o.hold(t)
				o.loseAtMost(t, f.told.inFlight, mostLost)
				o.loseAtMost(t, f.told.unreached, 0) // the other provider was reachable
			})
			p.check(t, "restart of the only one", through, func(t *testing.T) {
				o := r.play(t, sidecars.ports[1], "fourth", "third")
				o.hold(t)
				o.loseAtMost(t, f.told.inFlight, mostLost)
				o.loseUntil(t, f.told.unreached, o.again)
				o.loseUntil(t, f.told.unreached, o.back.Add(o.soon()))
			})
		})
	}
}

// check runs a subtest that is in the report.
func (p pair) check(t *testing.T, scenario string, by route, f func(*testing.T)) {
	t.Helper()
	t.Run(scenario+"/"+p.String()+"/"+string(by), func(t *testing.T) {
		defer results.add(t, scenario, p, by)
		f(t)
	})
}

// restart is a provider that is killed and restarted while a consumer calls.
type restart struct {
	family
	t        *testing.T // owns the peers: the next subtest uses the restarted provider
	port     int        // of the provider
	provider *peer
	consumer *peer
}

// start starts a provider that responds with name.
func (r *restart) start(port int, name string) *peer {
	r.t.Helper()
	return startJava(r.t, r.name+" provider, the "+name, r.module, r.family.provider, fmt.Sprint(port), name)
}

// play has the consumer call a port of Weft, kills the provider and restarts it under another name.
// providers are the names of the providers that respond before that.
func (r *restart) play(t *testing.T, port int, name string, providers ...string) outage {
	t.Helper()
	o := outage{told: r.told}
	r.consumer.say(t, fmt.Sprintf("load %d callers=%d millis=5 %s", port, callers, r.options))
	began := time.Now()
	for range providers {
		r.await(t, firstAnswer)
	}
	r.awaitMany(t)
	before := connections(t, r.consumer, port)
	o.killed = time.Now()
	r.provider.Kill()
	o.dead = time.Now()
	if len(providers) > 1 {
		r.awaitMany(t) // from the remaining provider
		o.known = time.Now()
	}
	again := r.start(r.port, name)
	again.awaitReady(t)
	o.back = time.Now()
	r.provider = again
	if got := r.await(t, firstAnswer).Value; got != name {
		t.Fatalf("the provider that is back answers %q, want %q", got, name)
	}
	o.again = time.Now()
	if len(providers) == 1 {
		o.known = o.again
	}
	r.awaitMany(t)
	if after := connections(t, r.consumer, port); len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("the consumer's connections to Weft are %q, were %q before the outage", after, before)
	}
	r.stop(t, &o)
	o.took = time.Since(began)
	t.Logf("%v; down for %v; lost: %v", o, o.back.Sub(o.killed), o.losses)
	return o
}

// stop ends the load and records its totals.
func (r *restart) stop(t *testing.T, o *outage) {
	t.Helper()
	r.consumer.say(t, "stop")
	for {
		c := r.consumer.next(t, patience)
		switch c.Name {
		case lostAnswers:
			o.losses = append(o.losses, lossOf(t, c))
		case longestInMS:
			o.longest = time.Duration(number(t, c)) * time.Millisecond
		case stalledInMS:
			o.stalled = time.Duration(number(t, c)) * time.Millisecond
		case totalAnswers:
			o.answered = int(number(t, c))
		}
		if c.End != "" {
			return
		}
	}
}

// await returns the next report with this name.
func (r *restart) await(t *testing.T, name string) call {
	t.Helper()
	for {
		c := r.consumer.next(t, patience)
		if c.Name == name {
			return c
		}
		if c.End != "" {
			t.Fatalf("the load has ended")
		}
	}
}

// awaitMany waits for more responses than can have been in flight.
func (r *restart) awaitMany(t *testing.T) {
	t.Helper()
	for range milestones {
		r.await(t, manyAnswers)
	}
}

// outage is the outcome of the calls.
type outage struct {
	told told

	killed, dead time.Time // of the provider; between them it may still respond
	known        time.Time // when every caller knew: each has got many responses since
	back, again  time.Time // the new provider listens; a caller has its response

	took     time.Duration
	answered int
	longest  time.Duration // of all calls
	stalled  time.Duration // longest time for which the machine did not run the consumer
	losses   []loss
}

func (o outage) String() string {
	return fmt.Sprintf("%d answers in %v, the slowest in %v (stalled for %v)", o.answered, o.took, o.longest, o.stalled)
}

// soon bounds how long it takes on this machine to learn of an event. Other processes stall as the
// consumer does.
func (o outage) soon() time.Duration { return atOnce + 4*o.stalled }

// loss is a group of calls that failed in one way.
type loss struct {
	Exception  string `json:"exception"`
	Message    string `json:"message"`
	Count      int    `json:"count"`
	FirstBegan int64  `json:"first_began_ms"` // ms since the Unix epoch, as all times
	LastBegan  int64  `json:"last_began_ms"`
	LastEnded  int64  `json:"last_ended_ms"`
}

func (l loss) String() string {
	return fmt.Sprintf("%d times %s: %s", l.Count, l.Exception, l.Message)
}

// is reports whether the error of the calls begins with one of way.
func (l loss) is(way []string) bool {
	return slices.ContainsFunc(way, func(begin string) bool { return strings.HasPrefix(l.Exception+": "+l.Message, begin) })
}

func lossOf(t *testing.T, c call) loss {
	t.Helper()
	text, err := json.Marshal(c.Value)
	if err != nil {
		t.Fatal(err)
	}
	var l loss
	if err := json.Unmarshal(text, &l); err != nil {
		t.Fatal(err)
	}
	return l
}

func number(t *testing.T, c call) float64 {
	t.Helper()
	n, ok := c.Value.(float64)
	if !ok {
		t.Fatalf("%s = %v, want a number", c.Name, c.Value)
	}
	return n
}

// hold checks what applies to every outage. No call waited for its timeout. No call failed before
// the kill, and each failure has an error of told. Calls in flight on the provider failed soon, and
// none of them began after its end was known.
func (o outage) hold(t *testing.T) {
	t.Helper()
	o.holdPace(t)
	if len(o.losses) == 0 {
		t.Error("no call was lost: nothing was in flight on the provider that was killed")
	}
	for _, l := range o.losses {
		if !l.is(o.told.inFlight) && !l.is(o.told.unreached) {
			t.Errorf("lost: %v; want %q or %q, as Weft's word for it", l, o.told.inFlight, o.told.unreached)
		}
		ended := time.UnixMilli(l.LastEnded)
		if ended.Before(o.killed.Truncate(time.Millisecond)) {
			t.Errorf("lost %v before the provider was killed: %v", o.killed.Sub(ended), l)
		}
		if late := ended.Sub(o.dead); l.is(o.told.inFlight) && late > o.soon() {
			t.Errorf("lost %v after the provider had ended, want within %v: %v", late, o.soon(), l)
		}
	}
	o.loseUntil(t, o.told.inFlight, o.known)
}

// holdPace checks that no call waited for its timeout. The responses that the test has waited for
// prove that there was load.
func (o outage) holdPace(t *testing.T) {
	t.Helper()
	if o.longest > longestCall+o.stalled {
		t.Errorf("a call took %v, want all within %v and the %v that the consumer did not run", o.longest, longestCall, o.stalled)
	}
}

// loseUntil checks that every call that was lost in this way began before an event.
func (o outage) loseUntil(t *testing.T, way []string, event time.Time) {
	t.Helper()
	for _, l := range o.losses {
		if late := time.UnixMilli(l.LastBegan).Sub(event); l.is(way) && late > 0 {
			t.Errorf("lost although it began %v too late for that: %v", late, l)
		}
	}
}

// loseAtMost bounds how many calls were lost in this way.
func (o outage) loseAtMost(t *testing.T, way []string, most int) {
	t.Helper()
	lost := 0
	for _, l := range o.losses {
		if l.is(way) {
			lost += l.Count
		}
	}
	if lost > most {
		t.Errorf("%d calls were lost as %q, want at most %d", lost, way, most)
	}
}
