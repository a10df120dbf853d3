package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// loadProtocol describes the consumer and the providers of one protocol for load tests.
type loadProtocol struct {
	name, module       string
	consumer, provider string // main classes
	protocol           string
	options            string // of the consumer's scenarios
	errorPrefixes      errorPrefixes
}

// errorPrefixes holds prefixes of the errors that a consumer reports for calls that Weft has
// failed.
type errorPrefixes struct {
	// inFlight: the provider died during the call. A killed process resets connections that have
	// unread data, and closes the others.
	inFlight     []string
	notConnected []string // there is no connection to the provider
}

func loadProtocols() []loadProtocol {
	// Texts of Weft.
	dubbo := errorPrefixes{
		inFlight: []string{
			"org.apache.dubbo.rpc.RpcException: 502|weft: upstream reset the connection ",
			"org.apache.dubbo.rpc.RpcException: 502|weft: upstream closed the connection ",
		},
		notConnected: []string{"org.apache.dubbo.rpc.RpcException: 502|weft: upstream connect failed "},
	}
	// Texts of the library for the status of Weft's response, 16 and 6.
	const closed = "Connection closed! the address is ADDRESS"
	const noProcessor = "Rpc invocation exception: NO_PROCESSOR, the address is ADDRESS"
	bolt := errorPrefixes{
		inFlight:     []string{"com.alipay.remoting.exception.ConnectionClosedException: " + closed},
		notConnected: []string{"com.alipay.remoting.rpc.exception.InvokeException: " + noProcessor},
	}
	const sofa = "com.alipay.sofa.rpc.core.exception.SofaRpcException: "
	sofarpc := errorPrefixes{[]string{sofa + closed}, []string{sofa + noProcessor}}
	return []loadProtocol{
		{"dubbo27", "dubbo27", "dubbo.EchoConsumer", "dubbo.EchoProvider", "dubbo", "", dubbo},
		{"dubbo3", "dubbo3", "dubbo.EchoConsumer", "dubbo.EchoProvider", "dubbo", "", dubbo},
		{"sofarpc", "sofa", "sofa.DeskConsumer", "sofa.DeskProvider", "bolt", "", sofarpc},
		{"bolt-v2crc", "sofa", "sofa.BoltConsumer", "sofa.BoltProvider", "boltv2", "version=v2crc", bolt},
	}
}

// immediateLimit bounds how long it takes until all processes have detected an event. It usually
// takes some milliseconds, and some hundreds on a busy machine. Without a notification, Weft's
// heartbeats detect the event after four seconds.
const immediateLimit = 2 * time.Second

// Parameters of the load, and names of the consumer's reports.
const (
	concurrency       = 16
	maxLostCalls      = 2 * concurrency // each thread may lose a call in flight, and its next call if the connections close before the listener
	maxCallTime       = 5 * time.Second // half of the timeout of a call
	reportsPerEvent   = 2               // reports of responsesUntilNow between two events
	firstResponse     = "first response of"
	responsesUntilNow = "responses until now"
	failedCalls       = "lost"
	longestInMS       = "longest in ms"
	stalledInMS       = "stalled in ms"
	totalResponses    = "total responses"
)

// TestRestart kills a provider under load and restarts it on the same port. Only calls in flight on
// the provider may fail, immediately and with the reason. Without another provider, calls also fail
// until the restart. The consumer's connections to Weft stay open. The test does not run in
// parallel with others, so that there is load even on a slow machine.
func TestRestart(t *testing.T) {
	requireKit(t, "java")
	for _, proto := range loadProtocols() {
		t.Run(proto.name, func(t *testing.T) {
			ports := []int{freePort(t), freePort(t)}
			sidecars := startSidecars(t, proto.protocol, service{hosts: ports}, service{hosts: ports[:1]})
			p := pair{consumer: proto.name, provider: proto.name}
			if sidecars.problem != "" {
				p.skipSubtest(t, "restart of one of two", twoWefts, sidecars.problem)
				p.skipSubtest(t, "restart of the only one", twoWefts, sidecars.problem)
				return
			}
			r := &restartTest{loadProtocol: proto, t: t, port: ports[0]}
			r.provider = r.start(ports[0], "first")
			other := r.start(ports[1], "second")
			r.consumer = startJava(t, proto.name+" consumer", proto.module, proto.consumer)
			r.provider.awaitReady(t)
			other.awaitReady(t)
			r.consumer.awaitReady(t)
			p.runSubtest(t, "restart of one of two", twoWefts, func(t *testing.T) {
				o := r.run(t, sidecars.ports[0], "third", "first", "second")
				o.check(t)
				o.checkMaxFailures(t, proto.errorPrefixes.inFlight, maxLostCalls)
				o.checkMaxFailures(t, proto.errorPrefixes.notConnected, 0) // the other provider was reachable
			})
			p.runSubtest(t, "restart of the only one", twoWefts, func(t *testing.T) {
				o := r.run(t, sidecars.ports[1], "fourth", "third")
				o.check(t)
				o.checkMaxFailures(t, proto.errorPrefixes.inFlight, maxLostCalls)
				o.checkFailuresBefore(t, proto.errorPrefixes.notConnected, o.reconnected)
				o.checkFailuresBefore(t, proto.errorPrefixes.notConnected, o.restarted.Add(o.detectionLimit()))
			})
		})
	}
}

