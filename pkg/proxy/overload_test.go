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

	"github.com/weft-proxy/weft/pkg/config"
)

// fakeSystem is a file system that tests change while the server reads it.
type fakeSystem struct {
	mu    sync.Mutex
	files map[string]string // guarded by mu
	err   error             // guarded by mu; error of every Open; nil: none
}

// Open implements fs.FS.
func (sys *fakeSystem) Open(name string) (fs.File, error) {
	sys.mu.Lock()
	defer sys.mu.Unlock()
	text, ok := sys.files[name]
	switch {
	case sys.err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: sys.err}
	case !ok:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return fstest.MapFS{name: {Data: []byte(text)}}.Open(name)
}

// set replaces a file; "" removes it.
func (sys *fakeSystem) set(name, text string) {
	sys.mu.Lock()
	defer sys.mu.Unlock()
	sys.files[name] = text
	if text == "" {
		delete(sys.files, name)
	}
}

// fail makes every Open return err.
func (sys *fakeSystem) fail(err error) {
	sys.mu.Lock()
	defer sys.mu.Unlock()
	sys.err = err
}

// setPressure sets the resident memory to a fraction of machineMemory.
func (sys *fakeSystem) setPressure(fraction float64) {
	sys.set("proc/self/statm", fmt.Sprintf("1 %d\n", int(math.Ceil(fraction*machineMemory/float64(os.Getpagesize())))))
}

const machineMemory = 1 << 30

// overloadConfig returns the configuration of an overload manager that monitors memory every 10 ms
// and has these actions.
func overloadConfig(actions string) string {
	return fmt.Sprintf(`"overload_manager": {"refresh_interval": "10ms",
		"resource_monitors": [{"name": "memory", "typed_config": {"max_memory_bytes": %d}}], "actions": [%s]}`, machineMemory, actions)
}

// actionConfig returns an action with a threshold of 0.9.
func actionConfig(name string) string {
	return `{"name": "` + name + `", "triggers": [{"name": "memory", "threshold": {"value": 0.9}}]}`
}

// newOverloadRig runs a proxy in front of an origin, with a fake system.
func newOverloadRig(t *testing.T, server string) (*rig, *fakeSystem, setup) {
	t.Helper()
	t.Parallel()
	sys := &fakeSystem{files: map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\n"}}
	sys.setPressure(0.1)
	s := setup{
		server: server, routes: routeTo("app"), clusters: cluster("app", origin(t, respondText("served"))),
	}
	r := newRigOn(t, sys)
	r.apply(s.snapshot(t))
	return r, sys, s
}

// awaitState waits until an action has the state.
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
	r, sys, _ := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_requests")))
	c := dialClient(t, r.address("front"))
	if got := c.roundTrip(get("/")); got.StatusCode != 200 {
		t.Fatalf("before the pressure: status %d, want 200", got.StatusCode)
	}
	sys.setPressure(0.95)
	r.awaitState("stop_accepting_requests", "saturated")
	got := c.roundTrip(get("/"))
	if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" || got.body != "overloaded\n" {
		t.Errorf("under pressure: status %d, headers %v, body %q; want 503, Retry-After 1 and \"overloaded\\n\"", got.StatusCode, got.Header, got.body)
	}
	if got.Close {
		t.Error("the connection was closed, but no action closes it")
	}
	r.await(1, "weft_listener_request_failures_total", "overloaded")
	r.await(1, "weft_overload_action_effects_total", "stop_accepting_requests")
	r.await(1, "weft_overload_action_value", "stop_accepting_requests")
	if p := r.value("weft_overload_pressure", "memory"); p < 0.94 || p > 0.96 {
		t.Errorf("weft_overload_pressure = %v, want 0.94 to 0.96", p)
	}
	sys.setPressure(0.5)
	r.awaitState("stop_accepting_requests", "inactive")
	if got := c.roundTrip(get("/")); got.StatusCode != 200 {
		t.Errorf("after the pressure: status %d, want 200", got.StatusCode)
	}
	status := r.server.Overload()
	if a := status.Actions[0]; a.Effects != 1 || a.Value != 0 || a.Since == nil || status.Monitors[0].Limit != machineMemory {
		t.Errorf("status %+v, want an inactive action with one effect, and the limit of the machine", status)
	}
	if text := r.log.String(); strings.Count(text, "msg=overload ") != 1 {
		t.Errorf("%d warnings, want 1; log:\n%s", strings.Count(text, "msg=overload "), text)
	}
}

