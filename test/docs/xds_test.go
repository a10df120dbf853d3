package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/netns"
)

// command matches a fenced shell block, optionally one that runs in the background, and optionally
// followed by its expected output.
var command = regexp.MustCompile("(?ms)^```sh( background)?\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")

// TestXDSPage runs the commands of docs/xds.md.
func TestXDSPage(t *testing.T) { runPage(t, "docs/xds.md") }

// runPage runs the commands of a page in order, in a network namespace whose ports are all free.
func runPage(t *testing.T, name string) {
	page, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	machine := netns.New(t).Namespace("host")
	commands := command.FindAllSubmatch(page, -1)
	if len(commands) < 4 {
		t.Fatalf("%s has %d commands, want at least 4", name, len(commands))
	}
	for _, match := range commands {
		background, text, wantOutput := len(match[1]) > 0, strings.TrimSpace(string(match[2])), string(match[3])
		cmd := machine.Command("sh", "-c", "exec "+text)
		cmd.Dir = root
		if background {
			startInBackground(t, cmd)
			continue
		}
		netns.RequirePrograms(t, strings.Fields(text)[0])
		eventually(t, func() error {
			retry := machine.Command("sh", "-c", "exec "+text)
			retry.Dir = root
			out, err := retry.Output()
			if err == nil && wantOutput != "" && string(out) != wantOutput {
				err = fmt.Errorf("output %q, want %q", out, wantOutput)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
			return nil
		})
	}
}

// startInBackground runs a command, and the processes it starts, until the test ends.
func startInBackground(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // "go run" does not forward signals
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // the process may have exited
		_ = cmd.Wait()                                      // a signal stopped it
		if t.Failed() {
			t.Logf("%v: %s", cmd.Args, &out)
		}
	})
}

// eventually calls f until it returns nil, and fails the test after two minutes. Commands in the
// background may take that long, because "go run" compiles first.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}
