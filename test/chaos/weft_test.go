package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/test/ports"
	"github.com/weft-proxy/weft/test/subject"
)

// waitTimeout is the timeout of operations that should complete immediately.
const waitTimeout = 20 * time.Second

// object and list are JSON values.
type (
	object map[string]any
	list   []any
)

// with returns a copy of o with additional or replaced keys.
func (o object) with(extra ...object) object {
	out := maps.Clone(o)
	for _, m := range extra {
		maps.Copy(out, m)
	}
	return out
}

// freePorts is the port range of this package.
var freePorts = ports.Chaos()

// freeAddress returns a loopback address without a listener.
func freeAddress() string {
	port, err := freePorts.Free("127.0.0.1")
	if err != nil {
		panic(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// setup holds the parts of a configuration that differ between tests.
type setup struct {
	listeners, tables, clusters list
}

// listener returns a listener for a protocol, "Auto" for all of HTTP and gRPC, with the route table
// of the same name.
func listener(name, address, protocol string, extra ...object) object {
	config := object{"downstream_protocol": protocol, "router_config_name": name}
	return object{"name": name, "address": address, "filter_chains": list{
		object{"filters": list{object{"type": "proxy", "config": config}}}.with(extra...)}}
}

// routeTable returns a route table that matches every domain.
func routeTable(name string, routes ...object) object {
	return object{"router_config_name": name, "virtual_hosts": list{
		object{"name": "all", "domains": list{"*"}, "routers": routes}}}
}

// route returns a route from a path prefix to a cluster.
func route(prefix, cluster string, extra ...object) object {
	return object{"match": object{"prefix": prefix}, "route": object{"cluster_name": cluster}.with(extra...)}
}

// retryPolicy returns the route keys of a retry policy.
func retryPolicy(retryOn string, n int, perTryTimeout string) object {
	return object{"timeout": "8s", "retry_policy": object{"retry_on": retryOn, "num_retries": n, "retry_timeout": perTryTimeout,
		"retry_back_off": object{"base_interval": "5ms", "max_interval": "50ms"}}}
}

// cluster returns a round-robin cluster with a short idle timeout. It allows more concurrent
// retries than the default of 3, because a host that dies fails all of its requests in flight.
func cluster(name string, hosts []string, extra ...object) object {
	hostList := list{}
	for _, h := range hosts {
		hostList = append(hostList, object{"address": h})
	}
	return object{"name": name, "lb_type": "LB_ROUNDROBIN", "hosts": hostList, "idle_timeout": "2s", "circuit_breakers": list{object{"max_retries": 100}}}.with(extra...)
}

// weft is a process under test.
type weft struct {
	r            *testRun
	cmd          *exec.Cmd
	path         string // of its configuration
	adminAddress string
	admin        *http.Client
	log          logBuffer
	exited       chan struct{} // closed when the process has exited

	baseline resourceUsage // after the warm-up
}

// newWeft starts weft and waits until it serves. If command is not nil, command and dial determine
// the namespace of the process.
func (r *testRun) newWeft(s setup, command func(name string, args ...string) *exec.Cmd, dial dialer) *weft {
	r.Helper()
	if command == nil {
		command, dial = exec.Command, plainDial
	}
	w := &weft{r: r, adminAddress: freeAddress(), path: filepath.Join(r.TempDir(), "config.json"), log: logBuffer{subject.NewLogBuffer()}, exited: make(chan struct{})}
	w.admin = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}, Timeout: waitTimeout}
	w.write(s)
	w.cmd = command(program, "start", "-c", w.path)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	if err := w.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.pid = w.cmd.Process.Pid
	go func() { // ends with the process; the cleanup waits for it
		_ = w.cmd.Wait() // ProcessState has the result
		close(w.exited)
	}()
	r.Cleanup(w.kill)
	if w.log.await(r, 0, "is ready") == "" {
		r.FailNow()
	}
	return w
}

// write replaces the configuration file atomically.
func (w *weft) write(s setup) {
	w.r.Helper()
	host, port, _ := net.SplitHostPort(w.adminAddress)
	n, _ := strconv.Atoi(port)
	text, err := json.MarshalIndent(object{
		"servers": list{object{
			"default_log_path": "stderr", "default_log_level": "INFO", "graceful_timeout": "15s",
			"listeners": s.listeners, "routers": s.tables,
		}},
		"cluster_manager": object{"clusters": s.clusters},
		"admin":           object{"address": object{"socket_address": object{"address": host, "port_value": n}}},
		"pprof":           object{"debug": true},
	}, "", " ")
	if err != nil {
		panic("chaos: encode the configuration: " + err.Error())
	}
	next := w.path + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		w.r.Error(err)
	}
	if err := os.Rename(next, w.path); err != nil {
		w.r.Error(err)
	}
}

