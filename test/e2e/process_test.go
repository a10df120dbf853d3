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

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/test/subject"
)

// waitTimeout is the timeout of operations that should complete immediately, on a busy machine.
const waitTimeout = 15 * time.Second

// weft is a process under test.
type weft struct {
	t      *testing.T
	cmd    *exec.Cmd
	path   string // of its configuration; "" if args name it
	admin  string // address of the admin port, if config has one
	stdout output
	stderr output
	exited chan struct{} // closed when the process has exited
	client *http.Client  // for the admin port; nil: adminClient
}

// startWeft starts weft with a configuration and waits until it is ready.
func startWeft(t *testing.T, c object) *weft {
	t.Helper()
	w := launchWeft(t, launchOptions{config: c})
	w.awaitReady()
	return w
}

// launchOptions configures launchWeft.
type launchOptions struct {
	config object   // written to a temporary file; nil: args has the configuration
	args   []string // after "start -c FILE", or all arguments if config is nil
	env    []string
	dir    string // working directory
	binary string // "": plainBinary
	// shell is a script that executes "$@" at its end, such as `ulimit -n 64; exec "$@"`.
	shell string
}

// launchWeft starts weft. The cleanup of the test kills the process if it still runs.
func launchWeft(t *testing.T, o launchOptions) *weft {
	t.Helper()
	w := &weft{t: t, stdout: newOutput(), stderr: newOutput(), exited: make(chan struct{})}
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
		_ = w.cmd.Wait() // ProcessState has the result
		w.stdout.Close()
		w.stderr.Close()
		close(w.exited)
	}()
	t.Cleanup(w.kill)
	return w
}

// kill kills the process, waits for it, and checks its log.
func (w *weft) kill() {
	_ = w.cmd.Process.Kill() // the process may have exited
	<-w.exited
	w.stderr.CheckLog(w.t)
}

func (w *weft) awaitReady() {
	w.t.Helper()
	w.stdout.await(w.t, 0, "is ready")
}

// write replaces the configuration file atomically, as an editor does.
func (w *weft) write(c object) {
	w.t.Helper()
	w.writeText(c.encode(w.t))
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

// reload makes c the active configuration.
func (w *weft) reload(c object) {
	w.t.Helper()
	from := w.stderr.Len()
	w.write(c)
	w.signal(syscall.SIGHUP)
	line := w.stderr.await(w.t, from, "configuration ")
	if !strings.Contains(line, "configuration applied") {
		w.t.Fatalf("reload: %s, want \"configuration applied\"", line)
	}
}

// awaitExit waits until the process exits and returns its status.
func (w *weft) awaitExit(timeout time.Duration) int {
	w.t.Helper()
	select {
	case <-w.exited:
	case <-time.After(timeout):
		w.t.Fatalf("the process has not exited after %v", timeout)
	}
	return w.cmd.ProcessState.ExitCode()
}

// adminGet sends a GET to the admin port and returns the body.
func (w *weft) adminGet(path string) string {
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

// adminClient keeps no connections open, because tests count the open connections.
var adminClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitTimeout}

// metric returns the sum of the series of a metric whose text contains all labels. A counter may
// change shortly after a test has observed its event, so metric reads until two readings agree.
// After ten more readings it returns the last one.
//
//arch:clock the time between two readings of a poll
func (w *weft) metric(name string, labels ...string) float64 {
	w.t.Helper()
	const readings, interval = 10, 10 * time.Millisecond
	value := w.metricNow(name, labels)
	for range readings {
		previous := value
		time.Sleep(interval)
		if value = w.metricNow(name, labels); value == previous {
			break
		}
	}
	return value
}

func (w *weft) metricNow(name string, labels []string) float64 {
	w.t.Helper()
	sum := 0.0
series:
	for line := range strings.Lines(w.adminGet("/stats/prometheus")) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue series
			}
		}
		sample, err := strconv.ParseFloat(value, 64)
		if err != nil {
			w.t.Fatalf("metric %s: %v", line, err)
		}
		sum += sample
	}
	return sum
}

// goroutines returns the number of goroutines.
func (w *weft) goroutines() int {
	w.t.Helper()
	found := regexp.MustCompile(`total (\d+)`).FindStringSubmatch(w.adminGet("/debug/pprof/goroutine?debug=1"))
	if found == nil {
		w.t.Fatal("no count of goroutines on the admin port")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// heap returns the bytes of live objects, after a garbage collection.
func (w *weft) heap() int {
	w.t.Helper()
	w.adminGet("/debug/pprof/heap?gc=1")
	found := regexp.MustCompile(`# HeapAlloc = (\d+)`).FindStringSubmatch(w.adminGet("/debug/pprof/heap?gc=1&debug=1"))
	if found == nil {
		w.t.Fatal("no HeapAlloc on the admin port")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// descriptors returns the targets of the open file descriptors.
func (w *weft) descriptors() []string {
	w.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", w.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			out = append(out, target)
		}
	}
	return out
}

// memory is the memory of a process in bytes. Tests bound the anonymous memory, because the kernel
// decides how many pages of the program and its libraries are resident.
type memory struct{ resident, peak, anonymous int }

func (w *weft) memory() memory {
	w.t.Helper()
	m, err := memoryOf(w.cmd.Process.Pid)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func memoryOf(pid int) (m memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	for name, field := range map[string]*int{"VmRSS": &m.resident, "VmHWM": &m.peak, "RssAnon": &m.anonymous} {
		found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
		if found == nil {
			return memory{}, fmt.Errorf("no %s in /proc/PID/status", name)
		}
		n, _ := strconv.Atoi(string(found[1]))
		*field = n << 10
	}
	return m, nil
}

// watchMemory samples the anonymous memory of the process. The returned function stops the
// sampling, and fails the test if the memory grew by more than maxGrowth. With the race detector it
// never fails the test.
func (w *weft) watchMemory() (check func(maxGrowth int)) {
	w.t.Helper()
	before, pid := w.memory().anonymous, w.cmd.Process.Pid
	peak, stop, ended := before, make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() {
		close(stop)
		<-ended
	})
	w.t.Cleanup(end)
	go func() {
		defer close(ended)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			if m, err := memoryOf(pid); err == nil { // an error means that the process has exited
				peak = max(peak, m.anonymous)
			}
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
		}
	}()
	return func(maxGrowth int) {
		w.t.Helper()
		end()
		w.t.Logf("%d kB of memory before, %d kB at most", before>>10, peak>>10)
		if peak-before > maxGrowth && !invariants.Enabled {
			w.t.Errorf("memory grew from %d kB to %d kB, want at most %d kB more", before>>10, peak>>10, maxGrowth>>10)
		}
	}
}

// output is the output of a process.
type output struct{ *subject.LogBuffer }

func newOutput() output { return output{subject.NewLogBuffer()} }

// await waits for a line that contains want, and returns the line. It ignores the first from bytes
// of the output.
func (o output) await(t *testing.T, from int, want string) string {
	t.Helper()
	line, err := o.Await(from, want, waitTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// command runs weft until it exits.
func command(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	binary, err := plainBinary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
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

// eventually waits until condition returns true. After waitTimeout it fails the test.
func eventually(t *testing.T, label string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(waitTimeout)
	for !condition() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("timeout after %v while waiting for this: %s", waitTimeout, label)
		}
	}
}
