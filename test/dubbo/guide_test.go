package dubbo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-proxy/weft/test/netns"
	"github.com/weft-proxy/weft/test/subject"
)

// commandBlockPattern matches a block of the page's ZooKeeper section, optionally one that runs in
// the background, and optionally followed by its expected output.
var commandBlockPattern = regexp.MustCompile("(?ms)^```sh zookeeper( background)?\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")

// TestGuide runs the commands of docs/dubbo.md about ZooKeeper and Dubbo in Java; test/docs runs
// the rest of the page. The peers are already built, and a temporary directory replaces /tmp.
func TestGuide(t *testing.T) {
	skipUnlessReady(t)
	netns.RequirePrograms(t, "curl", "java", "go")
	if _, err := os.Stat("/usr/share/java/zookeeper.jar"); err != nil {
		t.Skipf("no ZooKeeper: %v", err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "dubbo.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("STATE_DIR", dir)
	replacer := strings.NewReplacer("/tmp/weft-peers", os.Getenv(javaEnv), "/tmp/", dir+"/")
	commands := commandBlockPattern.FindAllSubmatch(page, -1)
	if len(commands) < 8 {
		t.Fatalf("the page has %d commands, want at least 8", len(commands))
	}
	for _, match := range commands {
		text, wantOutput := replacer.Replace(strings.TrimSpace(string(match[2]))), strings.TrimSpace(string(match[3]))
		if strings.HasPrefix(text, "mvn ") {
			continue
		}
		if len(match[1]) > 0 {
			out := startInBackground(t, text)
			if strings.Contains(text, "weft start") {
				// Dubbo 3 takes an additional free port, which must not be one of the sidecar's.
				eventually(t, func() string {
					if !strings.Contains(out.String(), "is ready") {
						return text + " is not ready: " + out.String()
					}
					return ""
				})
			}
			continue
		}
		eventually(t, func() string {
			out, err := shell(text).Output()
			if err != nil || !outputMatches(string(out), wantOutput) {
				return fmt.Sprintf("%s prints %s, want %s: %v", text, out, wantOutput, err)
			}
			return ""
		})
	}
}

// outputMatches reports whether the output contains the text of the page, in order. An ellipsis in
// the page matches anything.
func outputMatches(printed, page string) bool {
	for part := range strings.SplitSeq(page, "…") {
		i := strings.Index(printed, part)
		if i < 0 {
			return false
		}
		printed = printed[i+len(part):]
	}
	return true
}

func shell(text string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", text)
	cmd.Dir = root
	return cmd
}

// startInBackground runs a command, and the processes it starts, until the test ends. It returns
// the output of the command.
func startInBackground(t *testing.T, text string) *subject.LogBuffer {
	t.Helper()
	cmd, out := shell(text), subject.NewLogBuffer()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // "go run" does not forward signals
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // the process may have exited
		_ = cmd.Wait()                                      // a signal stopped it
		if t.Failed() {
			t.Logf("%s: %s", text, out)
		}
	})
	return out
}
