package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// breakerProxy runs a proxy with circuit breakers in front of an upstream that holds its requests.
func breakerProxy(t *testing.T, breakers, route object) (w *weft, app *holdingUpstream, url string) {
	t.Helper()
	app = startHoldingUpstream(t)
	front := freeAddress()
	w = startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app", route))},
		clusters:  list{cluster("app", object{"circuit_breakers": list{breakers}}, app.address)},
	}.config())
	return w, app, "http://" + front
}

// requestInBackground sends a GET in a goroutine. wait returns its response, and fails the test on
// an error.
func requestInBackground(t *testing.T, url string) (wait func() httpResponse) {
	t.Helper()
	type result struct {
		httpResponse
		err error
	}
	done := make(chan result, 1)
	c := newClient(t)
	go func() {
		got, err := tryRequest(context.Background(), c, "GET", url, "")
		done <- result{got, err}
	}()
	return func() httpResponse {
		t.Helper()
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.httpResponse
	}
}

func TestMaxRequests(t *testing.T) {
	t.Parallel()
	w, app, url := breakerProxy(t, object{"max_requests": 2}, nil)
	first, second := requestInBackground(t, url), requestInBackground(t, url)
	app.await(t)
	app.await(t)
	if got := sendRequest(t, newClient(t), "GET", url, ""); got.status != 503 {
		t.Errorf("third request: %d, want 503", got.status)
	}
	if n := w.metric("weft_cluster_overflow_total", `limit="requests"`); n != 1 {
		t.Errorf("weft_cluster_overflow_total{limit=\"requests\"} = %v, want 1", n)
	}
	close(app.release)
	if a, b := first(), second(); a.status != 200 || b.status != 200 {
		t.Errorf("first two requests: %d and %d; want 200, 200", a.status, b.status)
	}
	if got := sendRequest(t, newClient(t), "GET", url, ""); got.status != 200 {
		t.Errorf("after the first two requests: %d, want 200", got.status)
	}
}

func TestMaxConnectionsQueuesRequests(t *testing.T) {
	t.Parallel()
	w, app, url := breakerProxy(t, object{"max_connections": 1, "max_pending_requests": 1}, nil)
	first := requestInBackground(t, url)
	app.await(t)
	second := requestInBackground(t, url)
	// The second request is pending and fills the queue, so the third overflows.
	eventually(t, "one request is pending", func() bool { return w.metric("weft_cluster_requests_active") == 2 })
	if got := sendRequest(t, newClient(t), "GET", url, ""); got.status != 503 {
		t.Errorf("third request: %d, want 503", got.status)
	}
	close(app.release)
	if a, b := first(), second(); a.status != 200 || b.status != 200 {
		t.Errorf("first request: %d, pending request: %d; want 200, 200", a.status, b.status)
	}
	if n := app.opened.Load(); n != 1 {
		t.Errorf("%d connections were opened, want 1", n)
	}
}

// exceedRetryLimit runs Weft with a retry in flight, and sends a request whose retry exceeds the
// retry limit of breakers. end lets the first request finish and checks its response.
func exceedRetryLimit(t *testing.T, breakers object) (w *weft, end func()) {
	t.Helper()
	var requestCount atomic.Int64
	release, arrived := make(chan struct{}), make(chan struct{}, 8)
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if requestCount.Add(1)%2 == 1 || r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		arrived <- struct{}{}
		<-release
	})
	front := freeAddress()
	w = startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app", object{"retry_policy": object{"retry_on": true, "num_retries": 1}}))},
		clusters:  list{cluster("app", object{"circuit_breakers": list{breakers}}, app.address)},
	}.config())
	waitRetried := requestInBackground(t, "http://"+front+"/held")
	<-arrived // the retry of /held
	if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/fails", ""); got.status != 503 {
		t.Errorf("failure while a retry is in flight: %d, want its 503", got.status)
	}
	return w, func() {
		t.Helper()
		close(release)
		if got := waitRetried(); got.status != 200 {
			t.Errorf("retried request: %d, want 200", got.status)
		}
	}
}

func TestMaxRetries(t *testing.T) {
	t.Parallel()
	w, end := exceedRetryLimit(t, object{"max_retries": 1})
	defer end()
	if n := w.metric("weft_cluster_overflow_total", `limit="retries"`); n != 1 {
		t.Errorf("weft_cluster_overflow_total{limit=\"retries\"} = %v, want 1", n)
	}
}

