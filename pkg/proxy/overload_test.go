package proxy

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

// fakeSystem is a system of files that tests change while it is read.
type fakeSystem struct {
	mu    sync.Mutex
	files map[string]string // guarded by mu
	err   error             // guarded by mu; of opening anything; nil: none
}

// Open is fs.FS's.
func (m *fakeSystem) Open(name string) (fs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, there := m.files[name]
	switch {
	case m.err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: m.err}
	case !there:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return fstest.MapFS{name: {Data: []byte(text)}}.Open(name)
}

// set replaces a file; "" removes it.
func (m *fakeSystem) set(name, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = text
	if text == "" {
		delete(m.files, name)
	}
}

// fail has opening anything fail.
func (m *fakeSystem) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// setPressure sets the resident memory to a share of what these tests allow.
func (m *fakeSystem) setPressure(share float64) {
	m.set("proc/self/statm", fmt.Sprintf("1 %d\n", int(math.Ceil(share*machineMemory/float64(os.Getpagesize())))))
}

const machineMemory = 1 << 30

// overloadConfig is the server's part of a configuration that watches memory each 10 ms and
// has these actions.
func overloadConfig(actions string) string {
	return fmt.Sprintf(`"overload_manager": {"refresh_interval": "10ms",
		"resource_monitors": [{"name": "memory", "typed_config": {"max_memory_bytes": %d}}], "actions": [%s]}`, machineMemory, actions)
}

// actionConfig is an action at a pressure of 0.9.
func actionConfig(name string) string {
	return `{"name": "` + name + `", "triggers": [{"name": "memory", "threshold": {"value": 0.9}}]}`
}

// newOverloadRig runs a proxy in front of an application, on a machine.
func newOverloadRig(t *testing.T, server string) (*rig, *fakeSystem, setup) {
	t.Helper()
	t.Parallel()
	m := &fakeSystem{files: map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\n"}}
	m.setPressure(0.1)
	s := setup{
		server: server, routes: to("app"), clusters: cluster("app", origin(t, respondText("served"))),
	}
	r := newRigOn(t, m)
	r.apply(s.snapshot(t))
	return r, m, s
}

// awaitState waits until an action is in a state.
func (r *rig) awaitState(name, state string) {
	r.t.Helper()
	got := ""
	r.until(func() bool {
		s := r.server.Overload()
		if s == nil {
			return false
		}
		for _, a := range s.Actions {
			if a.Name == name {
				got = a.State
			}
		}
		return got == state
	}, func() { r.t.Fatalf("%s is %s, want %s", name, got, state) })
}

func TestRequestsAreRejectedUnderMemoryPressure(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_requests")))
	c := dialClient(t, r.address("front"))
	if got := c.roundTrip(get("/")); got.StatusCode != 200 {
		t.Fatalf("before: %d", got.StatusCode)
	}
	m.setPressure(0.95)
	r.awaitState("stop_accepting_requests", "saturated")
	got := c.roundTrip(get("/"))
	if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" || got.body != "overloaded\n" {
		t.Errorf("while memory is short: %d %v %q", got.StatusCode, got.Header, got.body)
	}
	if got.Close {
		t.Error("the connection was ended, which was not asked for")
	}
	r.await(1, "weft_listener_request_failures_total", "overloaded")
	r.await(1, "weft_overload_action_done_total", "stop_accepting_requests")
	r.await(1, "weft_overload_action_value", "stop_accepting_requests")
	if p := r.value("weft_overload_pressure", "memory"); p < 0.94 || p > 0.96 {
		t.Errorf("weft_overload_pressure = %v", p)
	}
	m.setPressure(0.5)
	r.awaitState("stop_accepting_requests", "inactive")
	if got := c.roundTrip(get("/")); got.StatusCode != 200 {
		t.Errorf("afterwards: %d", got.StatusCode)
	}
	status := r.server.Overload()
	if a := status.Actions[0]; a.Done != 1 || a.Value != 0 || a.Since == nil || status.Monitors[0].Limit != machineMemory {
		t.Errorf("status %+v", status)
	}
	if text := r.log.String(); strings.Count(text, "msg=overload ") != 1 {
		t.Errorf("the log is\n%s", text)
	}
}

func TestFractionOfRequestsIsRejected(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(`{"name": "stop_accepting_requests", "triggers": [
		{"name": "memory", "scaled": {"scaling_threshold": 0.5, "saturation_threshold": 0.9}}]}`))
	m.setPressure(0.7)
	r.awaitState("stop_accepting_requests", "scaling")
	c := dialClient(t, r.address("front"))
	refused := 0
	for range 400 {
		if c.roundTrip(get("/")).StatusCode == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused < 130 || refused > 270 { // seven standard deviations
		t.Errorf("%d of 400 were refused, want half", refused)
	}
}