// runSubtest runs a subtest that is in the report.
func (p pair) runSubtest(t *testing.T, scenario string, path callPath, f func(*testing.T)) {
	t.Helper()
	t.Run(scenario+"/"+p.String()+"/"+string(path), func(t *testing.T) {
		defer results.add(t, scenario, p, path)
		f(t)
	})
}

// restartTest is a provider that is killed and restarted while a consumer calls.
type restartTest struct {
	loadProtocol
	t        *testing.T // owns the peers: the next subtest uses the restarted provider
	port     int        // of the provider
	provider *peer
	consumer *peer
}

// start starts a provider that responds with name.
func (r *restartTest) start(port int, name string) *peer {
	r.t.Helper()
	return startJava(r.t, r.name+" provider, the "+name, r.module, r.loadProtocol.provider, fmt.Sprint(port), name)
}

// run makes the consumer call a port of Weft, kills the provider and restarts it under another
// name. providers are the names of the providers that respond before that.
func (r *restartTest) run(t *testing.T, port int, name string, providers ...string) outage {
	t.Helper()
	o := outage{errorPrefixes: r.errorPrefixes}
	r.consumer.send(t, fmt.Sprintf("load %d threads=%d millis=5 %s", port, concurrency, r.options))
	start := time.Now()
	for range providers {
		r.awaitReport(t, firstResponse)
	}
	r.awaitResponses(t)
	before := connections(t, r.consumer, port)
	o.killed = time.Now()
	r.provider.Kill()
	o.exited = time.Now()
	if len(providers) > 1 {
		r.awaitResponses(t) // from the remaining provider
		o.failedOver = time.Now()
	}
	restarted := r.start(r.port, name)
	restarted.awaitReady(t)
	o.restarted = time.Now()
	r.provider = restarted
	if got := r.awaitReport(t, firstResponse).Value; got != name {
		t.Fatalf("the restarted provider responds %q, want %q", got, name)
	}
	o.reconnected = time.Now()
	if len(providers) == 1 {
		o.failedOver = o.reconnected
	}
	r.awaitResponses(t)
	if after := connections(t, r.consumer, port); len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("the consumer's connections to Weft are %q, before the outage %q; want the same", after, before)
	}
	r.stop(t, &o)
	o.duration = time.Since(start)
	t.Logf("%v; down for %v; lost: %v", o, o.restarted.Sub(o.killed), o.failures)
	return o
}

// stop ends the load and records its totals.
func (r *restartTest) stop(t *testing.T, o *outage) {
	t.Helper()
	r.consumer.send(t, "stop")
	for {
		c := r.consumer.nextCall(t, waitTimeout)
		switch c.Name {
		case failedCalls:
			o.failures = append(o.failures, parseFailure(t, c))
		case longestInMS:
			o.longest = time.Duration(number(t, c)) * time.Millisecond
		case stalledInMS:
			o.stalled = time.Duration(number(t, c)) * time.Millisecond
		case totalResponses:
			o.succeeded = int(number(t, c))
		}
		if c.End != "" {
			return
		}
	}
}

// awaitReport returns the next report with this name.
func (r *restartTest) awaitReport(t *testing.T, name string) call {
	t.Helper()
	for {
		c := r.consumer.nextCall(t, waitTimeout)
		if c.Name == name {
			return c
		}
		if c.End != "" {
			t.Fatalf("the load ended without the report %q", name)
		}
	}
}

// awaitResponses waits for more responses than can have been in flight.
func (r *restartTest) awaitResponses(t *testing.T) {
	t.Helper()
	for range reportsPerEvent {
		r.awaitReport(t, responsesUntilNow)
	}
}

