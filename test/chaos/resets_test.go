package chaos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// TestAnswersBreakOff verifies how Weft handles hosts that reset the connection in a fifth of the
// responses: before the first byte, in the head, in a body with Content-Length, in a chunk, in an
// HTTP/2 or Dubbo frame, one byte before the end.
//
// No client takes a truncated response for a complete one. Weft retries idempotent requests whose
// client has received nothing yet; POSTs, and calls without a retry policy, reach a host once.
// Another host is not affected.
func TestAnswersBreakOff(t *testing.T) {
	r := begin(t)
	one, two := r.newBrittle(1, talkHTTP1), r.newBrittle(2, talkHTTP2)
	rpcOnce, rpcAgain := r.newBrittle(3, talkRPC), r.newBrittle(4, talkRPC)
	_, well := r.newHost("well")

	again := retries("reset", 3, "2s")
	oneAt, twoAt, onceAt, againAt, wellAt := freePort(), freePort(), freePort(), freePort(), freePort()
	w := r.newWeft(setup{
		listeners: list{
			listener("one", oneAt, "Auto"), listener("two", twoAt, "Auto"), listener("once", onceAt, "dubbo"), listener("again", againAt, "dubbo"),
			listener("wellrpc", wellAt, "dubbo"),
		},
		tables: list{
			table("one", route("/well", "well"), route("/plain", "one"), route("/", "one", again)),
			table("two", route("/well", "well"), route("/plain", "two"), route("/", "two", again)),
			table("once", route("/", "once")), table("again", route("/", "again", again)), table("wellrpc", route("/", "wellrpc")),
		},
		clusters: list{
			cluster("one", []string{one.address}), cluster("two", []string{two.address}),
			cluster("once", []string{rpcOnce.address}), cluster("again", []string{rpcAgain.address}),
			cluster("well", []string{well.page}), cluster("wellrpc", []string{well.rpc}),
		},
	}, nil, nil)
	oneCaller, twoCaller := r.newWeb(oneAt, false, plainDial), r.newWeb(twoAt, true, plainDial)
	once, other, calm := r.newRPC(onceAt, plainDial), r.newRPC(againAt, plainDial), r.newRPC(wellAt, plainDial)
	large := load{name: "http1-large", rate: 40, call: func(ctx context.Context, n int) (string, error) {
		return oneCaller.ask(ctx, http.MethodGet, "/echo", fmt.Sprintf("large-%d", n), 100_000)
	}}
	loads := []load{
		oneCaller.get("http1", "/echo", 60), oneCaller.get("http1-plain", "/plain", 60), oneCaller.post("http1-post", "/echo", 60), large,
		twoCaller.get("http2", "/echo", 60), twoCaller.get("http2-plain", "/plain", 60), twoCaller.post("http2-post", "/echo", 60),
		once.calls("dubbo-once", 60), other.calls("dubbo-again", 60),
		oneCaller.get("http1-well", "/well", 60), twoCaller.get("http2-well", "/well", 60), calm.calls("dubbo-well", 60),
	}
	hangUp := func() {
		oneCaller.transport.CloseIdleConnections()
		twoCaller.transport.CloseIdleConnections()
		for _, c := range []*rpc{once, other, calm} {
			c.close()
		}
	}
	w.warm(hangUp, loads...)
	all := r.play(loads...)

	const latency = 250 * time.Millisecond
	broken := []string{"502", "broken off", "reset stream", "status 35", "status 60", "status 80"}
	for name, failed := range map[string]float64{
		"http1": 0.3, "http1-plain": 0.3, "http1-post": 0.3, "http1-large": 0.3,
		// A connection that ends fails all requests in flight on it: many, if the machine was busy
		// for a while.
		"http2": 0.6, "http2-plain": 0.85, "http2-post": 0.85, "dubbo-once": 0.7, "dubbo-again": 0.4,
	} {
		r.hold(all[name], bounds{kinds: broken, failed: failed, p99: latency, most: 9 * time.Second})
	}
	for _, name := range []string{"http1-well", "http2-well", "dubbo-well"} {
		r.hold(all[name], bounds{p50: 20 * time.Millisecond, p99: latency})
	}
	// Among the requests whose client has received nothing yet, more fail without retries than
	// with. Responses that break off later are not retried.
	early := slices.DeleteFunc(slices.Clone(broken), func(kind string) bool { return kind == "broken off" })
	for _, pair := range [][2]string{{"http1", "http1-plain"}, {"http2", "http2-plain"}, {"dubbo-again", "dubbo-once"}} {
		if with, without := all[pair[0]].failures(early...), all[pair[1]].failures(early...); with >= without {
			r.Errorf("%s failed %d times, and %s, without retries, %d times", pair[0], with, pair[1], without)
		}
	}
	for _, l := range []*ledger{&one.deeds, &two.deeds, &rpcOnce.deeds} {
		l.holdOnce(r)
	}
	if n := w.metric("weft_cluster_retries_total", `cluster="once"`); n != 0 {
		r.Errorf("%v calls were tried again that no policy names", n)
	}
	for _, name := range []string{"one", "two", "again"} {
		if n := w.metric("weft_cluster_retries_total", fmt.Sprintf("cluster=%q", name)); n < r.lasts.Seconds()/5 {
			r.Errorf("%v requests of %s were tried again", n, name)
		}
	}
	hangUp()
	w.noLeak()
}