func TestDisableKeepAliveClosesAfterResponse(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(actionConfig("disable_http_keepalive")))
	c := dialClient(t, r.address("front"))
	if got := c.roundTrip(get("/")); got.Close {
		t.Fatal("the connection was ended before")
	}
	m.setPressure(0.95)
	r.awaitState("disable_http_keepalive", "saturated")
	if got := c.roundTrip(get("/")); got.StatusCode != 200 || !got.Close || !c.ended() {
		t.Errorf("while memory is short: %d, close %v", got.StatusCode, got.Close)
	}
	r.await(1, "weft_listener_connections_closed_total", "overload")
	r.await(1, "weft_overload_action_done_total", "disable_http_keepalive")
}

func TestStopAcceptingQueuesConnections(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_connections")))
	open := dialClient(t, r.address("front"))
	open.roundTrip(get("/"))
	m.setPressure(0.95)
	r.awaitState("stop_accepting_connections", "saturated")
	waiting := dialClient(t, r.address("front"))
	waiting.send(get("/"))
	if got := open.roundTrip(get("/")); got.StatusCode != 200 {
		t.Errorf("a connection that is open: %d", got.StatusCode)
	}
	if n := r.value("weft_listener_connections_accepted_total"); n != 1 {
		t.Errorf("%v connections were accepted", n)
	}
	m.setPressure(0.1)
	if got := waiting.read(get("/")); got.StatusCode != 200 {
		t.Errorf("the one that waited: %d", got.StatusCode)
	}
	r.await(1, "weft_overload_action_done_total", "stop_accepting_connections")
}

func TestNewConnectionsAreRejected(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(actionConfig("reject_incoming_connections")))
	open := dialClient(t, r.address("front"))
	open.roundTrip(get("/"))
	m.setPressure(0.95)
	r.awaitState("reject_incoming_connections", "saturated")
	if !dialClient(t, r.address("front")).ended() {
		t.Error("a new connection is served")
	}
	if got := open.roundTrip(get("/")); got.StatusCode != 200 {
		t.Errorf("a connection that is open: %d", got.StatusCode)
	}
	r.await(1, "weft_overload_action_done_total", "reject_incoming_connections")
	r.await(1, "weft_listener_connections_refused_total")
}

func TestShrinkIdleClosesConnections(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(actionConfig("shrink_idle")))
	c := dialClient(t, r.address("front"))
	c.roundTrip(get("/"))
	m.setPressure(0.95)
	if !c.ended() {
		t.Error("the caller's connection goes on")
	}
	r.await(1, "weft_listener_connections_closed_total", "overload")
	r.await(1, "weft_cluster_connections_closed_total")
	r.await(2, "weft_overload_action_done_total", "shrink_idle")
	// Who comes now is served, and what is in use does not end.
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 200 {
		t.Errorf("a new caller: %d", got.StatusCode)
	}
}

func TestIdleTimeoutsAreReduced(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(`{"name": "reduce_timeouts", "triggers": [{"name": "memory", "threshold": {"value": 0.9}}],
		"typed_config": {"timer_scale_factors": [{"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": "200ms"}]}}`))
	c := dialClient(t, r.address("front"))
	c.roundTrip(get("/"))
	m.setPressure(0.95)
	if !c.ended() { // its idle timeout is 90 s
		t.Error("the caller's connection goes on")
	}
	r.await(1, "weft_overload_action_done_total", "reduce_timeouts")
}

// TestReloadsWhileMemoryIsShort: the same configuration of an overload manager goes on,
// another one takes over at once, and without one everything is as before.
func TestReloadsWhileMemoryIsShort(t *testing.T) {
	r, m, s := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_requests")))
	m.setPressure(0.95)
	r.awaitState("stop_accepting_requests", "saturated")
	since := r.server.Overload().Actions[0].Since
	c := dialClient(t, r.address("front"))
	status := func(want int) {
		t.Helper()
		if got := c.roundTrip(get("/")); got.StatusCode != want {
			t.Errorf("%d, want %d", got.StatusCode, want)
		}
	}
	status(503)
	s.clusters = cluster("app", origin(t, respondText("another"))) // something else changes
	r.apply(s.snapshot(t))
	status(503)
	if again := r.server.Overload().Actions[0].Since; !again.Equal(*since) {
		t.Errorf("it began again, at %v", again)
	}
	s.server = overloadConfig(actionConfig("disable_http_keepalive") + "," + actionConfig("stop_accepting_requests"))
	r.apply(s.snapshot(t))
	status(503)
	if !c.ended() {
		t.Error("the new action does not act")
	}
	s.server = ""
	r.apply(s.snapshot(t))
	c = dialClient(t, r.address("front"))
	status(200)
	if r.server.Overload() != nil {
		t.Error("there is an overload manager yet")
	}
	if n := r.value("weft_overload_action_value"); n != 0 {
		t.Errorf("its metrics stay: %v", n)
	}
}

