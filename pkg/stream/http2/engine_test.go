package http2

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// reply responds to every request with status and text.
func reply(status int, text string) protocol.Service {
	return protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(status, "text/plain", text)
		return nil
	})
}

// echo sends the body of the request back as it arrives.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Sum")
	w.Header().Set("X-Method", r.Method)
	flusher := w.(http.Flusher)
	flusher.Flush()
	buf := make([]byte, 32<<10)
	total := 0
	for {
		n, err := r.Body.Read(buf)
		if n > 0 {
			_, _ = w.Write(buf[:n]) // the client checks the body
			flusher.Flush()
			total += n
		}
		if err != nil {
			break
		}
	}
	w.Header().Set("X-Sum", fmt.Sprint(total))
}

func TestGET(t *testing.T) {
	r := newRig(t, reply(200, "hello"), nil)
	status, body := get(t, newHTTP2Client(t), "http://"+r.address+"/a?b")
	if status != 200 || body != "hello" {
		t.Errorf("response %d %q, want 200 \"hello\"", status, body)
	}
	if o := r.awaitRecord(); o.status != 200 || o.reason != protocol.ReasonNone || o.out != 5 {
		t.Errorf("recorded %+v, want status 200, no reason, 5 bytes", o)
	}
}

func TestRequestIsForwarded(t *testing.T) {
	var received http.Request
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		received = *r
		w.Header().Set("X-Response", "yes")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "created")
	})
	r := newProxyRig(t, origin, nil, nil)
	req, _ := http.NewRequest("GET", "http://"+r.address+"/path?q=1", nil)
	req.Host = "shop.test"
	req.Header.Set("X-Request", "this")
	resp, err := newHTTP2Client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 201 || string(body) != "created" || resp.Header.Get("X-Response") != "yes" {
		t.Errorf("response %d %q %v, want 201 \"created\" with X-Response: yes", resp.StatusCode, body, resp.Header)
	}
	if received.Host != "shop.test" || received.RequestURI != "/path?q=1" || received.Header.Get("X-Request") != "this" || received.Proto != "HTTP/2.0" {
		t.Errorf("the origin received %s %s %v, want shop.test /path?q=1 over HTTP/2 with X-Request: this", received.Host, received.RequestURI, received.Header)
	}
}

func TestBodiesOfAnySizeAreForwarded(t *testing.T) {
	origin := startOrigin(t, echo)
	for _, mode := range []string{"asynchronous", "blocking"} {
		t.Run(mode, func(t *testing.T) {
			forwarding := new(forward)
			var s protocol.Service = forwarding
			if mode == "blocking" {
				s = blocking{forwarding}
			}
			r := newRig(t, s, nil)
			forwarding.conn.Store(r.dialUpstream(origin, nil))
			c := newHTTP2Client(t)
			for _, size := range []int{0, 1, 1000, 16 << 10, 100_000, 3 << 20} {
				text := strings.Repeat("0123456789abcdef", size/16+1)[:size]
				resp, err := c.Post("http://"+r.address+"/", "text/plain", io.NopCloser(strings.NewReader(text)))
				if err != nil {
					t.Fatalf("%d bytes: %v", size, err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || string(body) != text {
					t.Fatalf("body of %d bytes: received %d bytes, %v; want the same body", size, len(body), err)
				}
				if got := resp.Trailer.Get("X-Sum"); got != fmt.Sprint(size) {
					t.Errorf("%d bytes: trailer %q, want the size", size, got)
				}
				if o := r.awaitRecord(); o.in != int64(size) || o.out != int64(size) || o.reason != protocol.ReasonNone {
					t.Errorf("%d bytes: recorded %+v, want this size in both directions", size, o)
				}
			}
		})
	}
}

func TestManyExchangesShareOneConnection(t *testing.T) {
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.URL.Path+string(b))
	})
	r := newProxyRig(t, origin, nil, nil)
	c := newHTTP2Client(t)
	var clients sync.WaitGroup
	for i := range 300 {
		clients.Go(func() {
			path, text := fmt.Sprintf("/%d", i), strings.Repeat("x", i*100)
			resp, err := c.Post("http://"+r.address+path, "text/plain", strings.NewReader(text))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != path+text {
				t.Errorf("%s: %d bytes, %v; want %d", path, len(got), err, len(path+text))
			}
		})
	}
	clients.Wait()
}