// reload applies s. It is safe for concurrent use with other methods of w.
func (w *weft) reload(s setup) {
	w.r.Helper()
	from := w.log.Len()
	w.write(s)
	w.signal(syscall.SIGHUP)
	if line := w.log.await(w.r, from, "configuration "); !strings.Contains(line, "configuration applied") {
		w.r.Errorf("reload: %s, want \"configuration applied\"", line)
	}
}

func (w *weft) signal(s os.Signal) {
	w.r.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.r.Error(err)
	}
}

// awaitExit waits until the process exits and verifies its status.
func (w *weft) awaitExit(timeout time.Duration) {
	w.r.Helper()
	select {
	case <-w.exited:
		if status := w.cmd.ProcessState.ExitCode(); status != 0 {
			w.r.Errorf("the process exited with status %d, want 0", status)
		}
	case <-time.After(timeout):
		stacks, err := w.tryAdminGet("/debug/pprof/goroutine?debug=1")
		w.r.Errorf("the process did not exit within %v of the signal: %v\n%s", timeout, err, stacks)
	}
}

// kill kills the process and checks its log for defects.
func (w *weft) kill() {
	_ = w.cmd.Process.Kill() // the process may have exited
	<-w.exited
	w.log.CheckLog(w.r)
}

// adminGet returns a page of the admin port.
func (w *weft) adminGet(path string) string {
	w.r.Helper()
	text, err := w.tryAdminGet(path)
	if err != nil {
		w.r.Fatal(err)
	}
	return text
}

func (w *weft) tryAdminGet(path string) (string, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+w.adminAddress+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := w.admin.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // the body was read to the end
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// metric returns the sum of a metric's series that contain all labels.
func (w *weft) metric(name string, labels ...string) float64 {
	w.r.Helper()
	return sumMetric(w.adminGet("/stats/prometheus"), name, labels...)
}

func sumMetric(text, name string, labels ...string) float64 {
	sum := 0.0
series:
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue series
			}
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			sum += v
		}
	}
	return sum
}

// resourceUsage holds the resources that a process uses.
type resourceUsage struct {
	goroutines     int // without fibers
	fibers         int // goroutines kept for future RPC requests
	sockets        int
	anonymousBytes int // bytes of anonymous resident memory
}

func (w *weft) resourceUsage() resourceUsage {
	w.r.Helper()
	var usage resourceUsage
	for stack := range strings.SplitSeq(w.adminGet("/debug/pprof/goroutine?debug=1"), "\n\n") {
		found := regexp.MustCompile(`(?m)^(\d+) @`).FindStringSubmatch(stack)
		if found == nil {
			continue
		}
		n, _ := strconv.Atoi(found[1])
		if strings.Contains(stack, "xprotocol.newFiber") {
			usage.fibers += n
		} else {
			usage.goroutines += n
		}
	}
	if usage.goroutines == 0 {
		w.r.Fatal("the goroutine profile is empty")
	}
	proc := fmt.Sprintf("/proc/%d/", w.cmd.Process.Pid)
	entries, err := os.ReadDir(proc + "fd")
	if err != nil {
		w.r.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink(proc + "fd/" + e.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			usage.sockets++
		}
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		w.r.Fatal(err)
	}
	if found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status); found != nil {
		usage.anonymousBytes, _ = strconv.Atoi(string(found[1]))
		usage.anonymousBytes <<= 10
	}
	return usage
}

