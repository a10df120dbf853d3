package interop

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/child"
	"github.com/weft-proxy/weft/test/ports"
)

// waitTimeout is the timeout of a step that should complete quickly. A JVM may start slowly on a
// busy machine.
const waitTimeout = 60 * time.Second

// peer is a process that reads commands from standard input and writes reports to standard output.
// It exits when standard input ends.
type peer struct{ *child.Process }

// start runs a program until the end of the test. When a peer is ready, it writes "ready …" as its
// first line.
func start(t *testing.T, name string, program string, args ...string) *peer {
	t.Helper()
	return &peer{child.StartInteractive(t, name, exec.Command(program, args...))}
}

// awaitReady waits until the process is ready.
func (p *peer) awaitReady(t *testing.T) {
	t.Helper()
	if line := p.nextLine(t, waitTimeout); !strings.Contains(line, "ready") {
		t.Fatalf("%s begins with %q, want \"ready\"", p.Name(), line)
	}
}

// nextLine returns the next line of the process's standard output.
func (p *peer) nextLine(t *testing.T, d time.Duration) string {
	t.Helper()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case line, open := <-p.Lines():
		if !open {
			t.Fatalf("%s has ended:\n%s", p.Name(), p.Log())
		}
		return line
	case <-timeout.C:
		t.Fatalf("%s printed nothing for %v", p.Name(), d)
	}
	return ""
}

// send sends a command.
func (p *peer) send(t *testing.T, command string) {
	t.Helper()
	if err := p.Send(command); err != nil {
		t.Fatalf("%s: %v", p.Name(), err)
	}
}

// call is a consumer's report of one call.
type call struct {
	text    string        // the report without the elapsed time
	Name    string        `json:"call"`
	Value   any           `json:"value"`
	Elapsed time.Duration `json:"-"`

	ElapsedMS int    `json:"elapsed_ms"`
	End       string `json:"end"`
	Problem   string `json:"problem"`
}

var elapsed = regexp.MustCompile(`,"elapsed_ms":\d+`)

// nextCall returns the next report. It is the last one if End is set.
func (p *peer) nextCall(t *testing.T, d time.Duration) call {
	t.Helper()
	line := p.nextLine(t, d)
	var c call
	if err := json.Unmarshal([]byte(line), &c); err != nil {
		t.Fatalf("%s reports %q: %v", p.Name(), line, err)
	}
	if c.Problem != "" {
		t.Fatalf("%s cannot run %s: %s\n%s", p.Name(), c.End, c.Problem, p.Log())
	}
	c.text = elapsed.ReplaceAllString(line, "")
	c.Elapsed = time.Duration(c.ElapsedMS) * time.Millisecond
	return c
}

// runScenario runs a scenario with a consumer and returns its calls.
func (p *peer) runScenario(t *testing.T, command string, d time.Duration) []call {
	t.Helper()
	p.send(t, command)
	var calls []call
	for {
		c := p.nextCall(t, d)
		if c.End != "" {
			return calls
		}
		calls = append(calls, c)
	}
}

// startJava runs a main class of a module of test/interop/java.
func startJava(t *testing.T, name, module, class string, args ...string) *peer {
	t.Helper()
	dir := filepath.Join(kitDir("java"), module)
	flags := []string{
		// Keep the JVM small and quick to start. A machine with two cores runs several.
		"-Xmx160m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Djava.net.preferIPv4Stack=true", child.JavaHosts(t),
		"-Djava.io.tmpdir=" + t.TempDir(), "-Duser.home=" + t.TempDir(),
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dbolt.tcp.heartbeat.interval=2000", "-Dbolt.tcp.server.idle.interval=6000",
		// Hessian uses reflection on classes of the JDK.
		"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
		"--add-opens=java.base/java.math=ALL-UNNAMED", "--add-opens=java.base/java.time=ALL-UNNAMED",
		"-cp", filepath.Join(dir, module+".jar") + ":" + filepath.Join(dir, "lib", "*"),
		"weft.interop." + class,
	}
	return start(t, name, "java", append(flags, args...)...)
}

// freePorts allocates ports from the range of this package.
var freePorts = ports.Interop()

// freePort returns a port on which nothing listens and that the kernel does not assign.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := freePorts.Free("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// portList formats ports as an option of scenarios.
func portList(ports []int) string {
	var texts []string
	for _, p := range ports {
		texts = append(texts, strconv.Itoa(p))
	}
	return strings.Join(texts, ",")
}
