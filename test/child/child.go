// Package child runs the other processes of a test: servers and peers, which are other
// people's programs, and Weft beside them. Each ends with the test, or with the process
// that runs it.
package child

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mostLines is how many lines of a process wait for a reader; those beyond are lost.
const mostLines = 1 << 16

// Process is a process that a test has started. Its methods may be called at once, Say but
// by one goroutine.
type Process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Writer     // of one that talks
	lines chan string   // nil: it does not talk
	ended chan struct{} // closed when it has ended
	log   tail
}

// Start runs a program until the end of the test. name is what the test calls it. If the
// test has failed by then, it shows the last that the program wrote.
func Start(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{name: name, cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout = &p.log
	p.start(t, func() {})
	return p
}

// Talk is Start of a program that takes commands from its standard input, and reports, by
// lines, on its standard output.
func Talk(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{name: name, cmd: cmd, lines: make(chan string, mostLines), ended: make(chan struct{})}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	p.start(t, func() { p.read(stdout) })
	return p
}

// start starts the process. read runs beside it, until its standard output is closed.
func (p *Process) start(t testing.TB, read func()) {
	t.Helper()
	p.cmd.Stderr = &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(p.ended)
		// The signal of the parent's death comes with the end of the thread that has
		// started the process: this one waits for it.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			read()
			_ = p.cmd.Wait() // Status tells
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the last that %s wrote:\n%s", p.name, p.Log())
		}
	})
}

func (p *Process) read(stdout io.Reader) {
	defer close(p.lines)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		select {
		case p.lines <- lines.Text():
		default:
		}
	}
}

// Name is what the test calls the process.
func (p *Process) Name() string { return p.name }

// ID is the kernel's number of the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Lines has what the process reports; it is closed when that is all.
func (p *Process) Lines() <-chan string { return p.lines }

// Say gives the process a command.
func (p *Process) Say(command string) error {
	_, err := fmt.Fprintln(p.stdin, command)
	return err
}

// Signal sends the process a signal. It is an error if it has ended.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// MustSignal sends the process a signal and ends the test if that fails.
func (p *Process) MustSignal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := p.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Await polls ready every interval until it returns true. It ends the test if the process
// exits first, or if ready is still false after timeout.
func (p *Process) Await(t testing.TB, timeout, interval time.Duration, ready func() bool) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for !ready() {
		select {
		case <-p.ended:
			t.Fatalf("%s exited:\n%s", p.name, p.Log())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready after %v:\n%s", p.name, timeout, p.Log())
		}
		time.Sleep(interval)
	}
}

// Kill ends the process without a farewell, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Status is what the process has ended with; below 0: it was killed. It is called after
// Ended.
func (p *Process) Status() int { return p.cmd.ProcessState.ExitCode() }

// Log returns the end of what the process wrote, its reports left out.
func (p *Process) Log() string { return p.log.String() }

// tail is the end of a text. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	data []byte // guarded by mu
}

// mostKept is what of a log is shown: a failed test has several processes.
const mostKept = 4 << 10

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	if len(l.data) > 2*mostKept {
		l.data = append(l.data[:0], l.data[len(l.data)-mostKept:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.TrimSpace(l.data[max(0, len(l.data)-mostKept):]))
}
