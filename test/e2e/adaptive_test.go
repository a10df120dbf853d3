package e2e

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// adaptiveFilter returns the adaptive_concurrency filter with the given minimum concurrency. The
// filter measures the minimum RTT every 10 hours.
func adaptiveFilter(minimum int, extra object) object {
	return streamFilter("adaptive_concurrency", object{"gradient_controller_config": object{
		"min_rtt_calc_params": object{"interval": "10h", "min_concurrency": minimum},
	}}.with(extra))
}

// adaptiveConcurrency verifies that sequential requests stay within a limit of 1.
// TestAdaptiveConcurrencyRejects covers rejections.
func (p *protocolPair) adaptiveConcurrency() feature {
	return feature{
		name: "adaptive_concurrency",
		filters: list{adaptiveFilter(1, object{"per": "method", "priority": object{
			"header": "x-priority", "default": "low", "levels": list{object{"value": "high", "share": 100}, object{"value": "low", "share": 1}}}})},
		routes: []object{routeWithFilter("/off", "adaptive_concurrency", object{}), routeTo("/dead", "dead")},
		cases: []requestCase{
			{name: "sequential requests", path: "/", times: 5, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
			{name: "with body", method: "POST", path: "/", requestBody: "kept", times: 5, status: 200, code: "0", body: "kept"},
			{name: "high priority", path: "/", fields: []string{"X-Priority: high"}, status: 200, code: "0"},
			{name: "failed requests are not in flight", path: "/dead", times: 3, status: 502, code: "14", reason: "connect_failure"},
			{name: "route without the filter", path: "/off", status: 200, code: "0"},
		},
	}
}

const (
	adaptiveRefused  = "weft_filter_adaptive_concurrency_refused_total"
	adaptiveInFlight = "weft_filter_adaptive_concurrency_in_flight"
	adaptiveMinRTT   = "weft_filter_adaptive_concurrency_min_rtt_seconds"
)

// TestAdaptiveConcurrencyRejects verifies that a request above the limit is rejected with a status
// of its protocol, and that requests are accepted again after those in flight have ended.
func TestAdaptiveConcurrencyRejects(t *testing.T) {
	t.Parallel()
	filters := object{"stream_filters": list{adaptiveFilter(1, nil)}}
	for _, down := range []string{"Http1", "Http2"} {
		t.Run(down, func(t *testing.T) {
			t.Parallel()
			app, front := startHoldingUpstream(t), freeAddress()
			w := startWeft(t, setup{
				listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
					"downstream_protocol": down, "upstream_protocol": "Http1", "router_config_name": "front"}}, filters)},
				tables:   list{routeTable("front", routeTo("/", "app"))},
				clusters: list{cluster("app", nil, app.address)},
			}.config())
			c := newClient(t)
			c.Transport.(*http.Transport).Protocols = httpProtocols(down)
			first := make(chan httpResponse, 1)
			go func() {
				got, err := tryRequest(t.Context(), c, "GET", "http://"+front+"/", "")
				if err != nil {
					t.Error(err)
				}
				first <- got
			}()
			app.await(t)
			if got := sendRequest(t, c, "POST", "http://"+front+"/", "lost"); got.status != 503 || got.header.Get("X-App") != "" {
				t.Errorf("request above the limit: %d, want 503 from Weft", got.status)
			}
			if n := w.metric(adaptiveInFlight); n != 1 {
				t.Errorf("%v requests in flight, want 1", n)
			}
			close(app.release)
			if got := <-first; got.status != 200 {
				t.Errorf("the first request: %d, want 200", got.status)
			}
			if got := sendRequest(t, c, "GET", "http://"+front+"/", ""); got.status != 200 {
				t.Errorf("after the first request: %d, want 200", got.status)
			}
			if rejected, n := w.metric(adaptiveRefused), w.metric(adaptiveInFlight); rejected != 1 || n != 0 {
				t.Errorf("%v rejected, %v in flight; want 1 and 0", rejected, n)
			}
		})
	}
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		entered, release := make(chan struct{}, 1), make(chan struct{})
		address := serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // read until EOF or an error
			entered <- struct{}{}
			<-release
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "0")
		})
		_, front, c := startGRPCProxy(t, filters, list{cluster("app", nil, address)}, routeTo("/", "app"))
		first := make(chan string, 1)
		go func() { first <- callGRPC(t, c, front, "/shop.Items/List") }()
		<-entered
		if got := callGRPC(t, c, front, "/shop.Items/Get"); got != "14" {
			t.Errorf("call above the limit: grpc-status %s, want 14", got)
		}
		close(release)
		if got := <-first; got != "0" {
			t.Errorf("the first call: grpc-status %s, want 0", got)
		}
	})
	eachRPC(t, func(t *testing.T, r *rpc) {
		front, arrived := freeAddress(), make(chan struct{}, 1024)
		silent := startTCPServer(t, func(c net.Conn) {
			for rest := []byte(nil); ; {
				if _, err := r.next(c, &rest); err != nil {
					return // the client disconnected
				}
				arrived <- struct{}{}
			}
		})
		startWeft(t, setup{
			listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": r.Name(), "upstream_protocol": r.Name(), "router_config_name": "front"}},
				object{"stream_filters": list{adaptiveFilter(2, object{"priority": object{
					"attachment": "x-priority", "default": "low", "levels": list{object{"value": "high", "share": 100}, object{"value": "low", "share": 50}}}})}})},
			tables:   list{routeTable("front", routeTo("/", "app"))},
			clusters: list{cluster("app", nil, silent)},
		}.config())
		client := r.dial(t, front)
		high := func(id uint64) []byte { return r.withHeader(t, r.request(id), "x-priority", "high") }
		client.send(r.request(1))
		<-arrived
		client.send(r.request(2)) // half of the limit is in use
		if got := client.receive(); got.id != 2 || got.code != r.code(protocol.Overflow) {
			t.Errorf("above the fraction of its priority: response %d with code %d; want 2 and %d", got.id, got.code, r.code(protocol.Overflow))
		}
		client.send(high(3))
		<-arrived
		client.send(high(4))
		if got := client.receive(); got.id != 4 || got.code != r.code(protocol.Overflow) {
			t.Errorf("above the limit: response %d with code %d; want 4 and %d", got.id, got.code, r.code(protocol.Overflow))
		}
	})
}

