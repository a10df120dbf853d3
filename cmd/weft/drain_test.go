package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// waitFor calls condition until it returns true.
func waitFor(t *testing.T, label string, condition func() bool) {
	t.Helper()
	tick, timeout := time.NewTicker(time.Millisecond), time.NewTimer(10*time.Second)
	defer tick.Stop()
	defer timeout.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("timeout: %s", label)
		}
	}
}

// waitForLog waits until a log file contains want, and returns the content of the file.
func waitForLog(t *testing.T, path, want string) (text string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("waiting for the log line %q", want), func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
		return strings.Contains(text, want)
	})
	return text
}

// drainTest is a process with one request in flight. The host responds after release is called.
type drainTest struct {
	*process
	signals  chan os.Signal
	ended    chan error
	response chan string
	log      string
	release  func()
}

func newDrainTest(t *testing.T) *drainTest {
	t.Helper()
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		io.WriteString(w, "at last")
	}))
	t.Cleanup(app.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := ln.Addr().String()
	_ = ln.Close() // frees the port for the listener
	d := &drainTest{signals: make(chan os.Signal, 4), ended: make(chan error, 1), response: make(chan string, 1), log: filepath.Join(t.TempDir(), "log")}
	released := false
	d.release = func() {
		if !released {
			released = true
			close(release)
		}
	}
	t.Cleanup(d.release)
	d.process, _ = startProcess(t, fmt.Sprintf(`{"servers": [{"default_log_path": %q, "graceful_timeout": "1m", "listeners": [%s],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [{"match": {"prefix": "/"}, "route": {"cluster_name": "app"}}]}]}]}],
		"cluster_manager": {"clusters": [{"name": "app", "hosts": [{"address": %q}]}]}}`, d.log, listenerText("front", front, ""), app.Listener.Addr()))
	d.drainReportInterval = 5 * time.Millisecond
	go func() { d.ended <- d.run(t.Context(), d.signals) }()
	idle, err := net.Dial("tcp", front) // an idle connection
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = idle.Close() })
	go func() {
		response, err := http.Get("http://" + front + "/")
		if err != nil {
			d.response <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		d.response <- string(body)
	}()
	select {
	case <-arrived:
	case <-time.After(10 * time.Second):
		t.Fatal("the request did not reach the application")
	}
	return d
}

func TestDrainLogsProgress(t *testing.T) {
	d := newDrainTest(t)
	d.signals <- syscall.SIGTERM
	waitForLog(t, d.log, `msg="still draining" connections=1 requests=1 seconds_left=`)
	listeners := d.server.Describe()
	if len(listeners) != 1 || listeners[0].Name != "front" || !listeners[0].Draining || listeners[0].Connections != 1 || listeners[0].Requests != 1 {
		t.Errorf("/listeners shows %+v, want one that drains with its connection", listeners)
	}
	d.release()
	if got := <-d.response; got != "at last" {
		t.Errorf("the request got %q, want \"at last\"", got)
	}
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	text := waitForLog(t, d.log, "msg=drained")
	if !strings.Contains(text, "msg=draining by=SIGTERM seconds=60") || strings.Contains(text, "WARN") || strings.Contains(text, "ERROR") {
		t.Errorf("the log is\n%s\nwant msg=draining by=SIGTERM seconds=60, and no warnings or errors", text)
	}
	if after := d.server.Describe(); len(after) != 0 {
		t.Errorf("after the drain /listeners shows %+v, want none", after)
	}
}

func TestDrainWarnsAboutRequestsInFlight(t *testing.T) {
	d := newDrainTest(t)
	d.signals <- syscall.SIGINT
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	d.server.Drain(canceledContext(t))
	text := waitForLog(t, d.log, "closed by an immediate shutdown with requests in flight")
	if !strings.Contains(text, "level=WARN msg=\"closed by an immediate shutdown with requests in flight\" listener=front kind=connections count=1\n") {
		t.Errorf("the log is\n%s\nwant a warning about one connection of front", text)
	}
}

func TestDrainClosesIdleConnectionsSilently(t *testing.T) {
	d := newDrainTest(t)
	d.release()
	if got := <-d.response; got != "at last" {
		t.Fatalf("the request got %q, want \"at last\"", got)
	}
	waitFor(t, "waiting until both connections are idle", func() bool { return parkedConnections() == 2 })
	d.signals <- syscall.SIGINT
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	d.server.Drain(canceledContext(t))
	if text := waitForLog(t, d.log, "exiting immediately"); strings.Contains(text, "closed") || strings.Contains(text, "WARN") {
		t.Errorf("the log is\n%s\nwant no line about closed connections, and no warnings", text)
	}
}

// parkedConnections returns the number of connections whose goroutine waits for the next request. A
// connection becomes idle shortly after its request is no longer counted as active.
func parkedConnections() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("network.(*Conn).AwaitReadable("))
}

// canceledContext returns a context that has ended.
func canceledContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestQuitAbortsDrain verifies that /quitquitquit ends a drain that waits for a request.
func TestQuitAbortsDrain(t *testing.T) {
	d := newDrainTest(t)
	d.signals <- syscall.SIGTERM
	waitForLog(t, d.log, "draining")
	d.requestExit()
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	waitForLog(t, d.log, "drain aborted")
}