func TestFractionOfRequestsIsRejected(t *testing.T) {
	r, sys, _ := newOverloadRig(t, overloadConfig(`{"name": "stop_accepting_requests", "triggers": [
		{"name": "memory", "scaled": {"scaling_threshold": 0.5, "saturation_threshold": 0.9}}]}`))
	sys.setPressure(0.7)
	r.awaitState("stop_accepting_requests", "scaling")
	c := dialClient(t, r.address("front"))
	rejected := 0
	for range 400 {
		if c.roundTrip(get("/")).StatusCode == http.StatusServiceUnavailable {
			rejected++
		}
	}
	if rejected < 130 || rejected > 270 { // seven standard deviations
		t.Errorf("%d of 400 requests were rejected, want half", rejected)
	}
}

func TestDisableKeepAliveClosesAfterResponse(t *testing.T) {
	r, sys, _ := newOverloadRig(t, overloadConfig(actionConfig("disable_http_keepalive")))
	c := dialClient(t, r.address("front"))
	if got := c.roundTrip(get("/")); got.Close {
		t.Fatal("the connection was closed before the pressure")
	}
	sys.setPressure(0.95)
	r.awaitState("disable_http_keepalive", "saturated")
	if got := c.roundTrip(get("/")); got.StatusCode != 200 || !got.Close || !c.ended() {
		t.Errorf("under pressure: status %d, Close %v; want 200, true and a closed connection", got.StatusCode, got.Close)
	}
	r.await(1, "weft_listener_connections_closed_total", "overload")
	r.await(1, "weft_overload_action_effects_total", "disable_http_keepalive")
}

func TestStopAcceptingQueuesConnections(t *testing.T) {
	r, sys, _ := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_connections")))
	established := dialClient(t, r.address("front"))
	established.roundTrip(get("/"))
	sys.setPressure(0.95)
	r.awaitState("stop_accepting_connections", "saturated")
	queued := dialClient(t, r.address("front"))
	queued.send(get("/"))
	if got := established.roundTrip(get("/")); got.StatusCode != 200 {
		t.Errorf("open connection: status %d, want 200", got.StatusCode)
	}
	if n := r.value("weft_listener_connections_accepted_total"); n != 1 {
		t.Errorf("%v connections were accepted, want 1", n)
	}
	sys.setPressure(0.1)
	if got := queued.read(get("/")); got.StatusCode != 200 {
		t.Errorf("connection from the accept queue: status %d, want 200", got.StatusCode)
	}
	r.await(1, "weft_overload_action_effects_total", "stop_accepting_connections")
}

func TestNewConnectionsAreRejected(t *testing.T) {
	r, sys, _ := newOverloadRig(t, overloadConfig(actionConfig("reject_incoming_connections")))
	established := dialClient(t, r.address("front"))
	established.roundTrip(get("/"))
	sys.setPressure(0.95)
	r.awaitState("reject_incoming_connections", "saturated")
	if !dialClient(t, r.address("front")).ended() {
		t.Error("a new connection was served")
	}
	if got := established.roundTrip(get("/")); got.StatusCode != 200 {
		t.Errorf("open connection: status %d, want 200", got.StatusCode)
	}
	r.await(1, "weft_overload_action_effects_total", "reject_incoming_connections")
	r.await(1, "weft_listener_connections_refused_total")
}

