package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// outlierDetection returns outlier detection that ejects after three consecutive failures, for
// longer than a test.
func outlierDetection(extra object) object {
	return object{"outlier_detection": object{
		"consecutive_5xx": 3, "max_ejection_percent": 50, "base_ejection_time": "60s",
	}.with(extra)}
}

// TestRPCStatusEjection verifies which status of an RPC response counts as a failure.
func TestRPCStatusEjection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		status  byte
		ejected bool
	}{
		{"server error", 80, true},
		{"server timeout", 31, true},
		{"closed connections", closeConnection, true},
		{"bad request", 40, false},
		{"ok", dubboOK, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			good := startProvider(t, "good", nil)
			target := startProvider(t, "odd", func([]byte, int64) byte { return tt.status })
			front := freeAddress()
			w := startWeft(t, setup{
				listeners: list{listenDubbo("front", front)},
				tables:    list{routeTable("front", routeTo("/", "app"))},
				clusters:  list{cluster("app", outlierDetection(nil), good.address, target.address)},
			}.config())
			c := newConsumer(t, front)
			for range 20 {
				c.call(invocation{service: "org.example.Shop", method: "buy"})
			}
			want := int64(10)
			if tt.ejected {
				want = 3
			}
			if got := target.calls.Load(); got != want {
				t.Errorf("the provider got %d calls of 20, want %d", got, want)
			}
			if h := w.hostState("app", target.address); (h.Why == "ejected") != tt.ejected {
				t.Errorf("/clusters reports %+v, want ejected: %v", h, tt.ejected)
			}
		})
	}
}

// TestGRPCStatusEjection verifies that outlier detection uses the grpc-status of the trailers or
// headers, not the HTTP status 200.
func TestGRPCStatusEjection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status  string
		trailer bool
		ejected bool
	}{
		{"14", true, true}, {"14", false, true}, {"13", true, true}, {"5", true, false}, {"7", false, false}, {"0", true, false},
	} {
		t.Run(fmt.Sprintf("status %s, in trailers %v", tt.status, tt.trailer), func(t *testing.T) {
			t.Parallel()
			good, target := serveGRPC(t, ""), serveStatus(t, tt.status, tt.trailer)
			w, front, c := startGRPCProxy(t, object{}, list{cluster("app", outlierDetection(nil), good.address, target.address)}, routeTo("/", "app"))
			for range 20 {
				callGRPC(t, c, front, "/shop.Items/List")
			}
			if tt.ejected {
				eventually(t, "the server is ejected", func() bool { return w.hostState("app", target.address).Why == "ejected" })
			} else if h := w.hostState("app", target.address); h.Health != "up" {
				t.Errorf("/clusters reports %+v, want a host that is up", h)
			}
		})
	}
}

// serveStatus starts a gRPC server whose calls end with status, in trailers or in the headers.
func serveStatus(t *testing.T, status string, trailer bool) *grpcUpstream {
	t.Helper()
	upstream := new(grpcUpstream)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		upstream.calls.Add(1)
		_, _ = io.Copy(io.Discard, req.Body)
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		if !trailer {
			h.Set("Grpc-Status", status)
			return
		}
		_, _ = w.Write([]byte{0, 0, 0, 0, 0})
		h.Set(http.TrailerPrefix+"Grpc-Status", status)
	}))
	s.Config.Protocols = httpProtocols("Http2")
	s.Start()
	t.Cleanup(s.Close)
	upstream.address = s.Listener.Addr().String()
	return upstream
}

// TestLocalOriginErrorsEject verifies that timeouts and incomplete responses count as local origin
// failures if split_external_local_origin_errors is on.
func TestLocalOriginErrorsEject(t *testing.T) {
	t.Parallel()
	for name, app := range map[string]http.HandlerFunc{
		"slow": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"incomplete response": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(make([]byte, 50000))
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, target := startUpstream(t, respondWith("good")), startUpstream(t, app)
			s, front := simpleProxy()
			s.tables = list{routeTable("front", routeTo("/", "app", object{"timeout": "200ms"}))}
			s.clusters = list{cluster("app", outlierDetection(object{
				"split_external_local_origin_errors": true, "consecutive_5xx": 1000, "consecutive_local_origin_failure": 2,
			}), good.address, target.address)}
			w := startWeft(t, s.config())
			c := &http.Client{Timeout: waitTimeout}
			for range 8 {
				if resp, err := c.Get("http://" + front); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body) // the body may be incomplete
					_ = resp.Body.Close()
				}
			}
			eventually(t, "the host is ejected", func() bool { return w.hostState("app", target.address).Why == "ejected" })
			if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.body != "good" {
				t.Errorf("the other host responds %d %q, want \"good\"", got.status, got.body)
			}
		})
	}
}
