package proxy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/stream/http1"
	"github.com/weft-proxy/weft/pkg/stream/http2"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// serverWithStreamLimit returns a server that can open that number of streams on each HTTP/2
// connection to host. The server accepts HTTP/1.1 and HTTP/2 at address.
func serverWithStreamLimit(t *testing.T, streams uint32, host string) (s *Server, address string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	engine := http2.New(log, nil)
	engine.FirstStream = syntax.MaxStreamID - 2*(streams-1)
	o := metrics.Options{Reasons: []string{protocol.ReasonNone.String()}}
	for r := range protocol.Reasons() {
		o.Reasons = append(o.Reasons, r.String())
	}
	s = NewServer(Options{
		Protocols: []stream.Protocol{http1.Protocol(), engine.Protocol()},
		Upstream:  upstream.Options{Policies: map[config.LBPolicy]balance.NewFunc{config.RoundRobin: balance.RoundRobin}},
		Logs:      logfile.NewSet(logfile.SetOptions{Log: log}),
		Metrics:   metrics.New(o),
		Log:       log,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Drain(ctx)
		engine.Close()
	})
	caps := capabilities()
	caps.Protocols = append(caps.Protocols, config.HTTP2)
	c, problems := configjson.Parse("test.json", fmt.Appendf(nil, `{
		"servers": [{
			"listeners": [{"name": "front", "address": "127.0.0.1:0", "filter_chains": [{"filters": [{"type": "proxy", "config": {
				"downstream_protocol": "Auto", "router_config_name": "front"}}]}]}],
			"routers": [{"router_config_name": "front", "virtual_hosts": [{"domains": ["*"], "routers": [{"route": {"cluster_name": "app"}}]}]}]
		}],
		"cluster_manager": {"clusters": [{"name": "app", "upstream_protocol": "Http2", "hosts": [{"address": %q}]}]}
	}`, host), caps, configjson.Options{})
	if c == nil {
		t.Fatal(problems)
	}
	if err := s.Apply(t.Context(), config.FullDelta(c)); err != nil {
		t.Fatal(err)
	}
	return s, s.Describe()[0].Address
}

// TestExhaustedStreamIDsReplaceConnection verifies that no request fails when a connection has no
// stream IDs left, and that requests in flight finish on their connection.
func TestExhaustedStreamIDsReplaceConnection(t *testing.T) {
	const streams, requests = 5, 100
	for _, downstream := range []string{"Http1", "Http2"} {
		t.Run(downstream, func(t *testing.T) {
			var opened atomic.Int64
			started, release := make(chan string, 1), make(chan struct{})
			app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/held" {
					started <- r.RemoteAddr
					<-release
				}
				fmt.Fprint(w, r.RemoteAddr)
			}))
			app.Config.Protocols = new(http.Protocols)
			app.Config.Protocols.SetUnencryptedHTTP2(true)
			app.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			}
			app.Start()
			t.Cleanup(app.Close)
			s, address := serverWithStreamLimit(t, streams, app.Listener.Addr().String())

			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetHTTP1(downstream == "Http1")
			tr.Protocols.SetUnencryptedHTTP2(downstream == "Http2")
			t.Cleanup(tr.CloseIdleConnections)
			fetch := func(path string) string {
				resp, err := (&http.Client{Transport: tr}).Get("http://" + address + path)
				if err != nil {
					t.Error(err)
					return ""
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != 200 || err != nil {
					t.Errorf("%s: status %d, body %q, error %v; want 200, nil", path, resp.StatusCode, body, err)
				}
				return string(body)
			}

			var wg sync.WaitGroup
			var heldAddr string
			wg.Go(func() { heldAddr = fetch("/held") })
			startedAddr := <-started // on the first connection
			for range 4 {
				wg.Go(func() {
					for range requests / 4 {
						fetch("/")
					}
				})
			}
			wg.Go(func() {
				defer close(release)
				for range requests / 4 {
					fetch("/")
				}
			})
			wg.Wait()
			if heldAddr != startedAddr {
				t.Errorf("the blocked request was sent on connection %s, but its response came from %s, want the same connection", startedAddr, heldAddr)
			}
			const total = requests/4*5 + 1
			if n := opened.Load(); n < total/streams {
				t.Errorf("%d requests used %d connections of at most %d streams, want at least %d connections", total, n, streams, total/streams)
			}
			(&rig{t: t}).until(func() bool { return s.Clusters().Describe()[0].InFlight == 0 }, func() {
				t.Error("requests are in flight after the last response")
			})
			host := s.Clusters().Describe()[0].Hosts[0]
			if host.ConnectFailures != 0 || host.Failures != 0 || host.InFlight != 0 {
				t.Errorf("%d failed connects, %d failed attempts, %d in flight; want 0", host.ConnectFailures, host.Failures, host.InFlight)
			}
		})
	}
}
