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
	webAddr, rpcAddr := freeAddress(), freeAddress()
	w := r.newWeft(setup{
		listeners: list{listener("web", webAddr, "Auto"), listener("dubbo", rpcAddr, "dubbo")},
		tables:    list{routeTable("web", route("/", "page")), routeTable("dubbo", route("/", "rpc"))},
		clusters:  list{cluster("page", []string{addrs.http}), cluster("rpc", []string{addrs.rpc})},
	}, nil, nil)
	http1, http2, rpc := r.newHTTPClient(webAddr, false, plainDial), r.newHTTPClient(webAddr, true, plainDial), r.newDubboClient(rpcAddr, plainDial)
	loads := []load{
		http1.getLoad("http1", "/echo", 60), http2.getLoad("http2", "/echo", 60), http2.grpcLoad("grpc", 60), rpc.callLoad("dubbo", 60),
		http2.getLoad("http2-slow", "/echo?wait=1500", 5),
	}
	closeConns := func() {
		http1.transport.CloseIdleConnections()
		http2.transport.CloseIdleConnections()
		rpc.close()
	}
	w.warmUp(closeConns, loads...)

	setPercent, method := r.limitCPU(w.cmd.Process.Pid)
	r.Log(method)
	setPercent(20)
	checkLatencies := func(results map[string]*loadResult, suffix string) {
		r.Helper()
		for _, name := range []string{"http1", "http2", "grpc", "dubbo"} {
			r.check(results[name+suffix], bounds{p50: 60 * time.Millisecond, p99: 700 * time.Millisecond})
		}
		r.check(results["http2-slow"+suffix], bounds{p99: slowCall + 700*time.Millisecond})
	}
	checkLatencies(r.runLoadsFor(r.duration*2/3, loads...), "")

	flood := load{name: "flood", rate: 1500, timeout: 2 * time.Second, call: func(ctx context.Context, n int) (string, error) {
		return http2.request(ctx, http.MethodGet, "/echo", fmt.Sprintf("flood-%d", n), 2<<10)
	}}
	setPercent(1)
	flooded := r.runLoadsFor(r.duration/6, flood)[flood.name]
	setPercent(20)
	// The clients time out and reset their streams. A starved Weft reads requests together with the
	// resets, and may close the connection as it does for a rapid reset. Weft responds with 503 to
	// requests beyond the 1,024 that the circuit breaker of a cluster allows.
	r.check(flooded, bounds{allowedKinds: []string{"timeout", "reset stream", "503"}, maxFailed: 1, maxLatency: 3 * time.Second})
	w.awaitNoRequests()

	const after = ", after the overload"
	checkLatencies(r.runLoadsFor(r.duration/6, withSuffix(loads, after)...), after)
	closeConns()
	w.checkNoLeak()
	r.drain(w, loads)
}

// limitCPU limits the CPU time of the process and returns a description of the method. setPercent
// sets the limit in percent of a CPU; it does nothing if busy loops are used.
func (r *testRun) limitCPU(pid int) (setPercent func(percent int), method string) {
	r.Helper()
	for _, cgroup := range []struct{ dir, file, format string }{
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "%d000"}, // the period is 100 ms by default
		{"/sys/fs/cgroup", "cpu.max", "%d000 100000"},
	} {
		group := filepath.Join(cgroup.dir, fmt.Sprintf("weft-chaos-%d", pid))
		if os.Mkdir(group, 0o700) != nil {
			continue // this version of control groups does not exist or is not writable
		}
		process := []byte(strconv.Itoa(pid))
		r.Cleanup(func() {
			// Move the process out, if it still exists: a group with processes cannot be removed.
			_ = os.WriteFile(filepath.Join(cgroup.dir, "cgroup.procs"), process, 0)
			_ = os.Remove(group)
		})
		write := func(percent int) error {
			return os.WriteFile(filepath.Join(group, cgroup.file), fmt.Appendf(nil, cgroup.format, percent), 0)
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
		exe, err := os.Executable()
		if err != nil {
			r.Fatal(err)
		}
		loop := exec.Command(exe)
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