// outage holds the times of an outage and the results of the calls.
type outage struct {
	errorPrefixes errorPrefixes

	killed, exited time.Time // of the provider, which may still respond between these times
	// failedOver is the time after the kill when more responses had arrived than can have been in
	// flight. Without another provider, failedOver is reconnected.
	failedOver             time.Time
	restarted, reconnected time.Time // the new provider listens; the consumer has a response from it

	duration  time.Duration
	succeeded int
	longest   time.Duration // of all calls
	stalled   time.Duration // longest time for which the machine did not run the consumer
	failures  []failureGroup
}

func (o outage) String() string {
	return fmt.Sprintf("%d responses in %v, the slowest after %v (stalled for %v)", o.succeeded, o.duration, o.longest, o.stalled)
}

// detectionLimit bounds the time until all processes on this machine have detected an event. Other
// processes stall as the consumer does.
func (o outage) detectionLimit() time.Duration { return immediateLimit + 4*o.stalled }

// failureGroup is a group of calls that failed with the same error.
type failureGroup struct {
	Exception  string `json:"exception"`
	Message    string `json:"message"`
	Count      int    `json:"count"`
	FirstBegan int64  `json:"first_began_ms"` // ms since the Unix epoch, as all times
	LastBegan  int64  `json:"last_began_ms"`
	LastEnded  int64  `json:"last_ended_ms"`
}

func (g failureGroup) String() string {
	return fmt.Sprintf("%d times %s: %s", g.Count, g.Exception, g.Message)
}

// hasPrefix reports whether the error of the calls begins with one of prefixes.
func (g failureGroup) hasPrefix(prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(g.Exception+": "+g.Message, prefix) })
}

func parseFailure(t *testing.T, c call) failureGroup {
	t.Helper()
	text, err := json.Marshal(c.Value)
	if err != nil {
		t.Fatal(err)
	}
	var g failureGroup
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func number(t *testing.T, c call) float64 {
	t.Helper()
	n, ok := c.Value.(float64)
	if !ok {
		t.Fatalf("%s = %v, want a number", c.Name, c.Value)
	}
	return n
}

// check checks the conditions that apply to every outage. No call waited for its timeout. No call
// failed before the kill, and each failure has an error of errorPrefixes. Calls in flight on the
// provider failed within detectionLimit of its exit, and none of them began after the failover.
func (o outage) check(t *testing.T) {
	t.Helper()
	o.checkLatency(t)
	if len(o.failures) == 0 {
		t.Error("no call was lost: no call was in flight on the killed provider")
	}
	for _, failure := range o.failures {
		if !failure.hasPrefix(o.errorPrefixes.inFlight) && !failure.hasPrefix(o.errorPrefixes.notConnected) {
			t.Errorf("lost: %v; want the error %q or %q", failure, o.errorPrefixes.inFlight, o.errorPrefixes.notConnected)
		}
		ended := time.UnixMilli(failure.LastEnded)
		if ended.Before(o.killed.Truncate(time.Millisecond)) {
			t.Errorf("lost %v before the provider was killed: %v", o.killed.Sub(ended), failure)
		}
		if delay := ended.Sub(o.exited); failure.hasPrefix(o.errorPrefixes.inFlight) && delay > o.detectionLimit() {
			t.Errorf("lost %v after the provider exited, want within %v: %v", delay, o.detectionLimit(), failure)
		}
	}
	o.checkFailuresBefore(t, o.errorPrefixes.inFlight, o.failedOver)
}

// checkLatency checks that no call waited for its timeout. awaitResponses has verified that there
// was load.
func (o outage) checkLatency(t *testing.T) {
	t.Helper()
	if o.longest > maxCallTime+o.stalled {
		t.Errorf("a call took %v, want at most %v plus %v for which the consumer did not run", o.longest, maxCallTime, o.stalled)
	}
}

// checkFailuresBefore checks that every call that failed with one of prefixes began before event.
func (o outage) checkFailuresBefore(t *testing.T, prefixes []string, event time.Time) {
	t.Helper()
	for _, failure := range o.failures {
		if delay := time.UnixMilli(failure.LastBegan).Sub(event); failure.hasPrefix(prefixes) && delay > 0 {
			t.Errorf("lost although it began %v after the event: %v", delay, failure)
		}
	}
}

// checkMaxFailures bounds the number of calls that failed with one of prefixes.
func (o outage) checkMaxFailures(t *testing.T, prefixes []string, maximum int) {
	t.Helper()
	lost := 0
	for _, failure := range o.failures {
		if failure.hasPrefix(prefixes) {
			lost += failure.Count
		}
	}
	if lost > maximum {
		t.Errorf("%d calls were lost as %q, want at most %d", lost, prefixes, maximum)
	}
}
