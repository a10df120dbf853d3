package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestConnectFailover verifies that if one of two hosts refuses connections, no request fails or
// waits.
func TestConnectFailover(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("alive"))
	s, front := simpleProxy(freeAddress(), app.address)
	w := startWeft(t, s.config())
	c := newClient(t)
	var elapsed []time.Duration
	for range 200 {
		got := sendRequest(t, c, "GET", "http://"+front, "")
		if got.status != 200 {
			t.Fatalf("GET: %d %q, want 200", got.status, got.body)
		}
		elapsed = append(elapsed, got.took)
	}
	checkMostlyFast(t, elapsed)
	if n := w.metric("weft_cluster_connect_failures_total"); n < 1 || n > 20 {
		t.Errorf("%v attempts at the dead host in 200 requests, want 1 to 20", n)
	}
}

// unresponsiveAddress returns an address where a connect neither succeeds nor fails, because the
// accept queue is full.
func unresponsiveAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) }) // nothing was accepted
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for { // fill the queue
		c, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	dead := unresponsiveAddress(t)
	t.Run("only host", func(t *testing.T) {
		t.Parallel()
		s, front := simpleProxy()
		s.clusters = list{cluster("app", object{"connect_timeout": "150ms"}, dead)}
		startWeft(t, s.config())
		got := sendRequest(t, newClient(t), "GET", "http://"+front, "")
		if got.status != 502 || got.took < 100*time.Millisecond || got.took > rpcDeadline {
			t.Errorf("GET: %d after %v, want 502 after 150ms", got.status, got.took)
		}
	})
	t.Run("other host", func(t *testing.T) {
		t.Parallel()
		app := startUpstream(t, respondWith("alive"))
		s, front := simpleProxy()
		s.clusters = list{cluster("app", object{"connect_timeout": "1s"}, dead, app.address)}
		startWeft(t, s.config())
		c := newClient(t)
		slow := 0
		for range 50 {
			got := sendRequest(t, c, "GET", "http://"+front, "")
			if got.status != 200 {
				t.Fatalf("GET: %d, want 200", got.status)
			}
			if got.took > 900*time.Millisecond {
				slow++
			}
		}
		if slow > 5 {
			t.Errorf("%d of 50 requests waited for the unresponsive host, want at most 5", slow)
		}
	})
}

