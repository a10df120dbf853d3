package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// http2Example runs http2.json. It sends requests in both HTTP versions to both sidecars, and opens
// a WebSocket through both.
func http2Example(t *testing.T) {
	echo := websocket.Handler(func(ws *websocket.Conn) {
		_, _ = io.Copy(ws, ws) // until the client closes
	})
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			echo.ServeHTTP(w, r)
			return
		}
		w.Header().Set("X-Version", r.Proto)
		describeRequest(w, r)
	}
	e := loadExample(t, "http2.json")
	w := e.run("http2.json", "APP_ADDRESS="+startUpstream(t, handler).address, "APP2_ADDRESS="+serveHTTP2(t, handler))
	for _, test := range []struct{ port, client, path, version string }{
		{"3545", "Http1", "/a", "HTTP/1.1"},
		{"3545", "Http2", "/a", "HTTP/1.1"},
		{"3546", "Http2", "/a", "HTTP/1.1"},
		{"3545", "Http1", "/v2/a", "HTTP/2.0"},
		{"3545", "Http2", "/v2/a", "HTTP/2.0"},
	} {
		transport := &http.Transport{Protocols: httpProtocols(test.client)}
		c := &http.Client{Transport: transport, Timeout: waitTimeout}
		got := sendRequest(t, c, "POST", "http://"+e.address(test.port)+test.path, "hello")
		transport.CloseIdleConnections()
		if version := got.header.Get("X-Version"); got.status != 200 || version != test.version || !strings.HasSuffix(got.body, "hello") {
			t.Errorf("POST %s in %s at :%s: %d, received in %s, %q; want 200, %s and the body", test.path, test.client, test.port, got.status, version, got.body, test.version)
		}
	}
	w.stdout.await(t, 0, "POST /v2/a HTTP/2.0 200 server")

	ws, err := websocket.Dial("ws://"+e.address("3545")+"/chat", "", "http://shop.test/")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if err := ws.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	want, got := bytes.Repeat([]byte("all bytes "), 100_000), []byte(nil)
	sendErr := make(chan error, 1)
	go func() { sendErr <- websocket.Message.Send(ws, want) }()
	for len(got) < len(want) { // the echo has other message boundaries
		buf := make([]byte, 32<<10)
		n, err := ws.Read(buf)
		if err != nil {
			t.Fatalf("read %d bytes of %d: %v", len(got), len(want), err)
		}
		got = append(got, buf[:n]...)
	}
	if err := <-sendErr; err != nil || !bytes.Equal(got, want) {
		t.Errorf("WebSocket echo of 1 MB differs: %t, %v", !bytes.Equal(got, want), err)
	}
}

// serveHTTP2 starts an upstream of HTTP/2 with prior knowledge and returns its address.
func serveHTTP2(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = httpProtocols("Http2")
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// grpcServer starts a gRPC server that responds with status, except to the methods Slow and Watch,
// which never respond. It returns the address.
func grpcServer(t *testing.T, status string) string {
	t.Helper()
	return serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Slow") || strings.HasSuffix(r.URL.Path, "/Watch") {
			<-r.Context().Done()
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // the body is not needed
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", status)
	})
}

func grpcExample(t *testing.T) {
	e := loadExample(t, "grpc.json")
	w := e.run("grpc.json", "APP_ADDRESS="+grpcServer(t, "14"), "APP2_ADDRESS="+grpcServer(t, "0"))
	transport := &http.Transport{Protocols: httpProtocols("Http2")}
	t.Cleanup(transport.CloseIdleConnections)
	c, front := &http.Client{Transport: transport, Timeout: waitTimeout}, e.address("3645")
	statuses := func(method string) map[string]int {
		seen := map[string]int{}
		for range 6 {
			seen[callGRPC(t, c, front, method)]++
		}
		return seen
	}
	if seen := statuses("/shop.Items/List"); seen["0"] != 6 {
		t.Errorf("reads with one of two hosts unavailable: statuses %v, want 0", seen)
	}
	if seen := statuses("/shop.Items/Put"); seen["14"] == 0 || seen["0"] == 0 {
		t.Errorf("writes with one of two hosts unavailable: statuses %v, want 0 and 14", seen)
	}
	start := time.Now()
	if status := callGRPC(t, c, front, "/shop.Items/Slow"); status != "14" || time.Since(start) < 200*time.Millisecond {
		t.Errorf("status of Slow is %q after %v, want 14 after 200ms", status, time.Since(start))
	}
	if status := callGRPC(t, c, front, "/shop.Other/List"); status != "12" {
		t.Errorf("status of another service is %q, want 12", status)
	}
	w.stdout.await(t, 0, `"service":"shop.Items","method":"List","status":0`)
	w.stdout.await(t, 0, `"service":"shop.Items","method":"Slow","status":14`)
	grpcHealthExample(t, c, front)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+front+"/shop.Items/Watch", strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Grpc-Timeout", "100m")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // the body is empty
	if status := resp.Header.Get("Grpc-Status"); status != "4" {
		t.Errorf("a stream with a timeout of 100ms ended with status %q, want 4", status)
	}
}

// grpcHealthExample checks the health of several service names.
func grpcHealthExample(t *testing.T, c *http.Client, front string) {
	for name, want := range map[string]string{
		"":           "\x00\x00\x00\x00\x02\x08\x01",
		"shop.Items": "\x00\x00\x00\x00\x02\x08\x01",
		"shop.None":  "",
	} {
		message := ""
		if name != "" {
			message = "\x0a" + string(rune(len(name))) + name
		}
		body := "\x00\x00\x00\x00" + string(rune(len(message))) + message
		got := sendRequest(t, c, "POST", "http://"+front+"/grpc.health.v1.Health/Check", body, "Content-Type: application/grpc")
		if got.body != want {
			t.Errorf("the health of %q is %q, status %q; want %q", name, got.body, got.header.Get("Grpc-Status"), want)
		}
	}
}
