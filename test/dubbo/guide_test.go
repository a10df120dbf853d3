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

// command is a block of the page's part about ZooKeeper, perhaps one that goes on in the
// background, and perhaps followed by what it prints.
var command = regexp.MustCompile("(?ms)^```sh zookeeper( background)?\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")

// TestGuide does what docs/dubbo.md says of ZooKeeper and Dubbo in Java, as test/docs does
// the rest of the page. The peers are built already, and what would be in /tmp is in a
// folder of the test's.
func TestGuide(t *testing.T) {
	begin(t)
	netns.Need(t, "curl", "java", "go")
	if _, err := os.Stat("/usr/share/java/zookeeper.jar"); err != nil {
		t.Skipf("no ZooKeeper: %v", err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "dubbo.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("STATE_DIR", dir)
	here := strings.NewReplacer("/tmp/weft-peers", os.Getenv(javaKey), "/tmp/", dir+"/")
	found := command.FindAllSubmatch(page, -1)
	if len(found) < 8 {
		t.Fatalf("the page shows %d commands", len(found))
	}
	for _, f := range found {
		text, prints := here.Replace(strings.TrimSpace(string(f[2]))), strings.TrimSpace(string(f[3]))
		if strings.HasPrefix(text, "mvn ") {
			continue
		}
		if len(f[1]) > 0 {
			out := keep(t, text)
			if strings.Contains(text, "weft start") {
				// Dubbo 3 takes a port more that is free, which is not to be the sidecar's.
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
			if err != nil || !shows(string(out), prints) {
				return fmt.Sprintf("%s: it prints %s, want %s: %v", text, out, prints, err)
			}
			return ""
		})
	}
}

// shows reports whether what was printed has what the page shows of it, in that order. An
// ellipsis stands for anything.
func shows(printed, page string) bool {
	for part := range strings.SplitSeq(page, "…") {
		at := strings.Index(printed, part)
		if at < 0 {
			return false
		}
		printed = printed[at+len(part):]
	}
	return true
}

func shell(text string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", text)
	cmd.Dir = root
	return cmd
}

// keep runs a command, and what that starts, until the test ends, and returns what it
// writes.
func keep(t *testing.T, text string) *subject.Journal {
	t.Helper()
	cmd, out := shell(text), subject.NewJournal()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // "go run" passes no signals on
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                                      // by the signal
		if t.Failed() {
			t.Logf("%s: %s", text, out)
		}
	})
	return out
}