func TestShrinkIdleClosesConnections(t *testing.T) {
	r, sys, _ := newOverloadRig(t, overloadConfig(actionConfig("shrink_idle")))
	c := dialClient(t, r.address("front"))
	c.roundTrip(get("/"))
	sys.setPressure(0.95)
	if !c.ended() {
		t.Error("the idle client connection was not closed")
	}
	r.await(1, "weft_listener_connections_closed_total", "overload")
	r.await(1, "weft_cluster_connections_closed_total")
	r.await(2, "weft_overload_action_effects_total", "shrink_idle")
	// New clients are served.
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 200 {
		t.Errorf("new client: status %d, want 200", got.StatusCode)
	}
}

func TestIdleTimeoutsAreReduced(t *testing.T) {
	r, sys, _ := newOverloadRig(t, overloadConfig(`{"name": "reduce_timeouts", "triggers": [{"name": "memory", "threshold": {"value": 0.9}}],
		"typed_config": {"timer_scale_factors": [{"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": "200ms"}]}}`))
	c := dialClient(t, r.address("front"))
	c.roundTrip(get("/"))
	sys.setPressure(0.95)
	if !c.ended() { // its idle timeout is 90 s
		t.Error("the idle client connection was not closed")
	}
	r.await(1, "weft_overload_action_effects_total", "reduce_timeouts")
}

// TestReloadUnderMemoryPressure verifies that an unchanged overload manager keeps its state across
// reloads, that a changed manager acts immediately, and that all effects end when it is removed.
func TestReloadUnderMemoryPressure(t *testing.T) {
	r, sys, s := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_requests")))
	sys.setPressure(0.95)
	r.awaitState("stop_accepting_requests", "saturated")
	since := r.server.Overload().Actions[0].Since
	c := dialClient(t, r.address("front"))
	expectStatus := func(want int) {
		t.Helper()
		if got := c.roundTrip(get("/")); got.StatusCode != want {
			t.Errorf("status %d, want %d", got.StatusCode, want)
		}
	}
	expectStatus(503)
	s.clusters = cluster("app", origin(t, respondText("another"))) // a change outside the overload manager
	r.apply(s.snapshot(t))
	expectStatus(503)
	if newSince := r.server.Overload().Actions[0].Since; !newSince.Equal(*since) {
		t.Errorf("the action started again at %v, want no change since %v", newSince, since)
	}
	s.server = overloadConfig(actionConfig("disable_http_keepalive") + "," + actionConfig("stop_accepting_requests"))
	r.apply(s.snapshot(t))
	expectStatus(503)
	if !c.ended() {
		t.Error("the new action had no effect")
	}
	s.server = ""
	r.apply(s.snapshot(t))
	c = dialClient(t, r.address("front"))
	expectStatus(200)
	if r.server.Overload() != nil {
		t.Error("the overload manager still exists")
	}
	if n := r.value("weft_overload_action_value"); n != 0 {
		t.Errorf("metrics of the overload manager remain: %v, want 0", n)
	}
}

// TestDrainWhileAcceptIsPaused verifies that Drain does not wait for accepting to resume.
func TestDrainWhileAcceptIsPaused(t *testing.T) {
	r, sys, _ := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_connections")))
	sys.setPressure(0.95)
	r.awaitState("stop_accepting_connections", "saturated")
	queued := dialClient(t, r.address("front"))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r.server.Drain(ctx)
	if ctx.Err() != nil {
		t.Error("Drain did not return before its deadline")
	}
	if !queued.ended() {
		t.Error("a connection that was not accepted is still open")
	}
}

func TestUnreadableMonitorKeepsPressure(t *testing.T) {
	r, sys, _ := newOverloadRig(t, overloadConfig(actionConfig("stop_accepting_requests")))
	sys.setPressure(0.95)
	r.awaitState("stop_accepting_requests", "saturated")
	sys.set("proc/self/statm", "")
	r.until(func() bool { return r.server.Overload().Monitors[0].Failing }, func() { t.Error("the status does not show the monitor as failing") })
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 503 {
		t.Errorf("status %d, want 503", got.StatusCode)
	}
	r.until(func() bool { return r.value("weft_overload_monitor_failures_total", "memory") > 3 }, func() { t.Error("failures are not counted") })
	if n := strings.Count(r.log.String(), "cannot be read"); n != 1 {
		t.Errorf("%d log lines report the monitor, want 1", n)
	}
	sys.setPressure(0.1)
	r.awaitState("stop_accepting_requests", "inactive")
}