// dnsServer is a DNS server for tests.
type dnsServer struct {
	address string
	mu      sync.Mutex
	records []string // guarded by mu; addresses of every name
	code    int      // guarded by mu
	queries atomic.Int64
}

func startDNSServer(t *testing.T, records ...string) *dnsServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{address: conn.LocalAddr().String(), records: records}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: conn, Handler: s, NotifyStartedFunc: func() { close(started) }}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.ActivateAndServe(); err != nil {
			t.Errorf("DNS server: %v", err)
		}
	}()
	<-started
	t.Cleanup(func() {
		_ = server.Shutdown() // fails only if the server was not started
		<-ended
	})
	return s
}

func (s *dnsServer) set(code int, records ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.records = code, records
}

// ServeDNS implements dns.Handler.
func (s *dnsServer) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	s.queries.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := new(dns.Msg).SetRcode(query, s.code)
	for _, address := range s.records {
		if query.Question[0].Qtype != dns.TypeA {
			break
		}
		record, err := dns.NewRR(fmt.Sprintf("%s 60 IN A %s", query.Question[0].Name, address))
		if err != nil {
			panic(err)
		}
		resp.Answer = append(resp.Answer, record)
	}
	_ = w.WriteMsg(resp) // the resolver repeats a query that gets no response
}

func TestStrictDNS(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(freeAddress())
	for _, ip := range []string{"127.0.0.2", "127.0.0.3"} {
		startUpstreamAt(t, net.JoinHostPort(ip, port), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, ip+" "+r.Host)
		})
	}
	server := startDNSServer(t, "127.0.0.2")
	front := freeAddress()
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app", object{"timeout": "2s"}))},
		clusters: list{cluster("app", object{
			"type": "STRICT_DNS", "dns_refresh_rate": "50ms", "dns_resolvers": list{server.address},
			"connect_timeout": "500ms",
		}, "app.example:"+port)},
	}.config())
	c := newClient(t)
	seen := func() map[string]bool {
		addresses := map[string]bool{}
		for range 8 {
			got := sendRequest(t, c, "GET", "http://"+front, "", "Host: shop.example")
			ip, host, _ := strings.Cut(got.body, " ")
			if got.status != 200 || host != "shop.example" {
				t.Fatalf("GET: %d %q; want 200, \"shop.example\"", got.status, got.body)
			}
			addresses[ip] = true
		}
		return addresses
	}
	if got := seen(); len(got) != 1 || !got["127.0.0.2"] {
		t.Errorf("one address: requests go to %v, want only 127.0.0.2", got)
	}
	server.set(dns.RcodeSuccess, "127.0.0.2", "127.0.0.3")
	eventually(t, "both addresses get requests", func() bool { return len(seen()) == 2 })
	server.set(dns.RcodeSuccess, "127.0.0.3")
	eventually(t, "the first address gets no more requests", func() bool { got := seen(); return !got["127.0.0.2"] })
	if text := w.adminGet("/stats/prometheus"); strings.Contains(text, "127.0.0.2:"+port) {
		t.Error("metrics still have the removed host")
	}
	for name, code := range map[string]int{"SERVFAIL": dns.RcodeServerFailure, "REFUSED": dns.RcodeRefused} {
		server.set(code)
		requests := server.queries.Load()
		eventually(t, "the DNS server got another query", func() bool { return server.queries.Load() > requests+4 })
		if got := seen(); len(got) != 1 || !got["127.0.0.3"] {
			t.Errorf("after %s: %v, want the last resolved addresses", name, got)
		}
	}
}

func TestUnresolvedName(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("hello"))
	_, port, _ := net.SplitHostPort(app.address)
	server := startDNSServer(t)
	server.set(dns.RcodeNameError)
	front := freeAddress()
	startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app"))},
		clusters: list{cluster("app", object{
			"type": "STRICT_DNS", "dns_refresh_rate": "50ms", "dns_resolvers": list{server.address},
		}, "app.example:"+port)},
	}.config())
	c := newClient(t)
	if got := sendRequest(t, c, "GET", "http://"+front, ""); got.status != 502 {
		t.Errorf("without an address: %d, want 502", got.status)
	}
	server.set(dns.RcodeSuccess, "127.0.0.1")
	eventually(t, "the name is resolved", func() bool { return sendRequest(t, c, "GET", "http://"+front, "").status == 200 })
}
