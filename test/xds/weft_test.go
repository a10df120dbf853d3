package xds

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/subject"
)

// bootstrap returns a configuration with only a control plane. The clusters "control" and
// "sds-grpc" both have its address, so it serves ADS and SDS.
func bootstrap(apiType, control, admin string) string {
	controlHost, controlPort, _ := net.SplitHostPort(control)
	adminHost, adminPort, _ := net.SplitHostPort(admin)
	cluster := func(name string) string {
		return fmt.Sprintf(`{"name": %q, "type": "STATIC", "connect_timeout": "2s", "load_assignment": {"cluster_name": %q, "endpoints": [
      {"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %s}}}}]}]}}`, name, name, controlHost, controlPort)
	}
	return fmt.Sprintf(`{
  "servers": [{"default_log_path": "stderr", "default_log_level": "INFO"}],
  "admin": {"address": {"socket_address": {"address": %q, "port_value": %s}}},
  "node": {"id": "test-id", "cluster": "test"},
  "dynamic_resources": {
    "ads_config": {"api_type": %q, "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]},
    "cds_config": {"ads": {}, "resource_api_version": "V3"},
    "lds_config": {"ads": {}, "resource_api_version": "V3"}
  },
  "static_resources": {"clusters": [%s, %s]}
}`, adminHost, adminPort, apiType, cluster("control"), cluster("sds-grpc"))
}

// weft is a process under test.
type weft struct {
	t      testing.TB
	cmd    *exec.Cmd
	log    *subject.LogBuffer
	exited chan struct{} // closed when the process has exited
}

// startWeft starts weft with a configuration. If command is not nil, startWeft calls it to create
// the exec.Cmd. The process ends with the test.
func startWeft(t testing.TB, config string, command func(program string, args ...string) *exec.Cmd) *weft {
	t.Helper()
	program, err := weftBinary()
	if err != nil {
		t.Fatal(err)
	}
	name := "config.json"
	if config[0] != '{' {
		name = "envoy.yaml"
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if command == nil {
		command = exec.Command
	}
	w := &weft{t: t, log: subject.NewLogBuffer(), exited: make(chan struct{})}
	w.cmd = command(program, "start", "-c", path)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	w.cmd.Dir = t.TempDir() // Weft may write files into its working directory
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process; the cleanup waits for it
		_ = w.cmd.Wait() // ProcessState has the result
		close(w.exited)
	}()
	t.Cleanup(w.stop)
	return w
}

// stop stops the process and checks its exit status and its log.
func (w *weft) stop() {
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // the process may have exited
	select {
	case <-w.exited:
		if status := w.cmd.ProcessState.ExitCode(); status != 0 {
			w.t.Errorf("weft exited with status %d, want 0", status)
		}
	case <-time.After(waitTimeout):
		w.t.Errorf("weft has not exited %v after SIGTERM", waitTimeout)
		_ = w.cmd.Process.Kill()
		<-w.exited
	}
	w.log.CheckLog(w.t)
}

// startOrigin starts a server that responds with its name.
func startOrigin(t testing.TB, name string) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", newHost()+":8080")
	if err != nil {
		t.Fatal(err)
	}
	serveAs(t, ln, name)
	return ln.Addr().String()
}

// serveAs responds to requests with a name.
func serveAs(t testing.TB, ln net.Listener, name string) {
	s := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }), // the client detects errors
		ReadHeaderTimeout: waitTimeout,
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) }) // ends with Close
	t.Cleanup(func() { _ = s.Close(); wg.Wait() })
}

// client returns an HTTP client with separate connections.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: waitTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get makes a request and returns the response body, preceded by the status unless it is 200.
func get(ctx context.Context, c *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read to the end
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %s", resp.StatusCode, body), err
	}
	return string(body), err
}

// eventually waits until mismatch returns "".
func eventually(t testing.TB, mismatch func() string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(waitTimeout)
	for {
		problem := mismatch()
		if problem == "" {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("after %v: %s", waitTimeout, problem)
		}
	}
}

// awaitResponse waits until url responds with text.
func awaitResponse(t testing.TB, c *http.Client, url, text string) {
	t.Helper()
	eventually(t, func() string {
		if got, err := get(t.Context(), c, url); err != nil || got != text {
			return fmt.Sprintf("%s responded %q, %v, want %q", url, got, err, text)
		}
		return ""
	})
}

// load sends requests continuously. Its method stop verifies that all of them succeeded.
type load struct {
	t       testing.TB
	cancel  context.CancelFunc
	senders sync.WaitGroup

	mu       sync.Mutex
	requests int            // guarded by mu
	failed   map[string]int // guarded by mu; by reason
}

// startLoad sends about 200 requests per second until stop is called.
func startLoad(t testing.TB, urls ...string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, cancel: cancel, failed: map[string]int{}}
	c := client(t)
	for i := range 4 {
		l.senders.Go(func() {
			ticker := time.NewTicker(20 * time.Millisecond)
			defer ticker.Stop()
			for n := i; ; n++ {
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
				text, err := get(context.WithoutCancel(ctx), c, urls[n%len(urls)])
				l.record(text, err)
			}
		})
	}
	return l
}

func (l *load) record(text string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	switch {
	case err != nil:
		l.failed[err.Error()]++
	case text == "" || text[0] >= '0' && text[0] <= '9':
		l.failed[text]++
	}
}

// requestCount returns the number of requests made.
func (l *load) requestCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// awaitMore waits until n further requests have been made.
func (l *load) awaitMore(n int) {
	l.t.Helper()
	end := l.requestCount() + n
	eventually(l.t, func() string {
		if got := l.requestCount(); got < end {
			return fmt.Sprintf("sent %d requests, want %d", got, end)
		}
		return ""
	})
}

// stop ends the load and verifies that no request failed.
func (l *load) stop() {
	l.t.Helper()
	l.cancel()
	l.senders.Wait()
	if l.requests == 0 {
		l.t.Error("sent no requests")
	}
	for reason, n := range l.failed {
		l.t.Errorf("%d of %d requests failed, want 0: %s", n, l.requests, reason)
	}
	l.t.Logf("sent %d requests", l.requests)
}