// TestDescriptorExhaustionIsFullPressure verifies that the monitor reports full pressure when no
// descriptor is left to count the open ones.
func TestDescriptorExhaustionIsFullPressure(t *testing.T) {
	r, sys, s := newOverloadRig(t, "")
	sys.set("proc/self/fd", "12345") // the file size is the number of open descriptors
	sys.set("proc/self/limits", "Max open files 1024 4096 files\n")
	s.server = `"overload_manager": {"refresh_interval": "10ms", "resource_monitors": [{"name": "file_descriptors"}], "actions": [
		{"name": "stop_accepting_requests", "triggers": [{"name": "file_descriptors", "threshold": {"value": 0.9}}]}]}`
	r.apply(s.snapshot(t))
	for _, openErr := range []error{syscall.EMFILE, syscall.ENFILE} {
		r.awaitState("stop_accepting_requests", "inactive")
		sys.fail(openErr)
		r.awaitState("stop_accepting_requests", "saturated")
		if got := r.server.Overload().Monitors[0]; got.Pressure != 1 || got.Used != 1024 || got.Failing {
			t.Errorf("%v: monitor %+v, want all 1024 used", openErr, got)
		}
		sys.fail(nil)
	}
	r.awaitState("stop_accepting_requests", "inactive")
}

func TestUnreadableMonitorIsRejected(t *testing.T) {
	r, _, s := newOverloadRig(t, "")
	s.server = `"overload_manager": {"resource_monitors": [{"name": "cgroup_memory"}]}`
	err := r.server.Apply(context.Background(), config.FullDelta(s.snapshot(t)))
	if err == nil || !strings.Contains(err.Error(), "cgroup_memory") {
		t.Errorf("Apply = %v, want an error that names the monitor", err)
	}
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 200 {
		t.Errorf("the previous configuration does not serve: status %d, want 200", got.StatusCode)
	}
}

// TestCPUMonitor verifies the CPU monitor in a control group with half a CPU.
func TestCPUMonitor(t *testing.T) {
	r, sys, s := newOverloadRig(t, "")
	sys.set("proc/self/cgroup", "0::/\n")
	sys.set("sys/fs/cgroup/cgroup.controllers", "cpu\n")
	sys.set("sys/fs/cgroup/cpu.max", "50000 100000\n")
	sys.set("sys/fs/cgroup/cpu.stat", "usage_usec 0\n")
	s.server = `"overload_manager": {"refresh_interval": "10ms",
		"resource_monitors": [{"name": "cpu_utilization", "typed_config": {"mode": "CONTAINER"}}], "actions": [
			{"name": "stop_accepting_requests", "triggers": [{"name": "cpu_utilization", "threshold": {"value": 0.02}}]}]}`
	r.apply(s.snapshot(t))
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 200 {
		t.Errorf("before the pressure: status %d, want 200", got.StatusCode)
	}
	sys.set("sys/fs/cgroup/cpu.stat", "usage_usec 3600000000\n") // an hour of CPU time since the last read: full pressure
	r.until(func() bool {
		sys.set("sys/fs/cgroup/cpu.stat", fmt.Sprintf("usage_usec %d\n", time.Now().UnixMicro()))
		return r.server.Overload().Actions[0].State == "saturated"
	}, func() { t.Errorf("status %+v, want a saturated action", r.server.Overload()) })
	if got := roundTrip(t, r.address("front"), get("/")); got.StatusCode != 503 {
		t.Errorf("under pressure: status %d, want 503", got.StatusCode)
	}
}
