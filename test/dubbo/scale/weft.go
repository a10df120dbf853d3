package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// weft is the process under test.
type weft struct {
	bin, dir   string
	profiles   string // directory; "": no profiles
	api, admin string // addresses
	cmd        *exec.Cmd
	client     *http.Client
}

// errUnexpectedResponse reports a status other than 200, or an err_no other than 0.
var errUnexpectedResponse = errors.New("unexpected response")

// newWeft writes the configuration of a Weft that uses the registry.
func newWeft(bin, registry, profiles string) (*weft, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "weft-scale")
	if err != nil {
		return nil, err
	}
	w := &weft{bin: bin, dir: dir, profiles: profiles, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	var listen string
	for _, a := range []*string{&listen, &w.api, &w.admin} {
		if *a, err = freeAddress(ctx); err != nil {
			return nil, err
		}
	}
	_, api, err := net.SplitHostPort(w.api)
	if err != nil {
		return nil, err
	}
	_, admin, err := net.SplitHostPort(w.admin)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`{"servers": [{"default_log_level": "WARN", "listeners": [{"name": "consumer", "address": %q,
"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "dubbo", "router_config_name": "dubbo"}}]}]}]}],
"extends": [{"type": "dubbo_registry", "config": {"enable": true, "host": "10.8.8.8", "server_port": 20080, "api_port": %s, "withdraw_wait": "100ms",
"state_file": %q, "registries": [{"type": "zookeeper", "address": %q}]}}],
"pprof": {"debug": true}, "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %s}}}}`, listen, api, filepath.Join(dir, "state.json"), registry, admin)
	return w, os.WriteFile(filepath.Join(dir, "weft.json"), []byte(text), 0o600)
}

// start starts the process and returns when it is ready.
func (w *weft) start(ctx context.Context) error {
	w.cmd = exec.CommandContext(ctx, w.bin, "start", "-c", filepath.Join(w.dir, "weft.json"))
	w.cmd.Stderr = os.Stderr
	if err := w.cmd.Start(); err != nil {
		return err
	}
	for {
		_, err := w.get(ctx, w.admin, "/ready")
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// stop stops the process, if it runs, and waits for its exit; its state file remains.
func (w *weft) stop() {
	if w.cmd.Process == nil {
		return // the process was not started
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // the process may have exited
	_ = w.cmd.Wait()                          // errors are on its stderr
}

// get returns a page.
func (w *weft) get(ctx context.Context, address, path string) (string, error) {
	return w.do(ctx, http.MethodGet, address, path, "")
}

func (w *weft) do(ctx context.Context, method, address, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: %s %s: %s %s", errUnexpectedResponse, method, path, resp.Status, text)
	}
	return string(text), err
}

// callAPI sends the service called name to path of the API: /pub or /sub.
func (w *weft) callAPI(ctx context.Context, path, name string) error {
	text, err := w.do(ctx, http.MethodPost, w.api, path, `{"service": {"interface": "`+name+`", "version": "1.0.0", "methods": ["create", "find", "remove", "update"]}}`)
	if err == nil && !strings.Contains(text, `"err_no":0`) {
		err = fmt.Errorf("%w: POST %s of %s: %s", errUnexpectedResponse, path, name, text)
	}
	return err
}

// publishAndSubscribe publishes s.published services and subscribes to s.subscribed other services.
func (w *weft) publishAndSubscribe(ctx context.Context, s sizes) error {
	return runConcurrently(s.published+s.subscribed, func(i int) error {
		if i < s.published {
			return w.callAPI(ctx, "/pub", fmt.Sprintf("com.example.published.Number%d", i))
		}
		return w.callAPI(ctx, "/sub", service(i-s.published))
	})
}

// awaitConverged returns when every service is published, the registry has confirmed every
// subscription, and all providers are active.
func (w *weft) awaitConverged(ctx context.Context, s sizes) error {
	for {
		text, err := w.get(ctx, w.admin, "/metrics")
		if err != nil {
			return err
		}
		registered, subscribed := gauge(text, "published_registered"), gauge(text, "subscribed")
		unconfirmed := gauge(text, "subscribed_pending") + gauge(text, "subscribed_restored")
		if registered >= s.published && subscribed >= s.subscribed && unconfirmed == 0 && gauge(text, "providers") >= s.subscribed*s.providers {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// gauge returns a discovery gauge from the metrics page, or 0 if it is absent.
func gauge(page, name string) int {
	_, rest, _ := strings.Cut(page, "\nweft_discovery_"+name+" ")
	text, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.Atoi(text) // 0 if the gauge is absent
	return n
}

// profile fetches a page of the profiler in the background and writes it to a file. Then it closes
// done.
func (w *weft) profile(ctx context.Context, name, page string) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if w.profiles == "" {
			return
		}
		text, err := w.get(ctx, w.admin, "/debug/pprof/"+page)
		if err == nil {
			err = os.WriteFile(filepath.Join(w.profiles, name), []byte(text), 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
		}
	}()
	return ended
}

// printIdleMemory prints the memory of the idle process.
func (w *weft) printIdleMemory(ctx context.Context, baseline int64) {
	const settleTime = 20 * time.Second // until the memory that only the start needed is released
	peak := w.status("VmHWM:")
	select {
	case <-time.After(settleTime):
	case <-ctx.Done():
	}
	fmt.Printf("%d MB resident %v later, peak %d MB, %d MB before any publication\n", w.resident()>>20, settleTime, peak>>20, baseline>>20)
}

// cpu returns the CPU time of the process.
func (w *weft) cpu() time.Duration {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", w.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var sum time.Duration
	for _, t := range threads {
		if b, err := os.ReadFile(t); err == nil {
			n, _ := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}

// resident returns the resident memory in bytes.
func (w *weft) resident() int64 { return w.status("VmRSS:") }

// status returns a value of /proc/PID/status in bytes.
func (w *weft) status(key string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			kilobytes, _ := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