// warmUp sends requests of each load until one succeeds. It then closes the connections and records
// the resources of the process.
func (w *weft) warmUp(closeConns func(), loads ...load) {
	w.r.Helper()
	for _, l := range loads {
		deadline := time.After(waitTimeout)
		for n := 0; ; n++ {
			_, err := l.request(1_000_000 + n)
			if err == nil {
				break
			}
			select {
			case <-deadline:
				w.r.Fatalf("%s failed in the warm-up: %v", l.name, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	closeConns()
	w.awaitIdle()
	w.baseline = w.resourceUsage()
}

// awaitIdle waits until no requests and no connections are active, neither from clients nor to
// hosts.
func (w *weft) awaitIdle() {
	w.r.Helper()
	w.awaitZero("weft_listener_requests_active", "weft_cluster_requests_active",
		"weft_listener_connections_active", "weft_cluster_connections_active")
}

// awaitNoRequests waits until no request is in flight.
func (w *weft) awaitNoRequests() {
	w.r.Helper()
	w.awaitZero("weft_listener_requests_active", "weft_cluster_requests_active")
}

// awaitZero waits until all gauges are zero.
func (w *weft) awaitZero(gauges ...string) {
	w.r.Helper()
	w.eventually(func() string {
		text := w.adminGet("/stats/prometheus")
		for _, gauge := range gauges {
			if n := sumMetric(text, gauge); n != 0 {
				return fmt.Sprintf("%s is %v, want 0", gauge, n)
			}
		}
		return ""
	})
}

// checkNoLeak verifies that the process uses no more resources than after the warm-up, within small
// margins. The clients must have disconnected.
func (w *weft) checkNoLeak() {
	w.r.Helper()
	w.awaitIdle()
	const (
		maxExtraGoroutines = 4        // active health checks, goroutines of the runtime
		maxExtraSockets    = 4        // active health checks
		maxFibers          = 64       // kept by the engine
		maxGrowth          = 48 << 20 // free lists and pools
	)
	var now resourceUsage
	w.eventually(func() string {
		now = w.resourceUsage()
		if now.goroutines > w.baseline.goroutines+maxExtraGoroutines || now.sockets > w.baseline.sockets+maxExtraSockets || now.fibers > maxFibers {
			return fmt.Sprintf("%+v, before: %+v", now, w.baseline)
		}
		return ""
	})
	w.r.Logf("before and after: %d and %d goroutines, %d and %d sockets, %d and %d MB", w.baseline.goroutines, now.goroutines,
		w.baseline.sockets, now.sockets, w.baseline.anonymousBytes>>20, now.anonymousBytes>>20)
	if now.anonymousBytes > w.baseline.anonymousBytes+maxGrowth && !invariants.Enabled { // the race detector uses a lot of memory
		w.r.Errorf("the process uses %d MB, want at most %d MB: %d MB after the warm-up, and %d MB growth",
			now.anonymousBytes>>20, (w.baseline.anonymousBytes+maxGrowth)>>20, w.baseline.anonymousBytes>>20, maxGrowth>>20)
	}
	if n := w.metric("weft_panics_total"); n != 0 {
		w.r.Errorf("weft_panics_total = %v, want 0", n)
	}
}

// eventually waits until mismatch returns "" and reports the last result on a timeout.
func (w *weft) eventually(mismatch func() string) {
	w.r.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
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
			w.r.Errorf("after %v: %s\n%.6000s", waitTimeout, problem, w.adminGet("/debug/pprof/goroutine?debug=1"))
			return
		}
	}
}

// logBuffer holds the output of a process.
type logBuffer struct{ *subject.LogBuffer }

// await waits for a line that contains want, and ignores the first from bytes of the log. On a
// timeout it reports an error and returns "".
func (l logBuffer) await(r *testRun, from int, want string) string {
	r.Helper()
	line, err := l.Await(from, want, waitTimeout)
	if err != nil {
		r.Error(err)
	}
	return line
}
