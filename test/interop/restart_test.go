package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// family is a consumer and providers of one protocol that can be put under load.
type family struct {
	name, module       string
	consumer, provider string // main classes
	protocol           string
	options            string // of the consumer's scenarios
	told               told
}

// told is how a consumer describes a call that Weft has failed, as the beginning
// of what it reports.
type told struct {
	// inFlight: the provider was lost with it. A process that is killed resets the
	// connections on which it has not read all, and closes the others.
	inFlight  []string
	unreached []string // there is no connection to the provider
}

func loadFamilies() []family {
	// Weft's own text.
	dubbo := told{
		inFlight: []string{
			"org.apache.dubbo.rpc.RpcException: 502|weft: upstream reset the connection ",
			"org.apache.dubbo.rpc.RpcException: 502|weft: upstream closed the connection ",
		},
		unreached: []string{"org.apache.dubbo.rpc.RpcException: 502|weft: upstream connect failed "},
	}
	// The status of Weft's answer, 16 and 6, of which the library makes a text.
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

// atOnce is how long word of an event may take to the last who hears of it. It
// takes some milliseconds, on a busy machine some hundreds; what no word is had of,
// Weft's heartbeats find out after four seconds.
const atOnce = 2 * time.Second

// What load there is while a provider is killed, and what it may notice.
const (
	callers      = 16
	mostLost     = 2 * callers     // a process that ends can close connections before the port: the next is lost, too
	longestCall  = 5 * time.Second // half of the callers' timeout
	milestones   = 2               // of answers, between one event and the next
	firstAnswer  = "first answer of"
	manyAnswers  = "answers until now"
	lostAnswers  = "lost"
	longestInMS  = "longest in ms"
	stalledInMS  = "stalled in ms"
	totalAnswers = "answered"
)

// TestRestart kills a provider under load and starts it again on the same port.
// Only calls that are in flight on it fail, at once, and say what happened; while
// there is no other provider, so do those that come until it is back. The
// consumer's connections to Weft stay. It runs alone, to have load on any machine.
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
				o.loseAtMost(t, f.told.unreached, 0) // the other one was
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

// check is a subtest that is in the report.
func (p pair) check(t *testing.T, scenario string, by route, f func(*testing.T)) {
	t.Helper()
	t.Run(scenario+"/"+p.String()+"/"+string(by), func(t *testing.T) {
		defer results.add(t, scenario, p, by)
		f(t)
	})
}

// restart is a provider that is killed and started again while a consumer calls.
type restart struct {
	family
	t        *testing.T // with which the peers end: who is back stays for the next
	port     int        // of the provider
	provider *peer
	consumer *peer
}

// start starts a provider. The name is what its answers are.
func (r *restart) start(port int, name string) *peer {
	r.t.Helper()
	return startJava(r.t, r.name+" provider, the "+name, r.module, r.family.provider, fmt.Sprint(port), name)
}

// play has the consumer call a port of Weft's, kills the provider and starts it
// under another name. providers are the names of those that answer before.
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
		r.awaitMany(t) // from who is left
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

// stop ends the load and notes its sums.
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

// await is the next report of a name.
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

// awaitMany waits for more answers than could have been on their way.
func (r *restart) awaitMany(t *testing.T) {
	t.Helper()
	for range milestones {
		r.await(t, manyAnswers)
	}
}

// outage is what became of the calls.
type outage struct {
	told told

	killed, dead time.Time // the provider: between them it may still answer
	known        time.Time // its end, to all: they have got many answers since
	back, again  time.Time // its successor: it listens, and a caller has an answer

	took     time.Duration
	answered int
	longest  time.Duration // of all calls
	stalled  time.Duration // how long the machine kept the consumer from running at a time
	losses   []loss
}

func (o outage) String() string {
	return fmt.Sprintf("%d answers in %v, the slowest in %v (stalled for %v)", o.answered, o.took, o.longest, o.stalled)
}

// soon is how long word of an event may take on this machine: whoever passes it on
// is kept from running as the consumer is.
func (o outage) soon() time.Duration { return atOnce + 4*o.stalled }

// loss is the calls that failed in one way.
type loss struct {
	Exception  string `json:"exception"`
	Message    string `json:"message"`
	Count      int    `json:"count"`
	FirstBegan int64  `json:"first_began_ms"` // of the Unix epoch, as all
	LastBegan  int64  `json:"last_began_ms"`
	LastEnded  int64  `json:"last_ended_ms"`
}

func (l loss) String() string {
	return fmt.Sprintf("%d times %s: %s", l.Count, l.Exception, l.Message)
}

// is says whether the calls failed in a way of told's.
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

// hold checks what is true of every outage: no call waited for its timeout; none
// failed before it, and each that failed did so in a way that is Weft's word for
// what happened; those that were in flight on the provider failed at once, and no
// call that began when its end was known did so.
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

// holdPace checks that no call waited for its timeout. That there was load, the
// answers have shown for which the test waited.
func (o outage) holdPace(t *testing.T) {
	t.Helper()
	if o.longest > longestCall+o.stalled {
		t.Errorf("a call took %v, want all within %v and the %v that the consumer did not run", o.longest, longestCall, o.stalled)
	}
}

// loseUntil checks that no call was lost in a way that began after an event.
func (o outage) loseUntil(t *testing.T, way []string, event time.Time) {
	t.Helper()
	for _, l := range o.losses {
		if late := time.UnixMilli(l.LastBegan).Sub(event); l.is(way) && late > 0 {
			t.Errorf("lost although it began %v too late for that: %v", late, l)
		}
	}
}

// loseAtMost checks how many calls were lost in a way.
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
