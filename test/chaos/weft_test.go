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

// patience is how long anything may take that should take no time.
const patience = 20 * time.Second

// object and list are JSON.
type (
	object map[string]any
	list   []any
)

// with returns o with more keys, or other values.
func (o object) with(more ...object) object {
	all := maps.Clone(o)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

// freePorts are those of this package.
var freePorts = ports.Chaos()

// freePort is a loopback address that nobody listens on.
func freePort() string {
	port, err := freePorts.Free("127.0.0.1")
	if err != nil {
		panic(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// setup is a configuration.
type setup struct {
	listeners, tables, clusters list
}

// listener takes a protocol, "Auto" for all of HTTP and gRPC, and has the route
// table of its name.
func listener(name, address, protocol string, more ...object) object {
	config := object{"downstream_protocol": protocol, "router_config_name": name}
	return object{"name": name, "address": address, "filter_chains": list{
		object{"filters": list{object{"type": "proxy", "config": config}}}.with(more...)}}
}

// table is a route table for every domain.
func table(name string, routes ...object) object {
	return object{"router_config_name": name, "virtual_hosts": list{
		object{"name": "all", "domains": list{"*"}, "routers": routes}}}
}

// route is a route of a prefix to a cluster.
func route(prefix, cluster string, more ...object) object {
	return object{"match": object{"prefix": prefix}, "route": object{"cluster_name": cluster}.with(more...)}
}

// retries is a retry policy.
func retries(on string, n int, try string) object {
	return object{"timeout": "8s", "retry_policy": object{"retry_on": on, "num_retries": n, "retry_timeout": try,
		"retry_back_off": object{"base_interval": "5ms", "max_interval": "50ms"}}}
}

// cluster is a cluster of hosts, in turns, whose idle connections end soon. It allows more
// retries at once than the default of 3, since a host that dies fails all that it has in hand.
func cluster(name string, hosts []string, more ...object) object {
	all := list{}
	for _, h := range hosts {
		all = append(all, object{"address": h})
	}
	return object{"name": name, "lb_type": "LB_ROUNDROBIN", "hosts": all, "idle_timeout": "2s", "circuit_breakers": list{object{"max_retries": 100}}}.with(more...)
}

// weft is a process under test.
type weft struct {
	r     *trial
	cmd   *exec.Cmd
	path  string // of its configuration
	port  string // of its admin port
	admin *http.Client
	log   journal
	ended chan struct{} // closed when the process has

	before remains // after the warm-up
}

// newWeft starts weft and waits until it serves. In the namespace of command and
// dial, if they are not nil.
func (r *trial) newWeft(s setup, command func(name string, args ...string) *exec.Cmd, dial dialer) *weft {
	r.Helper()
	if command == nil {
		command, dial = exec.Command, plainDial
	}
	w := &weft{r: r, port: freePort(), path: filepath.Join(r.TempDir(), "config.json"), log: journal{subject.NewJournal()}, ended: make(chan struct{})}
	w.admin = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}, Timeout: patience}
	w.write(s)
	w.cmd = command(program, "start", "-c", w.path)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	if err := w.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.pid = w.cmd.Process.Pid
	go func() { // ends with the process, which the clean-up waits for
		_ = w.cmd.Wait() // ProcessState tells
		close(w.ended)
	}()
	r.Cleanup(w.end)
	if w.log.await(r, 0, "is ready") == "" {
		r.FailNow()
	}
	return w
}

// write replaces the configuration file whole.
func (w *weft) write(s setup) {
	w.r.Helper()
	host, port, _ := net.SplitHostPort(w.port)
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
		panic("chaos: a configuration: " + err.Error())
	}
	next := w.path + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		w.r.Error(err)
	}
	if err := os.Rename(next, w.path); err != nil {
		w.r.Error(err)
	}
}

// reload makes s the running configuration. Any goroutine may call it.
func (w *weft) reload(s setup) {
	w.r.Helper()
	from := w.log.Len()
	w.write(s)
	w.signal(syscall.SIGHUP)
	if line := w.log.await(w.r, from, "configuration "); !strings.Contains(line, "configuration applied") {
		w.r.Errorf("reload: %s", line)
	}
}

func (w *weft) signal(s os.Signal) {
	w.r.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.r.Error(err)
	}
}

// awaitExit waits for the end of the process and holds that it ended well.
func (w *weft) awaitExit(within time.Duration) {
	w.r.Helper()
	select {
	case <-w.ended:
		if status := w.cmd.ProcessState.ExitCode(); status != 0 {
			w.r.Errorf("the process ended with status %d", status)
		}
	case <-time.After(within):
		stacks, err := w.tryGet("/debug/pprof/goroutine?debug=1")
		w.r.Errorf("the process is there %v after it was asked to end: %v\n%s", within, err, stacks)
	}
}

// end makes sure that nothing is left, and that nothing went wrong unseen.
func (w *weft) end() {
	_ = w.cmd.Process.Kill() // it may have ended
	<-w.ended
	w.log.Judge(w.r)
}

// get is a GET of the admin port.
func (w *weft) get(path string) string {
	w.r.Helper()
	text, err := w.tryGet(path)
	if err != nil {
		w.r.Fatal(err)
	}
	return text
}

