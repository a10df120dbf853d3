package child

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestProcessReceivesCommandsAndReports(t *testing.T) {
	p := StartInteractive(t, "echo process", exec.Command("cat"))
	if err := p.Send("hello"); err != nil {
		t.Fatal(err)
	}
	if line := <-p.Lines(); line != "hello" {
		t.Errorf("reported %q, want %q", line, "hello")
	}
	p.Kill()
	if _, open := <-p.Lines(); open {
		t.Error("got a line after exit, want a closed channel")
	}
	p.Kill() // a second call does nothing
}

func TestExitCodeAndSignals(t *testing.T) {
	p := Start(t, "failing process", exec.Command("sh", "-c", "echo out; echo err >&2; exit 3"))
	<-p.Done()
	if status, log := p.ExitCode(), p.Log(); status != 3 || log != "out\nerr" {
		t.Errorf("exit code %d, output %q; want 3, %q", status, log, "out\nerr")
	}
	if err := p.Signal(syscall.SIGTERM); err == nil {
		t.Error("Signal to an exited process = nil, want an error")
	}
}

func TestTailBufferKeepsEnd(t *testing.T) {
	var b tailBuffer
	for range 10 {
		if n, err := b.Write([]byte(strings.Repeat("x", maxTail/2) + "\n")); n != maxTail/2+1 || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = b.Write([]byte("the last\n")) // never fails
	if text := b.String(); len(text) > maxTail || !strings.HasSuffix(text, "x\nthe last") {
		t.Errorf("kept %d bytes, which end with %q; want at most %d bytes and the last line", len(text), text[len(text)-10:], maxTail)
	}
}
