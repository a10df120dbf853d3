package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/weft-proxy/weft/test/bench/certs"
	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/peer"
	"github.com/weft-proxy/weft/test/bench/process"
)

// environment is the environment of one run: the CPUs, the origin and the programs. The caller
// closes it.
type environment struct {
	options       options
	executable    string // path of this executable, which also runs the roles
	dir           string // temporary directory
	proxyCPU      int
	loadCPU       int
	programEnv    *peer.Environment
	programs      []peer.Program // in the order of -proxies; without direct
	report        *report
	waitBudget    time.Duration // remaining part of options.waitBudget
	controlPlanes *controlPlanes

	originStdin io.Closer // stdin of the origin; the origin exits when stdin is closed
	origin      *exec.Cmd
}

// newEnvironment finds or builds the programs and starts the origin.
func newEnvironment(ctx context.Context, o options) (env *environment, err error) {
	env = &environment{options: o, waitBudget: o.waitBudget, report: newReport(ctx, o), controlPlanes: newControlPlanes()}
	defer func() {
		if err != nil {
			env.close()
		}
	}()
	if env.executable, err = os.Executable(); err != nil {
		return env, err
	}
	if env.dir, err = os.MkdirTemp("", "weft-bench-"); err != nil {
		return env, err
	}
	if err := env.findPrograms(ctx); err != nil { // before this process is pinned: a build uses all CPUs
		return env, err
	}
	if err := env.pin(); err != nil {
		return env, err
	}
	const reservedFiles = 2048 // descriptors in addition to those of idle connections
	files, err := process.RaiseFiles(uint64(o.idle + reservedFiles))
	if err != nil {
		return env, err
	}
	if maximum := int(files) - reservedFiles; env.options.idle > maximum {
		env.skip(fmt.Sprintf("row %s: %d connections instead of %d, because at most %d files may be open", idleRow, maximum, env.options.idle, files))
		env.options.idle = maximum
	}
	return env, env.startOrigin(ctx)
}

// pin assigns the first CPU to this process, the load and the origin, and the second one to the
// measured program.
func (env *environment) pin() error {
	cpus, err := process.CPUs()
	if err != nil {
		return err
	}
	env.loadCPU, env.proxyCPU = cpus[0], cpus[0]
	if len(cpus) > 1 {
		env.proxyCPU = cpus[1]
	} else {
		env.skip("a separate CPU for the proxy: there is only one, so times include the cache effects of load and origin")
	}
	return process.PinSelf(env.loadCPU)
}

func (env *environment) startOrigin(ctx context.Context) error {
	allPorts := peer.NewPorts()
	ports, err := allPorts.Take(1)
	if err != nil {
		return err
	}
	certificates := certs.Dir(env.dir)
	if err := certificates.Write(); err != nil {
		return err
	}
	launcher := process.NewLauncher()
	env.programEnv = &peer.Environment{
		Launcher: launcher, CPU: env.proxyCPU, Ports: allPorts, Dir: env.dir, Origin: ports[0],
		Certificates: certificates,
		Connections:  env.options.idle, Profile: env.options.profile != "",
	}
	cmd := exec.Command(env.executable, "origin", ports[0].String())
	cmd.Env = childEnv()
	cmd.Stderr = os.Stderr
	if env.originStdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := launcher.Start(cmd, env.loadCPU); err != nil {
		return fmt.Errorf("start the origin: %w", err)
	}
	env.origin = cmd
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	probe := peer.HTTP("/b/1", 200)
	for {
		if probe(ports[0]) == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("start the origin: no response: %w", ctx.Err())
		}
	}
}

// childEnv returns the environment of the load generator and the origin: a single processor, no
// asynchronous preemption, and no garbage collection below 512 MiB.
func childEnv() []string {
	return append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=512MiB", "GODEBUG=asyncpreemptoff=1")
}

// close stops the origin and removes the temporary directory. It does not stop programs: the code
// that starts a program stops it.
func (env *environment) close() {
	env.controlPlanes.close()
	if env.origin != nil {
		_ = env.originStdin.Close()
		// The origin was asked to stop; its exit status does not matter.
		_ = env.origin.Wait()
	}
	if env.programEnv != nil {
		env.programEnv.Launcher.Close()
	}
	if env.dir != "" {
		if err := os.RemoveAll(env.dir); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

// skip prints what this run does not measure, and why, and adds the text to the report. A repeated
// text has no effect.
func (env *environment) skip(reason string) {
	if slices.Contains(env.report.Skipped, reason) {
		return
	}
	fmt.Fprintln(os.Stderr, "SKIPPED", reason)
	env.report.Skipped = append(env.report.Skipped, reason)
}

// logf prints progress to stderr.
func (env *environment) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// run measures all rows.
func (env *environment) run(ctx context.Context) (*report, error) {
	var loads []row
	for _, r := range rows() {
		if slices.Contains(env.options.rows, r.name) {
			loads = append(loads, r)
		}
	}
	if len(loads) > 0 {
		if err := env.runLoads(ctx, loads); err != nil {
			return nil, err
		}
	}
	if slices.Contains(env.options.rows, idleRow) {
		if err := env.runIdle(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(env.options.rows, rpcIdleRow) {
		if err := env.runRPCIdle(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(env.options.rows, inflightRow) {
		if err := env.runInflight(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(env.options.rows, http2IdleRow) {
		if err := env.runHTTP2Idle(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(env.options.rows, http2StreamsRow) {
		if err := env.runHTTP2Streams(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(env.options.rows, scaleRow) {
		if err := env.runScale(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(env.options.rows, bootstrapScaleRow) {
		if err := env.runBootstrapScale(ctx); err != nil {
			return nil, err
		}
	}
	env.report.fillVerdicts()
	return env.report, nil
}

// load runs a job in a separate process on the CPU of load and origin. The arguments of wrapper, if
// any, precede its command line.
func (env *environment) load(ctx context.Context, job load.Job, wrapper ...string) (load.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, job.Warmup+job.Measure+time.Minute)
	defer cancel()
	text, err := json.Marshal(job)
	if err != nil {
		return load.Result{}, err
	}
	args := append(slices.Clone(wrapper), env.executable, "load")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = childEnv()
	cmd.Stdin = bytes.NewReader(text)
	var out, message bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &message
	if err := env.programEnv.Launcher.Start(cmd, env.loadCPU); err != nil {
		return load.Result{}, fmt.Errorf("start the load: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return load.Result{}, errors.Join(fmt.Errorf("%w: %s", err, bytes.TrimSpace(message.Bytes())), ctx.Err())
	}
	var result load.Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return load.Result{}, fmt.Errorf("read the result of the load: %w", err)
	}
	return result, nil
}

// job returns a closed-loop job of the row against the address.
func (env *environment) job(r row, address netip.AddrPort, pids []int) load.Job {
	return load.Job{
		Address: address, Connections: r.connections,
		Protocol: r.loadProtocol(), Depth: r.depth, Request: r.request, Body: r.body,
		Warmup:  time.Duration(env.options.warmup * float64(time.Second)),
		Measure: time.Duration(env.options.seconds * float64(time.Second)),
		PIDs:    pids, Certificates: env.programEnv.Certificates,
		CPUs:    []int{env.loadCPU, env.proxyCPU},
		Helpers: []int{env.origin.Process.Pid},
	}
}

func pidList(pids []int) string {
	var list []byte
	for i, pid := range pids {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, int64(pid), 10)
	}
	return string(list)
}
