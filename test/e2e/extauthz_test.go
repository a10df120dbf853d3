package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
)

// authzProxy returns the configuration and the address of a proxy in front of app whose ext_authz
// filter uses the cluster authz.
func authzProxy(filter object, protocol, app, authz string) (setup, string) {
	front := freeAddress()
	return setup{
		listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
			"downstream_protocol": protocol, "upstream_protocol": "Http1", "router_config_name": "front"}},
			object{"stream_filters": list{streamFilter("ext_authz", filter)}})},
		tables:   list{routeTable("front", routeTo("/", "app"))},
		clusters: list{cluster("app", nil, app), cluster("authz", nil, authz)},
	}, front
}

// TestExtAuthzForDubbo verifies ext_authz for Dubbo. The service gets the method and the
// attachments, the provider gets the user, and a denied call gets an error status.
func TestExtAuthzForDubbo(t *testing.T) {
	t.Parallel()
	received := make(chan *authv3.AttributeContext, 10)
	web := startUpstream(t, serveHTTPAuthorizer)
	for _, service := range []struct {
		name, authz string
		filter      object
	}{
		{"HTTP service", web.address, httpAuthz("authz", nil)},
		{"gRPC service", serveAuthorizer(t, func(a *authv3.AttributeContext) { received <- a }), grpcAuthz("authz", nil)},
	} {
		t.Run(service.name, func(t *testing.T) {
			frames := make(chan string, 10)
			shop := startProvider(t, "shop", func(frame []byte, _ int64) byte { frames <- string(frame); return dubboOK })
			front := freeAddress()
			startWeft(t, setup{
				listeners: list{listenDubbo("front", front, object{"stream_filters": list{streamFilter("ext_authz", service.filter)}})},
				tables:    list{routeTable("front", routeTo("/", "shop"))},
				clusters:  list{cluster("shop", nil, shop.address), cluster("authz", nil, service.authz)},
			}.config())
			client := newConsumer(t, front)
			for _, c := range []struct {
				token  string
				status byte
			}{{"quiet", dubboOK}, {"tea", 70}, {"none", 70}, {"error", 70}, {"quiet", dubboOK}} {
				got := client.call(invocation{service: "org.example.Shop", method: "buy", attachments: []string{"x-token: " + c.token, "x-user: root", "x-forged: yes"}})
				if got.status != c.status {
					t.Errorf("%s: %d %q, want %d", c.token, got.status, got.text, c.status)
				}
				if c.status != dubboOK {
					continue
				}
				if frame := <-frames; !strings.Contains(frame, "ann") || strings.Contains(frame, "root") || strings.Contains(frame, "x-forged") {
					t.Errorf("%s: the provider got %q, want the user ann and no forged headers", c.token, frame)
				}
			}
			client.next++
			opaque := invocation{service: "org.example.Shop", method: "buy", attachments: []string{"x-token: quiet"}}.frame(client.next)
			opaque[2] = opaque[2]&^0x1f | 23 // a serialization that Weft does not parse
			if _, err := client.conn.Write(opaque); err != nil {
				t.Fatal(err)
			}
			if got, err := readDubbo(client.r); err != nil || got[3] == dubboOK {
				t.Errorf("call with an unknown serialization: %q, %v", got, err)
			}
		})
	}
	a := <-received
	if r := a.GetRequest().GetHttp(); r.GetPath() != "/org.example.Shop/buy" || r.GetHost() != "org.example.Shop" || r.GetHeaders()["method"] != "buy" || r.GetMethod() != "" {
		t.Errorf("the service got %v, want the method buy of org.example.Shop", r)
	}
}