// TestAdaptiveConcurrencySurvivesReload verifies that a request in flight still counts against the
// limit after a reload.
func TestAdaptiveConcurrencySurvivesReload(t *testing.T) {
	t.Parallel()
	app := startHoldingUpstream(t)
	s, front := simpleProxy(app.address)
	with := func(routes ...object) object {
		s.listeners = list{httpListener("front", front, object{"stream_filters": list{adaptiveFilter(1, nil)}})}
		s.tables = list{routeTable("front", append(routes, object{"name": "rest"}.with(routeTo("/", "app")))...)}
		return s.config()
	}
	w := startWeft(t, with())
	first := requestInBackground(t, "http://"+front+"/")
	app.await(t)
	w.reload(with(directRoute("/other", 200, "")))
	if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", ""); got.status != 503 {
		t.Errorf("after a reload: %d, want 503", got.status)
	}
	close(app.release)
	if got := first(); got.status != 200 {
		t.Errorf("the first request: %d, want 200", got.status)
	}
	if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", ""); got.status != 200 {
		t.Errorf("after the first request has ended: %d, want 200", got.status)
	}
}

// TestStreamsAreNotCountedAsInFlight verifies that a WebSocket tunnel and a gRPC stream whose
// response has started do not count against the limit.
func TestStreamsAreNotCountedAsInFlight(t *testing.T) {
	t.Parallel()
	filters := object{"stream_filters": list{adaptiveFilter(1, nil)}}
	t.Run("WebSocket", func(t *testing.T) {
		t.Parallel()
		app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "" {
				return // 200
			}
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(c, rw) // echo until the client closes
		})
		s, front := simpleProxy(app.address)
		s.listeners = list{httpListener("front", front, filters)}
		w := startWeft(t, s.config())
		for range 2 {
			c := dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n")
			response, err := http.ReadResponse(c.r, nil)
			if err != nil || response.StatusCode != 101 {
				t.Fatalf("handshake: %v, %v; want 101", response, err)
			}
		}
		if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", ""); got.status != 200 {
			t.Errorf("request next to two tunnels: %d, want 200", got.status)
		}
		if n := w.metric(adaptiveInFlight); n != 0 {
			t.Errorf("%v requests in flight, want 0", n)
		}
	})
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		address := serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			_, _ = io.WriteString(w, message("first"))
			w.(http.Flusher).Flush()
			_, _ = io.Copy(io.Discard, r.Body) // until the client ends the stream
		})
		w, front, c := startGRPCProxy(t, object{"stream_filters": list{streamFilter("adaptive_concurrency", object{
			"gradient_controller_config": object{"min_rtt_calc_params": object{"request_count": 2, "min_concurrency": 1}}})}},
			list{cluster("app", nil, address)}, routeTo("/", "app"))
		end := make([]io.WriteCloser, 2)
		for i := range end {
			body, pw := io.Pipe()
			end[i] = pw
			go func() { _, _ = io.WriteString(pw, message("hello")) }() // returns when the message is read
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+front+"/shop.Items/Watch", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/grpc")
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := resp.Header.Get("Grpc-Status"); got != "" {
				t.Fatalf("response headers of stream %d: Grpc-Status %s, want none", i, got)
			}
		}
		if got := w.metric(adaptiveMinRTT); got != 0 {
			t.Errorf("the minimum RTT is %v s, want 0: streams are no samples", got)
		}
		for _, e := range end {
			_ = e.Close()
		}
	})
}

// TestGRPCCallsAreSampled verifies that gRPC calls with one message in each direction count as
// RTT samples, whatever the size of the message.
func TestGRPCCallsAreSampled(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 5, "large": 100_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // read until EOF or an error
				w.Header().Set("Content-Type", "application/grpc")
				w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
				_, _ = io.WriteString(w, message(strings.Repeat("a", size)))
			})
			w, front, c := startGRPCProxy(t, object{"stream_filters": list{streamFilter("adaptive_concurrency", object{
				"gradient_controller_config": object{"min_rtt_calc_params": object{"request_count": 20}}})}},
				list{cluster("app", nil, address)}, routeTo("/", "app"))
			for range 20 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+front+"/shop.Items/List", strings.NewReader(message(strings.Repeat("b", size))))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/grpc")
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
					t.Fatalf("call: error %v, trailer %v; want nil and Grpc-Status 0", err, resp.Trailer)
				}
				_ = resp.Body.Close()
			}
			if got := w.metric(adaptiveMinRTT); got <= 0 || got > waitTimeout.Seconds() {
				t.Errorf("the minimum RTT is %v s, want a positive one of at most %v", got, waitTimeout)
			}
		})
	}
}
