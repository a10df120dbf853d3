package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// busyEnv is the environment variable that makes the test binary a busy loop.
const busyEnv = "WEFT_CHAOS_BUSY"

// TestCPUStarvation limits Weft to a fifth of a CPU, and for a while to a hundredth, by a
// control group. Without control groups, busy loops compete for all CPUs.
//
// The test verifies that Weft serves a sustainable load completely, recovers after an overload in
// which clients time out, and drains in time.
func TestCPUStarvation(t *testing.T) {
	r := newTestRun(t)
	_, addrs := r.newHost("host")
	pageAt, rpcAt := freePort(), freePort()
	w := r.newWeft(setup{
		listeners: list{listener("web", pageAt, "Auto"), listener("dubbo", rpcAt, "dubbo")},
		tables:    list{routeTable("web", route("/", "page")), routeTable("dubbo", route("/", "rpc"))},
		clusters:  list{cluster("page", []string{addrs.http}), cluster("rpc", []string{addrs.rpc})},
	}, nil, nil)
	first, second, rpc := r.newHTTPClient(pageAt, false, plainDial), r.newHTTPClient(pageAt, true, plainDial), r.newDubboClient(rpcAt, plainDial)
	loads := []load{
		first.getLoad("http1", "/echo", 60), second.getLoad("http2", "/echo", 60), second.grpcLoad("grpc", 60), rpc.callLoad("dubbo", 60),
		second.getLoad("http2-slow", "/echo?wait=1500", 5),
	}
	hangUp := func() {
		first.transport.CloseIdleConnections()
		second.transport.CloseIdleConnections()
		rpc.close()
	}
	w.warmUp(hangUp, loads...)

	setPercent, method := r.limitCPU(w.cmd.Process.Pid)
	r.Log(method)
	setPercent(20)
	hold := func(results map[string]*loadResult, when string) {
		r.Helper()
		for _, name := range []string{"http1", "http2", "grpc", "dubbo"} {
			r.check(results[name+when], bounds{p50: 60 * time.Millisecond, p99: 700 * time.Millisecond})
		}
		r.check(results["http2-slow"+when], bounds{p99: slowCall + 700*time.Millisecond})
	}
	hold(r.runLoadsFor(r.duration*2/3, loads...), "")

	flood := load{name: "flood", rate: 1500, timeout: 2 * time.Second, call: func(ctx context.Context, n int) (string, error) {
		return second.request(ctx, http.MethodGet, "/echo", fmt.Sprintf("flood-%d", n), 2<<10)
	}}
	setPercent(1)
	flooded := r.runLoadsFor(r.duration/6, flood)[flood.name]
	setPercent(20)
	// Clients time out. A starved Weft reads their requests together with the resets, and may close
	// the connection as it does for a rapid reset. More requests can wait than the 1,024 that the
	// circuit breaker of a cluster allows.
	r.check(flooded, bounds{allowedKinds: []string{"timeout", "reset stream", "503"}, maxFailed: 1, maxLatency: 3 * time.Second})
	w.awaitNoRequests()

	const after = ", after it"
	hold(r.runLoadsFor(r.duration/6, withSuffix(loads, after)...), after)
	hangUp()
	w.checkNoLeak()
	r.drain(w, loads)
}

// limitCPU limits the CPU time of the process and returns a description of the method. setPercent
// sets the limit in percent of a CPU; it does nothing if busy loops are used.
func (r *testRun) limitCPU(pid int) (setPercent func(percent int), method string) {
	r.Helper()
	for _, kind := range []struct{ dir, file, format string }{
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "%d000"}, // the period is 100 ms by default
		{"/sys/fs/cgroup", "cpu.max", "%d000 100000"},
	} {
		group := filepath.Join(kind.dir, fmt.Sprintf("weft-chaos-%d", pid))
		if os.Mkdir(group, 0o700) != nil {
			continue // this version of control groups does not exist or is not writable
		}
		process := []byte(strconv.Itoa(pid))
		r.Cleanup(func() {
			// Move the process out, if it still exists: a group with processes cannot be removed.
			_ = os.WriteFile(filepath.Join(kind.dir, "cgroup.procs"), process, 0)
			_ = os.Remove(group)
		})
		write := func(percent int) error {
			return os.WriteFile(filepath.Join(group, kind.file), fmt.Appendf(nil, kind.format, percent), 0)
		}
		if write(100) != nil || os.WriteFile(filepath.Join(group, "cgroup.procs"), process, 0) != nil {
			continue
		}
		return func(percent int) {
			if err := write(percent); err != nil {
				r.Error(err)
			}
		}, "control group " + group
	}
	for range 2 * runtime.NumCPU() {
		self, err := os.Executable()
		if err != nil {
			r.Fatal(err)
		}
		loop := exec.Command(self)
		loop.Env = append(os.Environ(), busyEnv+"=1", "GOMAXPROCS=1")
		loop.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := loop.Start(); err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() {
			_ = loop.Process.Kill() // it runs until it is killed
			_ = loop.Wait()
		})
	}
	return func(int) {}, fmt.Sprintf("%d loops on %d processors", 2*runtime.NumCPU(), runtime.NumCPU())
}

// burnCPU runs a process that uses a CPU until it is killed.
func burnCPU() {
	for n := uint(1); n != 0; n |= 1 {
		n *= 3
	}
}