// TestExtAuthzFailureDenies verifies that a request is denied if the authorization service
// fails, and that the timeout of the service bounds the wait.
func TestExtAuthzFailureDenies(t *testing.T) {
	t.Parallel()
	rawServer := func(text string) string {
		return startTCPServer(t, func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, c, 20) // a check has arrived
			_, _ = io.WriteString(c, text)
			_, _ = io.Copy(io.Discard, c)
		})
	}
	endless := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		for text := strings.Repeat("x", 64<<10); ; {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	})
	shortTimeout := object{"timeout": "300ms"}
	http1 := httpAuthz("authz", nil)
	http1["http_service"].(object)["server_uri"].(object)["timeout"] = "300ms"
	grpc := object{"grpc_service": object{"cluster": "authz"}.with(shortTimeout)}
	app := startUpstream(t, respondWith("app"))
	for name, c := range map[string]struct {
		filter object
		authz  string
		passes bool
	}{
		"HTTP: no server":           {filter: http1, authz: freeAddress()},
		"HTTP: no response":         {filter: http1, authz: rawServer("")},
		"HTTP: other protocol":      {filter: http1, authz: rawServer("SSH-2.0-x\r\n")},
		"HTTP: incomplete response": {filter: http1, authz: rawServer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")},
		"HTTP: response too large":  {filter: http1, authz: endless.address},
		"gRPC: no server":           {filter: grpc, authz: freeAddress()},
		"gRPC: no response":         {filter: grpc, authz: rawServer("")},
		"gRPC: HTTP/1.1 server":     {filter: grpc, authz: endless.address},
		"gRPC: unresponsive server": {filter: grpc, authz: unresponsiveAddress(t)},
		// An empty message has the status 0, which is OK.
		"gRPC: empty response": {filter: grpc, authz: serveGRPC(t, "").address, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, front := authzProxy(c.filter, "Http1", app.address, c.authz)
			w := startWeft(t, s.config())
			got := sendRequest(t, newClient(t), "GET", "http://"+front, "", "X-Token: good")
			if c.passes != (got.status == 200) || !c.passes && got.status != 403 {
				t.Errorf("status %d, body %q; want the request to pass: %t", got.status, got.body, c.passes)
			}
			if got.took > waitTimeout/2 {
				t.Errorf("the response took %v, want at most %v", got.took, waitTimeout/2)
			}
			if n := w.metric("weft_filter_ext_authz_requests_total", `result="error"`); got.status == 403 && n != 1 {
				t.Errorf("%v errors are counted, want 1", n)
			}
		})
	}
}

// slowAuthorizer is an authorization service, HTTP or gRPC, that responds when release is closed.
type slowAuthorizer struct {
	authv3.UnimplementedAuthorizationServer
	arrived  chan struct{} // gets a value for each check that arrives
	canceled chan struct{} // gets a value for each check that is canceled
	release  chan struct{} // closed to let checks return
}

func newSlowAuthorizer() *slowAuthorizer {
	return &slowAuthorizer{arrived: make(chan struct{}, 10), canceled: make(chan struct{}, 10), release: make(chan struct{})}
}

func (s *slowAuthorizer) wait(ctx context.Context) {
	s.arrived <- struct{}{}
	select {
	case <-ctx.Done():
		s.canceled <- struct{}{}
	case <-s.release:
	}
}

// ServeHTTP implements http.Handler.
func (s *slowAuthorizer) ServeHTTP(_ http.ResponseWriter, r *http.Request) { s.wait(r.Context()) }

// Check implements authv3.AuthorizationServer.
func (s *slowAuthorizer) Check(ctx context.Context, _ *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	s.wait(ctx)
	return new(authv3.CheckResponse), nil
}

// await waits for a value on event, and fails the test after waitTimeout.
func await(t *testing.T, label string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(waitTimeout):
		t.Fatalf("timeout after %v while waiting for this: %s", waitTimeout, label)
	}
}

// forEachSlowAuthorizer runs test with a slow HTTP service and a slow gRPC service.
func forEachSlowAuthorizer(t *testing.T, test func(t *testing.T, s *slowAuthorizer, filter object, address string)) {
	t.Run("HTTP", func(t *testing.T) {
		s := newSlowAuthorizer()
		filter := httpAuthz("authz", nil)
		filter["http_service"].(object)["server_uri"].(object)["timeout"] = "1m"
		test(t, s, filter, startUpstream(t, s.ServeHTTP).address)
	})
	t.Run("gRPC", func(t *testing.T) {
		s := newSlowAuthorizer()
		test(t, s, object{"grpc_service": object{"cluster": "authz", "timeout": "1m"}}, startAuthorizer(t, s))
	})
}

// TestExtAuthzCheckIsCanceledOnDisconnect verifies that a disconnect of the client cancels the
// check.
func TestExtAuthzCheckIsCanceledOnDisconnect(t *testing.T) {
	t.Parallel()
	forEachSlowAuthorizer(t, func(t *testing.T, s *slowAuthorizer, filter object, address string) {
		app := startUpstream(t, respondWith("app"))
		c, front := authzProxy(filter, "Auto", app.address, address)
		w := startWeft(t, c.config())
		for _, version := range []string{"Http1", "Http2"} {
			ctx, cancel := context.WithCancel(t.Context())
			disconnected := make(chan struct{})
			go func() {
				defer close(disconnected)
				_, _ = tryRequest(ctx, clients(t)[version], "GET", "http://"+front, "") // the request is canceled
			}()
			await(t, version+": the check has arrived", s.arrived)
			cancel()
			await(t, version+": the check is canceled", s.canceled)
			await(t, version+": the client has disconnected", disconnected)
		}
		eventually(t, "both disconnects are counted", func() bool {
			return w.metric("weft_listener_request_failures_total", `reason="downstream_gone"`) == 2
		})
		if n := app.requests.Load(); n != 0 {
			t.Errorf("%d requests reached the upstream, want 0", n)
		}
	})
}

