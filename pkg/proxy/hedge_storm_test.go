package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// flakyOrigin returns the address of a server that echoes each request. At random it responds late,
// with 503, with a truncated response, or not at all.
func flakyOrigin(t *testing.T) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client disconnected
		}
		behavior := rand.N(10)
		if behavior < 4 {
			timer := time.NewTimer(rand.N(60 * time.Millisecond))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
		}
		switch behavior {
		case 4:
			panic(http.ErrAbortHandler)
		case 5:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Trailer", "X-Path")
		w.Header().Set("X-Path", r.URL.Path)
		_, _ = fmt.Fprintf(w, "%s %s ", r.URL.Path, body) // the client may have disconnected
		if behavior == 6 {
			_ = http.NewResponseController(w).Flush() // the client may have disconnected
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", rand.N(100_000))+" "+r.URL.Path)
		w.Header().Set("X-Path", r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// loadClients sends requests to front and cancels some of them.
type loadClients struct {
	t     *testing.T
	front string // URL
	http.Client

	succeeded, failed, canceled atomic.Int64
}

// get sends a request and checks that a successful response belongs to it.
func (c *loadClients) get(path string) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	if rand.N(5) == 0 {
		defer time.AfterFunc(rand.N(100*time.Millisecond), cancel).Stop()
	}
	content := strings.Repeat("c", rand.N(3000)) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.front+path, strings.NewReader(content))
	if err != nil {
		c.t.Error(err)
		return
	}
	resp, err := c.Do(req)
	if err != nil {
		c.canceled.Add(1)
		if ctx.Err() == nil {
			c.t.Errorf("%s: no response: %v", path, err)
		}
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch text := string(body); {
	case resp.StatusCode >= 500 || resp.StatusCode == 200 && err != nil:
		c.failed.Add(1)
	case resp.StatusCode != 200:
		c.t.Errorf("%s: status %d, want 200", path, resp.StatusCode)
	case !strings.HasPrefix(text, path+" "+content+" ") || !strings.HasSuffix(text, " "+path) || resp.Header.Get("X-Path") != path:
		c.t.Errorf("%s: response %.60q… with X-Path %q, want an echo of the request", path, text, resp.Header.Get("X-Path"))
	default:
		c.succeeded.Add(1)
	}
}

// TestHedgesUnderLoad verifies that each response belongs to its request and that no resource of an
// attempt remains in use, regardless of the behavior of hosts and clients.
func TestHedgesUnderLoad(t *testing.T) {
	r := newRig(t)
	clusterJSON := cluster("app", flakyOrigin(t), flakyOrigin(t), flakyOrigin(t), "127.0.0.1:1")
	r.apply(setup{
		routes: `{"name": "r", "match": {"prefix": "/"}, "route": {"cluster_name": "app", "timeout": "2s",
			"retry_policy": {"retry_on": "5xx", "num_retries": 2, "per_try_timeout": "15ms"},
			"hedge_policy": {"hedge_on_per_try_timeout": true, "initial_requests": 2}}}`,
		clusters: strings.TrimSuffix(clusterJSON, "}") + `, "circuit_breakers": [{"max_connections": 40, "max_retries": 30}]}`,
	}.snapshot(t))
	c := &loadClients{t: t, front: "http://" + r.address("front"), Client: http.Client{Transport: new(http.Transport)}}
	defer c.CloseIdleConnections()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for n := range 20 {
				c.get(fmt.Sprintf("/%d/%d", g, n))
			}
		})
	}
	wg.Wait()
	if won := r.value("weft_cluster_hedges_won_total"); c.succeeded.Load() == 0 || won == 0 {
		t.Errorf("%d good responses, %d bad, %d canceled, %v hedges won; want good responses and won hedges", c.succeeded.Load(), c.failed.Load(), c.canceled.Load(), won)
	}
	r.until(func() bool {
		app := r.server.clusters.Describe()[0]
		inUse := app.InFlight + app.Pending + app.Retries
		for _, h := range app.Hosts {
			inUse += h.InFlight + h.Open - int64(h.Idle)
		}
		return inUse == 0
	}, func() { t.Errorf("resources remain in use: %+v", r.server.clusters.Describe()[0]) })
}