// TestDrainWhileAcceptIsPaused: nobody waits for the door to open.
func TestDrainWhileAcceptIsPaused(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_connections")))
	m.setPressure(0.95)
	r.awaitState("stop_accepting_connections", "saturated")
	waiting := dialClient(t, r.address("front"))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r.server.Drain(ctx)
	if ctx.Err() != nil {
		t.Error("the drain took all of its time")
	}
	if !waiting.ended() {
		t.Error("a connection that was not accepted is open")
	}
}

func TestUnreadableMonitorKeepsPressure(t *testing.T) {
	r, m, _ := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_requests")))
	m.setPressure(0.95)
	r.awaitState("stop_accepting_requests", "saturated")
	m.set("proc/self/statm", "")
	r.until(func() bool { return r.server.Overload().Monitors[0].Failing }, func() { t.Error("it is not said to fail") })
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 503 {
		t.Errorf("%d, want 503", got.StatusCode)
	}
	r.until(func() bool { return r.value("weft_overload_monitor_failures_total", "memory") > 3 }, func() { t.Error("failures are not counted") })
	if n := strings.Count(r.log.String(), "cannot be read"); n != 1 {
		t.Errorf("%d lines say so, want 1", n)
	}
	m.setPressure(0.1)
	r.awaitState("stop_accepting_requests", "inactive")
}

// TestDescriptorExhaustionIsFullPressure: reading how many there are takes one.
func TestDescriptorExhaustionIsFullPressure(t *testing.T) {
	r, m, s := newOverloadRig(t, "")
	m.set("proc/self/fd", "12345") // its size is how many there are
	m.set("proc/self/limits", "Max open files 1024 4096 files\n")
	s.server = `"overload_manager": {"refresh_interval": "10ms", "resource_monitors": [{"name": "file_descriptors"}], "actions": [
		{"name": "stop_accepting_requests", "triggers": [{"name": "file_descriptors", "threshold": {"value": 0.9}}]}]}`
	r.apply(s.snapshot(t))
	for _, short := range []error{syscall.EMFILE, syscall.ENFILE} {
		r.awaitState("stop_accepting_requests", "inactive")
		m.fail(short)
		r.awaitState("stop_accepting_requests", "saturated")
		if got := r.server.Overload().Monitors[0]; got.Pressure != 1 || got.Used != 1024 || got.Failing {
			t.Errorf("%v: %+v, want all of 1024 used", short, got)
		}
		m.fail(nil)
	}
	r.awaitState("stop_accepting_requests", "inactive")
}

func TestUnreadableMonitorIsRejected(t *testing.T) {
	r, _, s := newOverloadRig(t, "")
	s.server = `"overload_manager": {"resource_monitors": [{"name": "cgroup_memory"}]}`
	err := r.server.Apply(context.Background(), s.snapshot(t))
	if err == nil || !strings.Contains(err.Error(), "cgroup_memory") {
		t.Errorf("Apply = %v", err)
	}
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 200 {
		t.Errorf("what ran does not: %d", got.StatusCode)
	}
}

// TestCPUMonitor goes through a control group of half a processor.
func TestCPUMonitor(t *testing.T) {
	r, m, s := newOverloadRig(t, "")
	m.set("proc/self/cgroup", "0::/\n")
	m.set("sys/fs/cgroup/cgroup.controllers", "cpu\n")
	m.set("sys/fs/cgroup/cpu.max", "50000 100000\n")
	m.set("sys/fs/cgroup/cpu.stat", "usage_usec 0\n")
	s.server = `"overload_manager": {"refresh_interval": "10ms",
		"resource_monitors": [{"name": "cpu_utilization", "typed_config": {"mode": "CONTAINER"}}], "actions": [
			{"name": "stop_accepting_requests", "triggers": [{"name": "cpu_utilization", "threshold": {"value": 0.02}}]}]}`
	r.apply(s.snapshot(t))
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 200 {
		t.Errorf("before: %d", got.StatusCode)
	}
	m.set("sys/fs/cgroup/cpu.stat", "usage_usec 3600000000\n") // an hour at once: as busy as can be
	r.until(func() bool {
		m.set("sys/fs/cgroup/cpu.stat", fmt.Sprintf("usage_usec %d\n", time.Now().UnixMicro()))
		return r.server.Overload().Actions[0].State == "saturated"
	}, func() { t.Errorf("status %+v", r.server.Overload()) })
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 503 {
		t.Errorf("while processors are short: %d", got.StatusCode)
	}
}
