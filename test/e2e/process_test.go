package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that should take no time. The machine
// that runs the tests may be busy.
const patience = 15 * time.Second

// weft is a process under test.
type weft struct {
	t      *testing.T
	cmd    *exec.Cmd
	path   string // of its configuration; "" for the built-in one
	admin  string // address of its admin port, if the test's configuration has one
	stdout *output
	stderr *output
	ended  chan struct{} // closed when the process has
	client *http.Client  // of the admin port; nil: adminClient
}

// run starts weft with a configuration and waits until it serves.
func run(t *testing.T, c object) *weft {
	t.Helper()
	w := launch(t, launchOptions{config: c})
	w.awaitReady()
	return w
}

// launchOptions say how weft is started.
type launchOptions struct {
	config object   // written to a file of the test's; nil: args say what to run
	args   []string // after "start -c FILE", or all of them without a configuration
	env    []string
	dir    string // working directory
	binary string // if it is not the plain one
	// shell is a script that ends by starting "$@", such as `ulimit -n 64; exec "$@"`.
	shell string
}

// launch starts weft. A test that does not wait for its end has it killed.
func launch(t *testing.T, o launchOptions) *weft {
	t.Helper()
	w := &weft{t: t, stdout: newOutput(), stderr: newOutput(), ended: make(chan struct{})}
	args := o.args
	if o.config != nil {
		w.path = filepath.Join(t.TempDir(), "config.json")
		w.admin = o.config.admin()
		w.write(o.config)
		args = append([]string{"start", "-c", w.path}, args...)
	}
	binary := o.binary
	if binary == "" {
		var err error
		if binary, err = plainBinary(); err != nil {
			t.Fatal(err)
		}
	}
	if o.shell != "" {
		args = append([]string{"-c", o.shell, "sh", binary}, args...)
		binary = "/bin/sh"
	}
	w.cmd = exec.Command(binary, args...)
	w.cmd.Dir = o.dir
	w.cmd.Env = append(os.Environ(), o.env...)
	w.cmd.Stdout, w.cmd.Stderr = w.stdout, w.stderr
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = w.cmd.Wait() // ProcessState tells
		w.stdout.close()
		w.stderr.close()
		close(w.ended)
	}()
	t.Cleanup(w.end)
	return w
}

// end makes sure that nothing is left, and that nothing went wrong unseen.
func (w *weft) end() {
	_ = w.cmd.Process.Kill() // it may have ended
	<-w.ended
	log := "\n" + w.stderr.String()
	// A cluster in panic is none: its hosts are what is wrong.
	for _, defect := range []string{"\npanic: ", "\"panic: ", "panic while", "DATA RACE", "fatal error", "level=ERROR msg=\"accept"} {
		if at := strings.Index(log, defect); at >= 0 {
			w.t.Errorf("the log has %q:\n%s", defect, log[at:min(len(log), at+6<<10)])
		}
	}
	if w.t.Failed() {
		const most = 8 << 10
		if len(log) > most {
			log = log[:most/2] + "\n…\n" + log[len(log)-most/2:]
		}
		w.t.Logf("log of weft:\n%s", log)
	}
}

func (w *weft) awaitReady() {
	w.t.Helper()
	w.stdout.await(w.t, 0, "is ready")
}

// write replaces the configuration file, as an editor does: whole or not at all.
func (w *weft) write(c object) {
	w.t.Helper()
	w.writeText(c.text(w.t))
}

func (w *weft) writeText(text []byte) {
	w.t.Helper()
	next := w.path + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(next, w.path); err != nil {
		w.t.Fatal(err)
	}
}

func (w *weft) signal(s os.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// reload makes c the running configuration.
func (w *weft) reload(c object) {
	w.t.Helper()
	from := w.stderr.len()
	w.write(c)
	w.signal(syscall.SIGHUP)
	line := w.stderr.await(w.t, from, "configuration ")
	if !strings.Contains(line, "configuration applied") {
		w.t.Fatalf("reload: %s", line)
	}
}

// awaitExit returns the exit status.
func (w *weft) awaitExit(within time.Duration) int {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(within):
		w.t.Fatalf("the process is still there after %v", within)
	}
	return w.cmd.ProcessState.ExitCode()
}

// get is a GET of the admin port.
func (w *weft) get(path string) string {
	w.t.Helper()
	client := w.client
	if client == nil {
		client = adminClient
	}
	response, err := client.Get("http://" + w.admin + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(body)
}

// adminClient leaves no connection behind that a count could find.
var adminClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// metric is the sum of a metric's series whose text has all of labels.
func (w *weft) metric(name string, labels ...string) float64 {
	w.t.Helper()
	sum := 0.0
series:
	for line := range strings.Lines(w.get("/stats/prometheus")) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue series
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			w.t.Fatalf("metric %s: %v", line, err)
		}
		sum += v
	}
	return sum
}

// goroutines is how many there are.
func (w *weft) goroutines() int {
	w.t.Helper()
	found := regexp.MustCompile(`total (\d+)`).FindStringSubmatch(w.get("/debug/pprof/goroutine?debug=1"))
	if found == nil {
		w.t.Fatal("no count of goroutines on the admin port")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// heap is how many bytes live objects take, after a collection.
func (w *weft) heap() int {
	w.t.Helper()
	w.get("/debug/pprof/heap?gc=1")
	found := regexp.MustCompile(`# HeapAlloc = (\d+)`).FindStringSubmatch(w.get("/debug/pprof/heap?gc=1&debug=1"))
	if found == nil {
		w.t.Fatal("no HeapAlloc on the admin port")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// descriptors lists the open ones.
func (w *weft) descriptors() []string {
	w.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", w.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			all = append(all, to)
		}
	}
	return all
}

// baseline is the process's memory in bytes, from which on resident tells of a peak:
// what a program is started with it does not keep.
func (w *weft) baseline() (now int) {
	w.t.Helper()
	const peakAnew = "5" // proc(5), clear_refs
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.cmd.Process.Pid), []byte(peakAnew), 0); err != nil {
		w.t.Fatal(err)
	}
	now, _ = w.resident()
	return now
}

// resident is the process's memory in bytes: now, and the most it was since baseline, or
// ever.
func (w *weft) resident() (now, peak int) {
	w.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	field := func(name string) int {
		found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
		if found == nil {
			w.t.Fatalf("no %s in /proc/PID/status", name)
		}
		n, _ := strconv.Atoi(string(found[1]))
		return n << 10
	}
	return field("VmRSS"), field("VmHWM")
}

// output is what a process writes.
type output struct {
	mu      sync.Mutex
	data    []byte
	changed chan struct{} // closed and replaced at each write
	closed  bool
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, p...)
	close(o.changed)
	o.changed = make(chan struct{})
	return len(p), nil
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.data)
}

func (o *output) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.data)
}

// await waits for a line that has want, after the first from bytes.
func (o *output) await(t *testing.T, from int, want string) string {
	t.Helper()
	timeout := time.After(patience)
	for {
		o.mu.Lock()
		data, changed, closed := o.data[from:], o.changed, o.closed
		o.mu.Unlock()
		if at := bytes.Index(data, []byte(want)); at >= 0 {
			if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
				begin := bytes.LastIndexByte(data[:at], '\n') + 1
				return string(data[begin : at+n])
			}
		}
		if closed {
			t.Fatalf("the process ended without writing %q", want)
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("no line with %q in\n%s", want, data)
		}
	}
}

// command runs weft to its end.
func command(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	binary, err := plainBinary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = root
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// eventually waits until holds does.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("still not so after %v: %s", patience, what)
		}
	}
}
