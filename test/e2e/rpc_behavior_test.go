package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// rpcDeadline is more than a busy machine needs for an operation that does not wait.
const rpcDeadline = 5 * time.Second

// checkMostlyFast checks that calls do not wait. A busy machine may delay some of them, so one of
// ten may take up to rpcDeadline.
func checkMostlyFast(t *testing.T, elapsed []time.Duration) {
	t.Helper()
	slices.Sort(elapsed)
	p90, slowest := elapsed[len(elapsed)*9/10], elapsed[len(elapsed)-1]
	if p90 > 200*time.Millisecond || slowest > rpcDeadline {
		t.Errorf("90%% of the calls took up to %v, the slowest %v; want 200ms and %v", p90, slowest, rpcDeadline)
	}
	t.Logf("90%% of the calls took up to %v, the slowest %v", p90, slowest)
}

// TestRPCHeaderChanges verifies that header changes of a route are in the bytes that the upstream
// and the client receive, not only in a copy. The route adds, replaces and removes request headers,
// and adds a response header.
func TestRPCHeaderChanges(t *testing.T) {
	t.Parallel()
	field := func(key, value string) object {
		return object{"header": object{"key": key, "value": value}, "append": false}
	}
	eachRPC(t, func(t *testing.T, r *rpc) {
		app, got := r.startServer(t)
		address, _ := r.startProxy(t, object{}, list{cluster("app", nil, app)}, routeTo("/", "app", object{
			"request_headers_to_add":    list{field("added", "request"), field("replaced", "after")},
			"request_headers_to_remove": list{"removed"},
			"response_headers_to_add":   list{field("x-response", "response")},
		}))
		client := r.dial(t, address)
		request := client.withHeader(t, client.withHeader(t, client.request(7), "replaced", "before"), "removed", "secret")
		client.send(request)
		response := client.receive()
		if v := response.header.Get("x-response"); !response.ok || response.id != 7 || v != "response" {
			t.Errorf("response %d with code %d; header %q; want 7, success, \"response\"", response.id, response.code, v)
		}
		received := <-got
		var req protocol.Request
		var v xprotocol.FrameView
		if err := r.codec.ReadRequest(received.bytes, &req, &v); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"added": "request", "replaced": "after"} {
			if got := req.Header.Get(name); got != want {
				t.Errorf("the upstream reads %s: %q, want %q", name, got, want)
			}
		}
		if _, found := req.Header.Lookup("removed"); found || bytes.Contains(received.bytes, []byte("secret")) {
			t.Errorf("the upstream got a removed header: %q", received.bytes)
		}
	})
}

// TestOneWayRequestsGetNoResponse verifies that a one-way request gets no response: not if it
// is forwarded, not if no route matches, and not if no host is available.
func TestOneWayRequestsGetNoResponse(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		app, got := r.startServer(t)
		address, w := r.startProxy(t, object{}, list{cluster("app", nil, app), cluster("dead", nil, freeAddress())},
			routeWhen("app", "target: app"), routeWhen("dead", "target: dead"))
		client := r.dial(t, address)
		newRequest := func(id uint64, route string) []byte { return client.withHeader(t, client.request(id), "target", route) }
		oneWayRequest := func(id uint64, route string) []byte {
			return r.withByte(t, newRequest(id, route), r.kindAt, r.oneWay)
		}
		client.send(oneWayRequest(1, "app"), oneWayRequest(2, "no route"), oneWayRequest(3, "dead"), oneWayRequest(4, "app"), newRequest(5, "app"))
		if resp := client.receive(); resp.id != 5 || !resp.ok {
			t.Errorf("response %d with code %d, want only the response to call 5", resp.id, resp.code)
		}
		kinds := map[xprotocol.Kind]int{}
		for range 3 {
			kinds[(<-got).Kind]++
		}
		if kinds[xprotocol.OneWay] != 2 || kinds[xprotocol.Request] != 1 {
			t.Errorf("the upstream got frames of kinds %v, want two of %d and one of %d", kinds, xprotocol.OneWay, xprotocol.Request)
		}
		eventually(t, "both failures are counted", func() bool { return w.metric("weft_listener_request_failures_total") == 2 })
		if extra := client.closeAndDrain(); len(extra) > 0 {
			t.Errorf("unexpected bytes: %q", extra)
		}
	})
}

