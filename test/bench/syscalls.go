package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/test/bench/load"
)

// countSyscalls counts the system calls of every proxy under the row's load. It uses a separate
// run, because counting costs time.
func (env *environment) countSyscalls(ctx context.Context, r row, subjects []systemUnderTest, result *loadRow) error {
	count, tool := env.countByPerf, "perf"
	if _, err := exec.LookPath("perf"); err != nil || !tracepointsReadable() {
		if _, err := exec.LookPath("strace"); err != nil {
			env.skip("system calls: neither perf with tracepoints nor strace is available")
			return nil
		}
		count, tool = env.countByStrace, "strace, which slows the program"
	}
	for i, s := range subjects {
		if s.running == nil {
			continue
		}
		job := env.job(r, s.address, s.pids)
		calls, requests, err := count(ctx, job)
		if err != nil {
			return fmt.Errorf("system calls of %s: %w", s.name, err)
		}
		for name := range calls {
			calls[name] /= float64(requests)
		}
		c := result.Cells[i]
		c.Syscalls, c.Tool = calls, tool
		env.logf("system calls  %-12s %-8s %.2f per request", r.name, s.name, calls["all"])
	}
	return nil
}

// tracepointsReadable reports whether the tracepoints of system calls are readable.
func tracepointsReadable() bool {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(dir + "/events/raw_syscalls/sys_enter/id"); err == nil {
			return true
		}
	}
	return false
}

// tracedSyscalls lists the system calls that perf counts separately; its total in "all" also
// includes the others. strace counts each system call separately.
const tracedSyscalls = "read,write,readv,writev,recvfrom,sendto,recvmsg,sendmsg,splice," +
	"epoll_wait,epoll_pwait,epoll_ctl,futex,nanosleep,sched_yield,accept4,connect,close"

// countByPerf counts in the kernel while the load runs.
func (env *environment) countByPerf(ctx context.Context, job load.Job) (calls map[string]float64, requests uint64, err error) {
	out := filepath.Join(env.dir, "perf.csv")
	events := []string{"raw_syscalls:sys_enter"}
	for name := range splitList(tracedSyscalls) {
		events = append(events, "syscalls:sys_enter_"+name)
	}
	result, err := env.load(ctx, job, "perf", "stat", "-x", ",", "-o", out, "-e", strings.Join(events, ","), "-p", pidList(job.PIDs), "--")
	if err != nil {
		return nil, 0, err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return nil, 0, err
	}
	calls, err = parsePerf(string(text))
	return calls, result.All, err
}

// parsePerf parses lines of "count,unit,event,…".
func parsePerf(text string) (map[string]float64, error) {
	calls := map[string]float64{}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		n, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return nil, fmt.Errorf("perf counts %q of %s", fields[0], fields[2])
		}
		name := strings.TrimPrefix(fields[2], "syscalls:sys_enter_")
		if name == "raw_syscalls:sys_enter" {
			name = "all"
		}
		calls[name] = n
	}
	if calls["all"] == 0 {
		return nil, fmt.Errorf("perf reported no counts: %.200q", text)
	}
	return calls, nil
}

// countByStrace attaches strace, runs the load and parses the summary of strace.
func (env *environment) countByStrace(ctx context.Context, job load.Job) (calls map[string]float64, requests uint64, err error) {
	out := filepath.Join(env.dir, "strace.txt")
	args := []string{"-c", "-f", "-o", out}
	for _, pid := range job.PIDs {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	cmd := exec.CommandContext(ctx, "strace", args...)
	messages, err := cmd.StderrPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := env.programEnv.Launcher.Start(cmd, env.loadCPU); err != nil {
		return nil, 0, err
	}
	defer func() {
		// Errors are ignored: strace exits with the status of the signal, and parseStrace reports a
		// missing summary.
		_ = cmd.Process.Signal(syscall.SIGINT)
		_, _ = io.Copy(io.Discard, messages)
		_ = cmd.Wait()
		if err != nil {
			return
		}
		var text []byte
		if text, err = os.ReadFile(out); err == nil {
			calls, err = parseStrace(text)
		}
	}()
	if err := awaitAttached(messages, len(job.PIDs)); err != nil {
		return nil, 0, err
	}
	result, err := env.load(ctx, job)
	return nil, result.All, err
}

// awaitAttached waits until strace reports that it has attached to n processes.
func awaitAttached(messages io.ReadCloser, n int) error {
	timer := time.AfterFunc(5*time.Second, func() { _ = messages.Close() })
	defer timer.Stop()
	scanner := bufio.NewScanner(messages)
	for n > 0 {
		if !scanner.Scan() {
			return errors.New("strace has not attached")
		}
		if strings.Contains(scanner.Text(), "attached") {
			n--
		}
	}
	return nil
}

// parseStrace parses the table "% time, seconds, usecs/call, calls, errors, syscall".
func parseStrace(text []byte) (map[string]float64, error) {
	calls := map[string]float64{}
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		n, err := strconv.ParseFloat(fields[3], 64)
		if err != nil {
			continue // the heading and the rules
		}
		name := fields[len(fields)-1]
		if name == "total" {
			name = "all"
		}
		calls[name] = n
	}
	if calls["all"] == 0 {
		return nil, fmt.Errorf("strace reported no counts: %.200q", text)
	}
	return calls, nil
}