func (w *weft) tryGet(path string) (string, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+w.port+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := w.admin.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read to the end
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// metric is the sum of a metric's series whose text has all of labels.
func (w *weft) metric(name string, labels ...string) float64 {
	w.r.Helper()
	return sumOf(w.get("/stats/prometheus"), name, labels...)
}

func sumOf(text, name string, labels ...string) float64 {
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

// remains is what a process holds.
type remains struct {
	goroutines int // but for fibers
	fibers     int // stacks that are kept for RPC requests to come
	sockets    int
	own        int // bytes of memory that are no pages of files
}

func (w *weft) remains() remains {
	w.r.Helper()
	var now remains
	for stack := range strings.SplitSeq(w.get("/debug/pprof/goroutine?debug=1"), "\n\n") {
		found := regexp.MustCompile(`(?m)^(\d+) @`).FindStringSubmatch(stack)
		if found == nil {
			continue
		}
		n, _ := strconv.Atoi(found[1])
		if strings.Contains(stack, "xprotocol.newFiber") {
			now.fibers += n
		} else {
			now.goroutines += n
		}
	}
	if now.goroutines == 0 {
		w.r.Fatal("no goroutines on the admin port")
	}
	proc := fmt.Sprintf("/proc/%d/", w.cmd.Process.Pid)
	entries, err := os.ReadDir(proc + "fd")
	if err != nil {
		w.r.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(proc + "fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			now.sockets++
		}
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		w.r.Fatal(err)
	}
	if found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status); found != nil {
		now.own, _ = strconv.Atoi(string(found[1]))
		now.own <<= 10
	}
	return now
}

// warm makes one request of each kind and notes what the process holds when their
// connections are idle no more.
func (w *weft) warm(hangUp func(), loads ...load) {
	w.r.Helper()
	for _, l := range loads {
		deadline := time.After(patience)
		for n := 0; ; n++ {
			_, err := l.request(1_000_000 + n)
			if err == nil {
				break
			}
			select {
			case <-deadline:
				w.r.Fatalf("%s, before anything goes wrong: %v", l.name, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	hangUp()
	w.awaitIdle()
	w.before = w.remains()
}

// awaitIdle waits until no request and no connection of a caller is left, and no
// unused one to a host.
func (w *weft) awaitIdle() {
	w.r.Helper()
	w.awaitZero("weft_listener_requests_active", "weft_cluster_requests_active",
		"weft_listener_connections_active", "weft_cluster_connections_active")
}

// awaitNoRequests waits until no request is under way.
func (w *weft) awaitNoRequests() {
	w.r.Helper()
	w.awaitZero("weft_listener_requests_active", "weft_cluster_requests_active")
}

// awaitZero waits until all of the gauges are zero.
func (w *weft) awaitZero(gauges ...string) {
	w.r.Helper()
	w.eventually(func() string {
		text := w.get("/stats/prometheus")
		for _, gauge := range gauges {
			if n := sumOf(text, gauge); n != 0 {
				return fmt.Sprintf("%s is %v, want 0", gauge, n)
			}
		}
		return ""
	})
}

// noLeak holds that the process has nothing that it had not after the warm-up, once
// its callers have gone.
func (w *weft) noLeak() {
	w.r.Helper()
	w.awaitIdle()
	const (
		fewGoroutines = 4        // checks that are under way, workers of the runtime's
		fewSockets    = 4        // checks that are under way
		fewFibers     = 64       // which the engine keeps
		memory        = 48 << 20 // buffers and stacks that are kept for the next ones
	)
	var now remains
	w.eventually(func() string {
		now = w.remains()
		if now.goroutines > w.before.goroutines+fewGoroutines || now.sockets > w.before.sockets+fewSockets || now.fibers > fewFibers {
			return fmt.Sprintf("%+v, before: %+v", now, w.before)
		}
		return ""
	})
	w.r.Logf("before and after: %d and %d goroutines, %d and %d sockets, %d and %d MB", w.before.goroutines, now.goroutines,
		w.before.sockets, now.sockets, w.before.own>>20, now.own>>20)
	if now.own > w.before.own+memory && !invariants.Enabled { // the detector keeps much
		w.r.Errorf("the process has %d MB, and had %d", now.own>>20, w.before.own>>20)
	}
	if n := w.metric("weft_panics_total"); n != 0 {
		w.r.Errorf("%v panics were contained", n)
	}
}

// eventually waits until wrong returns "".
func (w *weft) eventually(wrong func() string) {
	w.r.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for {
		what := wrong()
		if what == "" {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			w.r.Errorf("still so after %v: %s\n%.6000s", patience, what, w.get("/debug/pprof/goroutine?debug=1"))
			return
		}
	}
}

// journal is what a process writes.
type journal struct{ *subject.Journal }

// await waits for a line that has want, after the first from bytes. If none comes it
// reports that and returns "".
func (j journal) await(r *trial, from int, want string) string {
	r.Helper()
	line, err := j.Await(from, want, patience)
	if err != nil {
		r.Error(err)
	}
	return line
}