// TestRetryOnlyIdempotent verifies that Weft does not retry a request that is not idempotent once a
// host has received it.
func TestRetryOnlyIdempotent(t *testing.T) {
	t.Parallel()
	retries := object{"retry_policy": object{"retry_on": true, "num_retries": 3}}
	for _, c := range []struct {
		method, body string
		status, hits int
	}{
		{"GET", "", 200, 2},
		{"PUT", "content", 200, 2},
		{"DELETE", "", 200, 2},
		{"POST", "content", 502, 1},
		{"PATCH", "content", 502, 1},
	} {
		t.Run(c.method, func(t *testing.T) {
			t.Parallel()
			var received atomic.Int64
			bodies := make(chan string, 8)
			response := func(conn net.Conn) {
				r := bufio.NewReader(conn)
				_, body, err := readRequest(r)
				if err != nil {
					return
				}
				bodies <- string(body)
				if received.Add(1) == 1 {
					return // closes without a response
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			front := freeAddress()
			startWeft(t, setup{
				listeners: list{httpListener("front", front)},
				tables:    list{routeTable("front", routeTo("/", "app", retries))},
				clusters:  list{cluster("app", nil, startTCPServer(t, response), startTCPServer(t, response))},
			}.config())
			got := sendRequest(t, newClient(t), c.method, "http://"+front, c.body)
			if got.status != c.status || int(received.Load()) != c.hits {
				t.Errorf("%s: %d, received %d times; want %d, %d times", c.method, got.status, received.Load(), c.status, c.hits)
			}
			for range c.hits {
				if body := <-bodies; body != c.body {
					t.Errorf("an application got the body %q, want %q", body, c.body)
				}
			}
		})
	}
}

// TestUnsentRequestIsRetried verifies that Weft sends a request that no host has received to
// another host, even a large POST without a retry policy.
func TestUnsentRequestIsRetried(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondDigest)
	s, front := simpleProxy(freeAddress(), freeAddress(), app.address)
	startWeft(t, s.config())
	for _, size := range []int{10, 100_000, 3_000_000} {
		body := strings.Repeat("x", size)
		if got := sendRequest(t, newClient(t), "POST", "http://"+front, body); got.status != 200 || got.body != digest([]byte(body)) {
			t.Errorf("POST of %d bytes: %d %q; want 200 and the digest of the body", size, got.status, got.body)
		}
	}
	if n := app.requests.Load(); n != 3 {
		t.Errorf("the upstream got %d requests, want 3", n)
	}
}

// TestHostCrashUnderLoad verifies that when a host dies, only the requests that it was serving
// fail.
func TestHostCrashUnderLoad(t *testing.T) {
	t.Parallel()
	var inFlight atomic.Int64 // at the host that crashes
	respondSlowly := func(w http.ResponseWriter, r *http.Request) {
		inFlight.Add(1)
		defer inFlight.Add(-1)
		select {
		case <-time.After(2 * time.Millisecond):
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "crashing")
	}
	crashing, other := startUpstream(t, respondSlowly), startUpstream(t, respondWith("other"))
	s, front := simpleProxy(crashing.address, other.address)
	w := startWeft(t, s.config())
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var succeeded, failed atomic.Int64
	const n = 16
	for range n {
		c := newClient(t)
		clients.Go(func() {
			for ctx.Err() == nil {
				got, err := tryRequest(ctx, c, "POST", "http://"+front, "x") // not idempotent
				switch {
				case ctx.Err() != nil:
				case err == nil && got.status == 200:
					succeeded.Add(1)
				case err == nil && got.status == 502:
					failed.Add(1)
				default:
					t.Errorf("POST: %v, %d %q", err, got.status, got.body)
					return
				}
			}
		})
	}
	eventually(t, "both hosts are used", func() bool { return crashing.requests.Load() > 100 && other.requests.Load() > 100 })
	crashing.kill()
	before := succeeded.Load()
	eventually(t, "requests continue", func() bool { return succeeded.Load() > before+1000 })
	stop()
	clients.Wait()
	if failed.Load() > n {
		t.Errorf("%d requests failed, want at most %d, the number in flight at the dead host", failed.Load(), n)
	}
	t.Logf("%d good, %d failed, %v attempts at the dead host", succeeded.Load(), failed.Load(), w.metric("weft_cluster_connect_failures_total"))
}

// TestHostRecovery verifies that Weft uses a host again after its recovery.
func TestHostRecovery(t *testing.T) {
	t.Parallel()
	address := freeAddress()
	s, front := simpleProxy(address)
	startWeft(t, s.config())
	c := newClient(t)
	if got := sendRequest(t, c, "GET", "http://"+front, ""); got.status != 502 {
		t.Fatalf("before the host is up: %d, want 502", got.status)
	}
	startUpstreamAt(t, address, respondWith("back"))
	eventually(t, "the host gets requests", func() bool {
		return sendRequest(t, c, "GET", "http://"+front, "").body == "back"
	})
}

func TestMaxRequestPerConn(t *testing.T) {
	t.Parallel()
	var requests sync.Map // by connection
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := requests.LoadOrStore(r.RemoteAddr, new(atomic.Int64))
		_, _ = fmt.Fprint(w, n.(*atomic.Int64).Add(1))
	})
	s, front := simpleProxy()
	s.clusters = list{cluster("app", object{"max_request_per_conn": 3}, app.address)}
	startWeft(t, s.config())
	c := newClient(t)
	for i := range 12 {
		if got, want := sendRequest(t, c, "GET", "http://"+front, "").body, fmt.Sprint(i%3+1); got != want {
			t.Errorf("request %d is number %s of its connection, want %s", i, got, want)
		}
	}
	if n := app.opened.Load(); n != 4 {
		t.Errorf("12 requests used %d connections, want 4", n)
	}
}

