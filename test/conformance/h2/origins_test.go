package h2

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// origin is a net/http server for HTTP/1.1, or for HTTP/2 with prior knowledge.
type origin struct {
	address  string
	requests atomic.Int64 // number of requests received

	server *http.Server
}

// startOrigin runs an origin until the end of the test.
func startOrigin(t *testing.T, http2 bool) *origin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{address: l.Addr().String()}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	o.server = &http.Server{
		Protocols: protocols,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: 1000},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.requests.Add(1)
			serveOrigin(w, r)
		}),
		ErrorLog: discardLogger(),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := o.server.Serve(l); err != http.ErrServerClosed {
			t.Errorf("origin: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = o.server.Close() // connections may be in use
		<-ended
	})
	return o
}

// drain shuts the server down after the responses to all requests.
func (o *origin) drain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := o.server.Shutdown(ctx); err != nil {
		t.Errorf("origin: %v", err)
	}
}

// awaitRequests waits until n requests have arrived.
func (o *origin) awaitRequests(t *testing.T, n int64) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	for o.requests.Load() < n {
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("the origin received %d requests, want %d", o.requests.Load(), n)
		}
	}
}

// serveOrigin responds according to the path:
//
//	/bytes/N   N bytes
//	/wait/D    "waited" after a duration D
//	/trailers  "content" with the trailer X-After: the value of X-Before, of the
//	           request's headers or trailers
//	/stall     nothing, and it does not read the body, until the client disconnects
//	others     a line with method, path, protocol major version and body size
func serveOrigin(w http.ResponseWriter, r *http.Request) {
	path, argument, _ := strings.Cut(r.URL.Path[1:], "/")
	if path == "stall" {
		<-r.Context().Done()
		return
	}
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return // the client has disconnected
	}
	switch path {
	case "bytes":
		n, err := strconv.Atoi(argument)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", argument)
		_, _ = io.CopyN(w, zeros{}, int64(n)) // the client may have disconnected
	case "wait":
		d, err := time.ParseDuration(argument)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(d):
			_, _ = io.WriteString(w, "waited\n")
		case <-r.Context().Done():
		}
	case "trailers":
		w.Header().Set("Trailer", "X-After")
		_, _ = io.WriteString(w, "content\n")
		_ = http.NewResponseController(w).Flush() // no Content-Length: curl would stop reading there
		w.Header().Set("X-After", r.Header.Get("X-Before")+r.Trailer.Get("X-Before"))
	default:
		_, _ = fmt.Fprintf(w, "%s %s %d %d\n", r.Method, r.URL.Path, r.ProtoMajor, size)
	}
}

// discardLogger returns a log that discards its output, for servers whose clients violate the
// protocol.
func discardLogger() *log.Logger { return log.New(io.Discard, "", 0) }

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