// TestUnknownSerializationIsForwarded verifies that Weft forwards a body that it cannot
// parse. Only the ID and the timeout in the frame header change, and the connection stays open.
func TestUnknownSerializationIsForwarded(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		app, got := r.startServer(t)
		address, _ := r.startProxy(t, object{}, list{cluster("app", nil, app)}, routeTo("/", "app"))
		client := r.dial(t, address)
		request := client.request(1)
		for i := len(request) - 64; i < len(request)-8; i++ {
			request[i] = 0xff // not valid Hessian
		}
		request = r.withByte(t, request, r.serializationAt, r.foreign)
		client.send(request)
		if resp := client.receive(); resp.id != 1 || !resp.ok {
			t.Errorf("response %d with code %d; want 1 and success", resp.id, resp.code)
		}
		received := <-got
		if offset := r.timeoutAt; offset > 0 {
			copy(received.bytes[offset:offset+4], request[offset:])
		}
		r.codec.SetID(received.bytes, 1)
		if !bytes.Equal(received.bytes, request) {
			t.Errorf("the frame was changed: got\n%q, want\n%q", received.bytes, request)
		}
		client.checkCall(2)
	})
}

// TestInvalidMagicClosesConnection verifies that bytes that are not a frame close the connection
// immediately, and that the close is counted.
func TestInvalidMagicClosesConnection(t *testing.T) {
	t.Parallel()
	garbage := bytes.Repeat([]byte{0x77}, 32)
	eachRPC(t, func(t *testing.T, r *rpc) {
		app, _ := r.startServer(t)
		address, w := r.startProxy(t, object{}, list{cluster("app", nil, app)}, routeTo("/", "app"))
		for n, before := range []func(*rpcClient){func(*rpcClient) {}, func(c *rpcClient) { c.checkCall(1) }} {
			client := r.dial(t, address)
			before(client)
			start := time.Now()
			client.send(garbage)
			if extra, err := client.next(client.conn, &client.rest); err == nil {
				t.Errorf("response %q, want none", extra.bytes)
			}
			if elapsed := time.Since(start); elapsed > rpcDeadline {
				t.Errorf("the connection ended after %v, want at most %v", elapsed, rpcDeadline)
			}
			eventually(t, "the close is counted with its reason", func() bool {
				return w.metric("weft_listener_request_failures_total", `reason="malformed_request"`) == float64(n+1) &&
					w.metric("weft_listener_connections_closed_total", `cause="protocol_error"`) == float64(n+1)
			})
		}
	})
}

// TestOversizedFrameGetsError verifies that a frame with a declared size above the limit gets an
// error when its header has arrived, and that Weft does not allocate the declared size. The
// connection stays usable after the frame has been skipped.
func TestOversizedFrameGetsError(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		app, _ := r.startServer(t)
		address, w := r.startProxy(t, object{"max_request_body_size": "64KB"}, list{cluster("app", nil, app)}, routeTo("/", "app"))
		for _, size := range []uint32{128 << 10, 1<<31 - 1} {
			client := r.dial(t, address)
			client.checkCall(1)
			large := client.request(2)
			binary.BigEndian.PutUint32(large[r.lengthAt:], size)
			start := time.Now()
			client.send(large)
			resp := client.receive()
			if elapsed := time.Since(start); elapsed > rpcDeadline || resp.id != 2 || resp.code != r.code(protocol.BodyTooLarge) {
				t.Errorf("%d bytes: response %d with code %d after %v, want %d", size, resp.id, resp.code, elapsed, r.code(protocol.BodyTooLarge))
			}
			if size > 1<<30 {
				continue
			}
			f, err := r.codec.ParseFrame(large)
			if err != nil {
				t.Fatal(err)
			}
			client.send(make([]byte, f.Size-len(large)))
			client.checkCall(3)
		}
		if n := w.metric("weft_listener_request_failures_total", `reason="body_too_large"`); n != 2 {
			t.Errorf("%v requests counted as too large, want 2", n)
		}
		if n := w.heap(); n > 256<<20 {
			t.Errorf("the heap has %d bytes, want at most %d", n, 256<<20)
		}
	})
}

