package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// streamLimitedUpstream is an HTTP/2 upstream that allows three streams on a connection and sends
// no response until release is closed.
type streamLimitedUpstream struct {
	address string
	opened  atomic.Int64 // number of connections
	arrived chan struct{}
	release chan struct{} // closed to respond to every request
}

func startStreamLimitedUpstream(t *testing.T) *streamLimitedUpstream {
	t.Helper()
	u := &streamLimitedUpstream{arrived: make(chan struct{}, 64), release: make(chan struct{})}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		u.arrived <- struct{}{}
		select {
		case <-u.release:
		case <-r.Context().Done():
		}
	}))
	s.Config.Protocols = httpProtocols("Http2")
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 3}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			u.opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	u.address = s.Listener.Addr().String()
	return u
}

// startHTTP2Proxy runs Weft with one HTTP/2 cluster.
func startHTTP2Proxy(t *testing.T, cluster object) (w *weft, url string) {
	t.Helper()
	front := freeAddress()
	w = startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app", object{"upstream_protocol": "Http2"}))},
		clusters:  list{cluster},
	}.config())
	return w, "http://" + front
}

func TestMaxStreamsOpensAnotherConnection(t *testing.T) {
	t.Parallel()
	app := startStreamLimitedUpstream(t)
	w, url := startHTTP2Proxy(t, cluster("app", nil, app.address))
	var responses []func() httpResponse
	for range 12 {
		responses = append(responses, requestInBackground(t, url))
		<-app.arrived // no request is pending
	}
	if got := app.opened.Load(); got != 4 {
		t.Errorf("12 requests to a host with 3 streams per connection use %d connections, want 4", got)
	}
	close(app.release)
	for i, wait := range responses {
		if got := wait(); got.status != 200 {
			t.Errorf("response to request %d: %d %q, want 200", i, got.status, got.body)
		}
	}
	if got := w.metric("weft_cluster_connections_active"); got > 4 {
		t.Errorf("%v connections to the cluster are open, want at most 4", got)
	}
}

func TestRequestsWaitForStreams(t *testing.T) {
	t.Parallel()
	app := startStreamLimitedUpstream(t)
	_, url := startHTTP2Proxy(t, cluster("app", object{"circuit_breakers": list{object{"max_connections": 2}}}, app.address))
	var responses []func() httpResponse
	for i := range 12 {
		responses = append(responses, requestInBackground(t, url))
		if i < 6 {
			<-app.arrived
		}
	}
	close(app.release)
	for i, wait := range responses {
		if got := wait(); got.status != 200 {
			t.Errorf("response to request %d: %d %q, want 200", i, got.status, got.body)
		}
	}
	if got := app.opened.Load(); got != 2 {
		t.Errorf("opened %d connections, want 2 (max_connections)", got)
	}
}

func TestWarmConnections(t *testing.T) {
	t.Parallel()
	app := startStreamLimitedUpstream(t)
	w, url := startHTTP2Proxy(t, cluster("app", object{"connection_pool": object{"warm": "Http2"}}, app.address))
	eventually(t, "Weft opens a connection before the first request", func() bool { return app.opened.Load() == 1 })
	close(app.release)
	if got := sendRequest(t, newClient(t), "GET", url, ""); got.status != 200 {
		t.Errorf("response %d %q, want 200", got.status, got.body)
	}
	if got := app.opened.Load(); got != 1 {
		t.Errorf("opened %d connections, want 1", got)
	}
	if got := w.metric("weft_cluster_connections_opened_total"); got != 1 {
		t.Errorf("%v connections opened are counted, want 1", got)
	}
}