func TestIdleTimeoutOfPooledConnections(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("hello"))
	s, front := simpleProxy()
	s.clusters = list{cluster("app", object{"idle_timeout": "200ms"}, app.address)}
	startWeft(t, s.config())
	start := time.Now()
	sendRequest(t, newClient(t), "GET", "http://"+front, "")
	eventually(t, "the unused connection is closed", func() bool { return app.connections() == 0 })
	if elapsed := time.Since(start); elapsed < 200*time.Millisecond || elapsed > rpcDeadline {
		t.Errorf("idle_timeout of 200ms took %v, want at least 200ms, at most %v", elapsed, rpcDeadline)
	}
}

// TestStaleConnectionsAreReplaced verifies requests on connections that the upstream closes after a
// response, immediately or later. Weft resends a request that the upstream cannot have received. It
// does not resend a request that the upstream has read, so each request reaches the upstream once
// at most.
func TestStaleConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	const requests = 300
	for name, after := range map[string]time.Duration{"immediately": 0, "after 1ms": time.Millisecond, "after 5ms": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var read atomic.Int64
			app := startTCPServer(t, func(conn net.Conn) {
				r := bufio.NewReader(conn)
				if _, _, err := readRequest(r); err != nil {
					return
				}
				read.Add(1)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				if after > 0 {
					_ = conn.SetReadDeadline(time.Now().Add(after))
					if _, err := r.Peek(1); err == nil { // a request that arrives now gets no response
						read.Add(1)
					}
				}
			})
			s, front := simpleProxy(app)
			w := startWeft(t, s.config())
			c := newClient(t)
			succeeded, lost := int64(0), int64(0)
			for i := range requests {
				switch got := sendRequest(t, c, "GET", "http://"+front, ""); got.status {
				case 200:
					succeeded++
				case 502:
					lost++
				default:
					t.Fatalf("GET %d: %d %q", i, got.status, got.body)
				}
			}
			if n := read.Load(); n > requests || n < succeeded {
				t.Errorf("the upstream read %d requests, want each at most once; %d got a response", n, succeeded)
			}
			t.Logf("%d of %d were lost, %v resent", lost, requests, w.metric("weft_cluster_resent_total"))
		})
	}
}

func TestDisconnectCancelsUpstreamRequest(t *testing.T) {
	t.Parallel()
	app := startHoldingUpstream(t)
	s, front := simpleProxy(app.address)
	startWeft(t, s.config())
	client := dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\n\n")
	app.await(t)
	_ = client.Close() // the client disconnects
	eventually(t, "the upstream connection ends", func() bool { return app.connections() == 0 })
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	app := startHoldingUpstream(t)
	front, untrusted := freeAddress(), freeAddress()
	startWeft(t, setup{
		listeners: list{httpListenerWith("front", front, object{"trust_timeout_fields": true}), networkListener("untrusted", untrusted, object{
			"type": "proxy", "config": object{"downstream_protocol": "Http1", "router_config_name": "front"}})},
		tables: list{routeTable("front",
			routeTo("/route", "app", object{"timeout": "200ms"}),
			routeTo("/try", "app", object{"timeout": "1h", "retry_policy": object{"retry_on": true, "num_retries": 2, "retry_timeout": "100ms"}}),
			routeTo("/", "app"))},
		clusters: list{cluster("app", nil, app.address)},
	}.config())
	for _, c := range []struct {
		name, front, path string
		fields            []string
		hits              int64
	}{
		{"route timeout", front, "/route", nil, 1},
		{"per-try timeout", front, "/try", nil, 3},
		{"header of a trusted client", front, "/", []string{"x-mosn-global-timeout: 150"}, 1},
		{"header of an untrusted client", untrusted, "/route", []string{"x-mosn-global-timeout: 60000"}, 1},
		{"per-try header of an untrusted client", untrusted, "/try", []string{"X-Mosn-Try-Timeout: 60000"}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := app.requests.Load()
			got := sendRequest(t, newClient(t), "GET", "http://"+c.front+c.path, "", c.fields...)
			if got.status != 504 || got.took < 100*time.Millisecond || got.took > 5*time.Second {
				t.Errorf("%d after %v, want 504 after 100ms to 5s", got.status, got.took)
			}
			if n := app.requests.Load() - before; n != c.hits {
				t.Errorf("the upstream got %d requests, want %d", n, c.hits)
			}
		})
	}
}