// TestRPCConnectFailover verifies that a dead host next to a live one makes no call fail, and that
// calls do not wait for connects to it.
func TestRPCConnectFailover(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		app, _ := r.startServer(t)
		address, w := r.startProxy(t, object{}, list{cluster("app", nil, freeAddress(), app)}, routeTo("/", "app"))
		client := r.dial(t, address)
		var elapsed []time.Duration
		for id := range uint64(200) {
			start := time.Now()
			client.checkCall(id)
			elapsed = append(elapsed, time.Since(start))
		}
		checkMostlyFast(t, elapsed)
		if n := w.metric("weft_cluster_connect_failures_total"); n < 1 || n > 20 {
			t.Errorf("%v attempts at the dead host in 200 calls, want 1 to 20", n)
		}
	})
}

// TestRPCWithoutHealthyHostFailsFast verifies that without a live host each call gets an
// error of its protocol without delay.
func TestRPCWithoutHealthyHostFailsFast(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		address, _ := r.startProxy(t, object{}, list{cluster("app", nil, freeAddress(), freeAddress())}, routeTo("/", "app"))
		client := r.dial(t, address)
		var elapsed []time.Duration
		for id := range uint64(50) {
			start := time.Now()
			client.send(client.request(id))
			resp := client.receive()
			elapsed = append(elapsed, time.Since(start))
			if resp.id != id || resp.code != r.code(protocol.ConnectFailure) {
				t.Errorf("response %d with code %d; want response %d with %d", resp.id, resp.code, id, r.code(protocol.ConnectFailure))
			}
		}
		checkMostlyFast(t, elapsed)
	})
}

// TestRPCVersionsAndGroups verifies that each version and group of an interface can have its own
// cluster, with calls of all of them in flight on one connection.
func TestRPCVersionsAndGroups(t *testing.T) {
	t.Parallel()
	const service = "org.example.Shop"
	providers := map[string]*provider{}
	var routes []object
	var calls []invocation
	var want []string
	for _, version := range []string{"1.0.0", "2.0.0"} {
		for _, group := range []string{"blue", "green"} {
			name := version + "-" + group
			providers[name] = startProvider(t, name, nil)
			routes = append(routes, routeWhen(name, "service: "+service, "version: "+version, "group: "+group))
			calls = append(calls, invocation{service, "buy", version, []string{"group: " + group}})
			want = append(want, name)
		}
	}
	address, _ := rpcProxy(t, providers, routes...)
	client := newConsumer(t, address)
	const rounds, batches = 25, 4
	for range rounds {
		for range batches {
			client.send(calls...)
		}
		for range batches * len(calls) {
			got := client.receive()
			if w := want[(got.id-1)%uint64(len(want))]; got.status != dubboOK || got.text != w {
				t.Fatalf("call %d: %d from %q, want a response from %q", got.id, got.status, got.text, w)
			}
		}
	}
	for name, p := range providers {
		if n := p.calls.Load(); n != rounds*batches {
			t.Errorf("%s got %d calls, want %d", name, n, rounds*batches)
		}
	}
	for _, other := range []invocation{
		{service, "buy", "1.0.0", nil}, {service, "buy", "", []string{"group: blue"}}, {service, "buy", "3.0.0", []string{"group: green"}},
	} {
		if got := client.call(other); got.status != dubboNotFound {
			t.Errorf("%s: %d from %q, want %d", fmt.Sprint(other), got.status, got.text, dubboNotFound)
		}
	}
}
