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

	originStdin io.Closer // stdin of the origin, which exits when it is closed
	origin      *exec.Cmd
}

// newEnvironment finds or builds the programs and starts the origin.
func newEnvironment(ctx context.Context, o options) (b *environment, err error) {
	b = &environment{options: o, waitBudget: o.waitBudget, report: newReport(ctx, o), controlPlanes: newControlPlanes()}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.executable, err = os.Executable(); err != nil {
		return b, err
	}
	if b.dir, err = os.MkdirTemp("", "weft-bench-"); err != nil {
		return b, err
	}
	if err := b.findPrograms(ctx); err != nil { // before this process is pinned: a build uses all CPUs
		return b, err
	}
	if err := b.pin(); err != nil {
		return b, err
	}
	const others = 2048 // descriptors in addition to those of idle connections
	files, err := process.RaiseFiles(uint64(o.idle + others))
	if err != nil {
		return b, err
	}
	if maximum := int(files) - others; b.options.idle > maximum {
		b.skip(fmt.Sprintf("row %s: %d connections instead of %d, for %d files may be open", idleRow, maximum, b.options.idle, files))
		b.options.idle = maximum
	}
	return b, b.startOrigin(ctx)
}

// pin assigns the first CPU to this process, the load and the origin, and the second one to the
// measured program.
func (b *environment) pin() error {
	cpus, err := process.CPUs()
	if err != nil {
		return err
	}
	b.loadCPU, b.proxyCPU = cpus[0], cpus[0]
	if len(cpus) > 1 {
		b.proxyCPU = cpus[1]
	} else {
		b.skip("a separate CPU for the proxy: there is only one, so times include the cache effects of load and origin")
	}
	return process.PinSelf(b.loadCPU)
}

func (b *environment) startOrigin(ctx context.Context) error {
	free := peer.NewPorts()
	ports, err := free.Take(1)
	if err != nil {
		return err
	}
	certificates := certs.Dir(b.dir)
	if err := certificates.Write(); err != nil {
		return err
	}
	launcher := process.NewLauncher()
	b.programEnv = &peer.Environment{
		Launcher: launcher, CPU: b.proxyCPU, Ports: free, Dir: b.dir, Origin: ports[0],
		Certificates: certificates,
		Connections:  b.options.idle, Profile: b.options.profile != "",
	}
	cmd := exec.Command(b.executable, "origin", ports[0].String())
	cmd.Env = childEnv()
	cmd.Stderr = os.Stderr
	if b.originStdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := launcher.Start(cmd, b.loadCPU); err != nil {
		return fmt.Errorf("start the origin: %w", err)
	}
	b.origin = cmd
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

// childEnv returns the environment of the load generator and the origin: a single processor without
// garbage collection or asynchronous preemption.
func childEnv() []string {
	return append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=512MiB", "GODEBUG=asyncpreemptoff=1")
}

// close stops the origin and removes the temporary directory. The code that starts a program stops
// it.
func (b *environment) close() {
	b.controlPlanes.close()
	if b.origin != nil {
		_ = b.originStdin.Close()
		// The origin was asked to stop; its exit status does not matter.
		_ = b.origin.Wait()
	}
	if b.programEnv != nil {
		b.programEnv.Launcher.Close()
	}
	if b.dir != "" {
		if err := os.RemoveAll(b.dir); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

// skip prints a part that this run does not measure and adds it to the report, once per text.
func (b *environment) skip(reason string) {
	if slices.Contains(b.report.Skipped, reason) {
		return
	}
	fmt.Fprintln(os.Stderr, "SKIPPED", reason)
	b.report.Skipped = append(b.report.Skipped, reason)
}

// logf prints progress to stderr.
func (b *environment) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// run measures all rows.
func (b *environment) run(ctx context.Context) (*report, error) {
	var loads []row
	for _, r := range rows() {
		if slices.Contains(b.options.rows, r.name) {
			loads = append(loads, r)
		}
	}
	if len(loads) > 0 {
		if err := b.runLoads(ctx, loads); err != nil {
			return nil, err
		}
	}
	if slices.Contains(b.options.rows, idleRow) {
		if err := b.runIdle(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(b.options.rows, rpcIdleRow) {
		if err := b.runRPCIdle(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(b.options.rows, inflightRow) {
		if err := b.runInflight(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(b.options.rows, http2IdleRow) {
		if err := b.runHTTP2Idle(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(b.options.rows, http2StreamsRow) {
		if err := b.runHTTP2Streams(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(b.options.rows, scaleRow) {
		if err := b.runScale(ctx); err != nil {
			return nil, err
		}
	}
	b.report.fillVerdicts()
	return b.report, nil
}

// load runs a job in a separate process on the CPU of load and origin. The arguments of wrapper, if
// any, precede its command line.
func (b *environment) load(ctx context.Context, job load.Job, wrapper ...string) (load.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, job.Warmup+job.Measure+time.Minute)
	defer cancel()
	text, err := json.Marshal(job)
	if err != nil {
		return load.Result{}, err
	}
	texts := append(slices.Clone(wrapper), b.executable, "load")
	cmd := exec.CommandContext(ctx, texts[0], texts[1:]...)
	cmd.Env = childEnv()
	cmd.Stdin = bytes.NewReader(text)
	var out, message bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &message
	if err := b.programEnv.Launcher.Start(cmd, b.loadCPU); err != nil {
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
func (b *environment) job(r row, address netip.AddrPort, pids []int) load.Job {
	return load.Job{
		Address: address, Connections: r.connections,
		Protocol: r.loadProtocol(), Depth: r.depth, Request: r.request, Body: r.body,
		Warmup:  time.Duration(b.options.warmup * float64(time.Second)),
		Measure: time.Duration(b.options.seconds * float64(time.Second)),
		PIDs:    pids, Certificates: b.programEnv.Certificates,
		CPUs:    []int{b.loadCPU, b.proxyCPU},
		Helpers: []int{b.origin.Process.Pid},
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
