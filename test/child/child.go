// Package child runs the child processes of a test: third-party servers and peers, and Weft. A
// child ends with the test, or with the process that runs the test.
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

// maxLines is the maximum number of buffered lines of a process. Process drops further lines.
const maxLines = 1 << 16

// Process is a process that a test has started. Its methods are safe for concurrent use, except
// that only one goroutine may call Send.
type Process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Writer     // nil for a process started by Start
	lines  chan string   // lines of stdout; nil for a process started by Start
	done   chan struct{} // closed when the process has exited
	output tailBuffer
}

// Start runs a program until the end of the test. Messages call the program name. If the test
// fails, its log includes the end of the program's output.
func Start(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout = &p.output
	p.start(t, func() {})
	return p
}

// StartInteractive is Start for a program that reads commands from stdin and reports lines on
// stdout.
func StartInteractive(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{name: name, cmd: cmd, lines: make(chan string, maxLines), done: make(chan struct{})}
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

// start starts the process, and calls read, which returns when stdout is closed.
func (p *Process) start(t testing.TB, read func()) {
	t.Helper()
	p.cmd.Stderr = &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// Pdeathsig fires when the thread that started the process ends, so this goroutine keeps
		// the thread until the process exits.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			read()
			_ = p.cmd.Wait() // ExitCode has the result
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("end of the output of %s:\n%s", p.name, p.Log())
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

// Name returns the name that the test gave to the process.
func (p *Process) Name() string { return p.name }

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Lines returns a channel of the lines that the process writes to stdout. The channel is closed
// after the last line. Lines returns nil if Start started the process.
func (p *Process) Lines() <-chan string { return p.lines }

// Send sends the process a command.
func (p *Process) Send(command string) error {
	_, err := fmt.Fprintln(p.stdin, command)
	return err
}

// Signal sends a signal. It returns an error if the process has exited.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// MustSignal sends a signal and fails the test on an error.
func (p *Process) MustSignal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := p.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Await polls ready every interval until it returns true. It fails the test if the process exits
// first, or if ready is still false after timeout.
func (p *Process) Await(t testing.TB, timeout, interval time.Duration, ready func() bool) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for !ready() {
		select {
		case <-p.done:
			t.Fatalf("%s exited:\n%s", p.name, p.Log())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready after %v:\n%s", p.name, timeout, p.Log())
		}
		time.Sleep(interval)
	}
}

// Kill kills the process and returns when it has exited.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // the process may have exited
	<-p.done
}

// Done returns a channel that is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code, or -1 if a signal killed the process. Call it after Done is
// closed.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Log returns the end of the output: stderr, and stdout unless Lines returns it.
func (p *Process) Log() string { return p.output.String() }

// tailBuffer keeps the end of a text. It is safe for concurrent use.
type tailBuffer struct {
	mu   sync.Mutex
	data []byte // guarded by mu
}

// maxTail is the maximum size of a log in a test failure: a test may have several processes.
const maxTail = 4 << 10

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	if len(b.data) > 2*maxTail {
		b.data = append(b.data[:0], b.data[len(b.data)-maxTail:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.TrimSpace(b.data[max(0, len(b.data)-maxTail):]))
}
