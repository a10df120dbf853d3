package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/netns"
)

// TestQuickStart runs the commands of README.md and checks the output that it promises.
func TestQuickStart(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the commands of the page need curl")
	}
	page, _, found := bytes.Cut(page, []byte(dubboStart))
	if !found {
		t.Fatal("README.md lacks the Dubbo quick start")
	}
	start := regexp.MustCompile(`(?m)^go run \./cmd/weft (start.*)$`).FindSubmatch(page)
	check := regexp.MustCompile(`(?m)^go run \./cmd/weft (check.*)$`).FindSubmatch(page)
	curls := regexp.MustCompile(`(?m)^curl ([^#\n]+)`).FindAllSubmatch(page, -1)
	if start == nil || check == nil || len(curls) < 3 {
		t.Fatalf("README.md shows %d start, %d check and %d curl commands; want 1, 1 and at least 3", len(start), len(check), len(curls))
	}
	for name, args := range map[string][]string{
		"with the commands of the page": strings.Fields(string(start[1])),
		"without arguments":             {"start"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "127.0.0.1:2045", "127.0.0.1:2046", "127.0.0.1:2047", "127.0.0.1:34901")
			w := launchWeft(t, launchOptions{args: args, dir: root, shell: m.shell()})
			w.stdout.await(t, 0, "Then:")
			checkStartupOutput(t, w.stdout.String())
			for i, command := range curls {
				out, err := m.command("curl", append([]string{"-sf"}, strings.Fields(string(command[1]))...)...).CombinedOutput()
				if err != nil {
					t.Fatalf("curl %s: %v\n%s", command[1], err, out)
				}
				if want := "Hello from the application, through two Wefts.\n"; i == 0 && (!strings.HasPrefix(string(out), "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(string(out), want)) {
					t.Errorf("curl %s:\n%s\nwant 200 and %q", command[1], out, want)
				}
				if i > 0 && len(out) == 0 {
					t.Errorf("curl %s: no output", command[1])
				}
			}
			w.stdout.await(t, 0, " 200 ") // access log of the first Weft
		})
	}
	if _, stderr, status := command(t, strings.Fields(string(check[1]))...); status != 0 {
		t.Errorf("weft %s: exit status %d\n%s", check[1], status, stderr)
	}
}

// checkStartupOutput checks that output has the addresses and the first command to try.
func checkStartupOutput(t *testing.T, output string) {
	t.Helper()
	first, rest, _ := strings.Cut(output, "\n")
	if !strings.HasPrefix(first, "weft ") || !strings.HasSuffix(first, "is ready: 3 listeners, 2 clusters") {
		t.Errorf("the first line is %q, want prefix \"weft \", suffix \"is ready: 3 listeners, 2 clusters\"", first)
	}
	for _, want := range []string{
		"127.0.0.1:2045", "127.0.0.1:2046", "127.0.0.1:2047", "127.0.0.1:34901",
		"Try:    curl -i http://127.0.0.1:2045/\n",
		`Expect: HTTP/1.1 200 OK and "Hello from the application, through two Wefts."`,
	} {
		if !strings.Contains(rest, want) {
			t.Errorf("the startup output lacks %q:\n%s", want, rest)
		}
	}
}

// machine runs the commands of a quick start in a network namespace, because their ports are fixed.
// If namespace is nil, the commands run on the machine itself.
type machine struct{ namespace *netns.Namespace }

// newMachine returns a network namespace, where all ports are free. Without root privileges
// or the program ip, it waits until the addresses are free on the machine itself.
func newMachine(t *testing.T, addresses ...string) machine {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		awaitFreeAddresses(t, addresses...)
		return machine{}
	}
	return machine{netns.New(t).Namespace("start")}
}

// shell returns the value of launchOptions.shell.
func (m machine) shell() string {
	if m.namespace == nil {
		return ""
	}
	return fmt.Sprintf(`exec ip netns exec %s "$@"`, m.namespace.Name())
}

func (m machine) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	if m.namespace != nil {
		c = m.namespace.Command(program, args...)
	}
	c.Dir = root
	return c
}

// awaitFreeAddresses waits until the addresses are free, because another quick start may use them.
// It skips the test after waitTimeout.
func awaitFreeAddresses(t *testing.T, addresses ...string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(waitTimeout)
	for _, a := range addresses {
		for {
			l, err := net.Listen("tcp", a)
			if err == nil {
				_ = l.Close() // only checks that the port is free
				break
			}
			select {
			case <-tick.C:
			case <-timeout:
				t.Skipf("the port of the quick start is in use: %v", err)
			}
		}
	}
}

// dubboStart is the start of the Dubbo part of README.md.
const dubboStart = "**Dubbo, without a registry client.**"

// TestDubboQuickStart runs the Dubbo commands of README.md.
func TestDubboQuickStart(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the commands of the page need curl")
	}
	_, page, _ = bytes.Cut(page, []byte(dubboStart))
	page, _, _ = bytes.Cut(page, []byte("Run everything"))
	starts := regexp.MustCompile(`(?m)^go run \./cmd/weft (start.*)$`).FindAllSubmatch(page, -1)
	explain := regexp.MustCompile(`(?m)^go run \./cmd/weft (explain.*)$`).FindSubmatch(page)
	curls := regexp.MustCompile(`(?m)^curl .*$`).FindAll(page, -1)
	if len(starts) != 2 || explain == nil || len(curls) != 2 {
		t.Fatalf("README.md shows %d start and %d curl commands, and explain: %q; want 2, 2 and a command", len(starts), len(curls), explain)
	}
	m := newMachine(t, "127.0.0.1:20080", "127.0.0.1:20881", "127.0.0.1:22222", "127.0.0.1:22223", "127.0.0.1:34940", "127.0.0.1:34941")
	dir := t.TempDir()
	for _, start := range starts {
		w := launchWeft(t, launchOptions{args: strings.Fields(string(start[1])), dir: root, shell: m.shell(), env: []string{
			"REGISTRY_ADDRESS=file:" + filepath.Join(dir, "registry"), "STATE_DIR=" + dir,
		}})
		w.awaitReady()
	}
	for _, command := range curls {
		out, err := m.command("sh", "-c", string(command)).Output()
		if err != nil || !strings.Contains(string(out), `{"err_no":0,`) {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	binary, err := plainBinary()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the consumer's sidecar has discovered the provider's sidecar", func() bool {
		out, _ := m.command(binary, strings.Fields(string(explain[1]))...).Output() // fails until Weft has discovered the service
		return strings.Contains(string(out), "host 127.0.0.1:20080")
	})
}
