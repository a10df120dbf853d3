package http2

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestStress runs several kinds of clients concurrently on a connection to a host that allows few
// streams. It verifies that the connection still works. The rig verifies that no buffer leaks, and
// TestMain that no goroutine does.
func TestStress(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			w.WriteHeader(403)
		case "/abort":
			_, _ = w.Write(make([]byte, 30_000))
			panic(http.ErrAbortHandler)
		case "/silent":
			<-r.Context().Done()
		default:
			echo(w, r)
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 20}
	s.Start()
	defer s.Close()
	forwarding := new(forward)
	r := newRig(t, protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		return x.Serve(ctx, forwarding)
	}), nil)
	r2 := newRig(t, forwarding, nil)
	forwarding.conn.Store(r2.dialUpstream(s.Listener.Addr().String(), nil))
	body := bytes.Repeat([]byte("content "), 20_000)
	var clients sync.WaitGroup
	for i := range 24 {
		address := []string{r.address, r2.address}[i%2]
		clients.Go(func() {
			c := newHTTP2Client(t)
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 30 {
				path := []string{"/echo", "/echo", "/early", "/abort", "/silent"}[random.IntN(5)]
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+random.IntN(40))*time.Millisecond)
				if path == "/echo" && random.IntN(2) == 0 {
					ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
				}
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+address+path, bytes.NewReader(body[:random.IntN(len(body))]))
				if random.IntN(3) == 0 {
					req.ContentLength = -1
				}
				if resp, err := c.Do(req); err == nil {
					n, err := io.Copy(io.Discard, resp.Body)
					if path == "/echo" && err == nil && resp.StatusCode == 200 && n != req.ContentLength && req.ContentLength >= 0 {
						t.Errorf("received %d bytes without an error, want %d", n, req.ContentLength)
					}
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	clients.Wait()
	// The connection to the host still works.
	status, respBody := get(t, newHTTP2Client(t), "http://"+r2.address+"/echo")
	if status != 200 || respBody != "" {
		t.Errorf("after the load: response %d %q, %+v; want 200 without a body", status, respBody, r2.observed[len(r2.observed)-1])
	}
}