// TestDrainWaitsForExtAuthz verifies that a drain waits for requests whose check is in flight.
func TestDrainWaitsForExtAuthz(t *testing.T) {
	t.Parallel()
	forEachSlowAuthorizer(t, func(t *testing.T, s *slowAuthorizer, filter object, address string) {
		app := startUpstream(t, respondWith("app"))
		c, front := authzProxy(filter, "Http1", app.address, address)
		c.server = object{"graceful_timeout": "1m"}
		w := startWeft(t, c.config())
		got := make(chan httpResponse, 1)
		go func() {
			resp, _ := tryRequest(t.Context(), newClient(t), "GET", "http://"+front, "") // the test checks the status
			got <- resp
		}()
		await(t, "the check has arrived", s.arrived)
		w.signal(os.Signal(sigterm))
		w.stderr.await(t, 0, "drain")
		close(s.release)
		if resp := <-got; resp.status != 200 || resp.body != "app" {
			t.Errorf("%d %q, want the upstream's response", resp.status, resp.body)
		}
		w.awaitExit(waitTimeout)
	})
}

// TestExtAuthzWithRequestBody verifies that the authorization service gets the first
// max_request_bytes of a body, and the upstream gets all of it.
func TestExtAuthzWithRequestBody(t *testing.T) {
	t.Parallel()
	received := make(chan int, 10)
	authz := serveAuthorizer(t, func(a *authv3.AttributeContext) { received <- len(a.GetRequest().GetHttp().GetBody()) })
	app := startUpstream(t, respondDigest)
	s, front := authzProxy(grpcAuthz("authz", object{"with_request_body": object{"max_request_bytes": "1MB", "allow_partial_message": true}}), "Auto", app.address, authz)
	startWeft(t, s.config())
	for version, c := range clients(t) {
		for _, size := range []int{100, 1 << 20, 3 << 20} {
			body := "good" + strings.Repeat("x", size)
			got := sendRequest(t, c, "POST", "http://"+front, body, "Expect: 100-continue")
			if got.status != 200 || got.body != digest([]byte(body)) {
				t.Errorf("%s, %d bytes: %d %.60q; want 200 and the digest of the body", version, len(body), got.status, got.body)
			}
			if n := <-received; n != min(len(body), 1<<20) {
				t.Errorf("%s: the service got %[3]d of %[2]d bytes, want %d", version, len(body), n, min(len(body), 1<<20))
			}
		}
	}
}

func extAuthzExample(t *testing.T) {
	extensions := make(chan string, 10)
	grpc := serveAuthorizer(t, func(a *authv3.AttributeContext) { extensions <- a.GetContextExtensions()["realm"] })
	web, app := startUpstream(t, serveHTTPAuthorizer), startUpstream(t, describeRequest)
	e := loadExample(t, "ext_authz.json")
	for _, host := range [][3]string{{"app", "2686", app.address}, {"authz_http", "2687", web.address}, {"authz_grpc", "2688", grpc}} {
		e.replace(`{"name": "`+host[0]+`", "hosts": [{"address": "`+e.address(host[1])+`"}]}`, `{"name": "`+host[0]+`", "hosts": [{"address": "`+host[2]+`"}]}`)
	}
	e.run("ext_authz.json")
	for version, c := range clients(t) {
		for _, test := range []struct {
			path, body, token string
			status            int
			user              string
		}{
			{"/", "", "good", 200, "ann"},
			{"/", "", "tea", 418, ""},
			{"/", "", "", 401, ""},
			{"/public/a", "", "", 200, ""},
			{"/shop/a", "good" + strings.Repeat("x", 100_000), "", 200, "ann"},
			{"/shop/a", strings.Repeat("x", 100_000) + "good", "", 401, ""},
		} {
			fields := []string{"X-User: root"}
			if test.token != "" {
				fields = append(fields, "X-Token: "+test.token)
			}
			got := sendRequest(t, c, "POST", "http://"+e.address("2685")+test.path, test.body, fields...)
			if got.status != test.status || strings.Contains(got.body, "X-User: ann") != (test.user == "ann") || strings.Contains(got.body, "root") {
				t.Errorf("%s %s by %q: %d, want %d\n%.300s", version, test.path, test.token, got.status, test.status, got.body)
			}
		}
	}
	if got := <-extensions; got != "shop" {
		t.Errorf("the gRPC service got the realm %q, want shop", got)
	}
}
