package dubbo

import (
	"encoding/json"
	"errors"
	"os"
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

const (
	// waitTimeout is the timeout of a step that should complete quickly. A JVM may start slowly on
	// a busy machine.
	waitTimeout  = 90 * time.Second
	pollInterval = 50 * time.Millisecond
)

// process is a program that reads commands from stdin and writes reports to stdout. Only the test's
// goroutine may call its methods.
type process struct {
	*child.Process
	t *testing.T
}

// start runs a program until the end of the test.
func start(t *testing.T, name, program string, args ...string) *process {
	t.Helper()
	return &process{child.StartInteractive(t, name, exec.Command(program, args...)), t}
}

func (p *process) signal(signal os.Signal) {
	p.t.Helper()
	if err := p.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
}

// awaitExit waits until the process has exited and verifies its status.
func (p *process) awaitExit() {
	p.t.Helper()
	select {
	case <-p.Done():
		if status := p.ExitCode(); status != 0 {
			p.t.Errorf("%s exited with status %d, want 0", p.Name(), status)
		}
	case <-time.After(waitTimeout):
		p.t.Fatalf("%s has not exited after %v", p.Name(), waitTimeout)
	}
}

// awaitLine waits for a line of stdout that contains text.
func (p *process) awaitLine(text string) {
	p.t.Helper()
	for !strings.Contains(p.nextLine(), text) {
		continue
	}
}

// nextLine returns the next line of stdout.
func (p *process) nextLine() string {
	p.t.Helper()
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	select {
	case line, open := <-p.Lines():
		if !open {
			p.t.Fatalf("%s has ended:\n%s", p.Name(), p.Log())
		}
		return line
	case <-timeout.C:
		p.t.Fatalf("%s printed nothing for %v:\n%s", p.Name(), waitTimeout, p.Log())
	}
	return ""
}

func (p *process) send(command string) {
	p.t.Helper()
	if err := p.Send(command); err != nil {
		p.t.Fatalf("%s: %v", p.Name(), err)
	}
}

// call is a consumer's report of one call.
type call struct {
	text    string // the report without the elapsed time
	Name    string `json:"call"`
	Value   any    `json:"value"`
	End     string `json:"end"`
	Problem any    `json:"problem"`
}

var elapsed = regexp.MustCompile(`,"elapsed_ms":\d+`)

// runScenario makes a consumer run a scenario and returns its calls.
func (p *process) runScenario(command string) []call {
	p.t.Helper()
	p.send(command)
	return p.readCalls()
}

// readCalls reads the reports until the end of the scenario.
func (p *process) readCalls() []call {
	p.t.Helper()
	var calls []call
	for {
		line := p.nextLine()
		c := call{text: elapsed.ReplaceAllString(line, "")}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			p.t.Fatalf("%s reports %q: %v", p.Name(), line, err)
		}
		if c.Problem != nil {
			p.t.Fatalf("%s cannot run %s: %v\n%s", p.Name(), c.End, c.Problem, p.Log())
		}
		if c.End != "" {
			return calls
		}
		calls = append(calls, c)
	}
}

// startJava runs a main class of the Dubbo peers.
func startJava(t *testing.T, module, class string, args ...string) *process {
	t.Helper()
	dir := filepath.Join(os.Getenv(javaEnv), module)
	flags := []string{
		// Small heap and fast start: a machine with two cores runs several JVMs.
		"-Xmx160m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-Djava.net.preferIPv4Stack=true", child.JavaHosts(t),
		"-Djava.io.tmpdir=" + t.TempDir(), "-Duser.home=" + t.TempDir(),
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
		"--add-opens=java.base/java.math=ALL-UNNAMED", "--add-opens=java.base/java.time=ALL-UNNAMED",
		"-cp", filepath.Join(dir, module+".jar") + ":" + filepath.Join(dir, "lib", "*"),
		"weft.interop.dubbo." + class,
	}
	return start(t, module+"'s "+class, "java", append(flags, args...)...)
}

// startConsumer runs a consumer of one of the modules and returns when it is ready for commands.
func startConsumer(t *testing.T, module string) *process {
	t.Helper()
	p := startJava(t, module, "EchoConsumer")
	p.awaitLine("ready")
	return p
}

// startProvider runs a provider of one of the modules with the given name and returns when it
// serves on the port. It registers only with the option registry.
func startProvider(t *testing.T, module, name string, port int, options ...string) *process {
	t.Helper()
	p := startJava(t, module, "EchoProvider", append([]string{strconv.Itoa(port), name}, options...)...)
	p.awaitLine("ready")
	return p
}

// freePorts is the port range of this package.
var freePorts = ports.Dubbo()

// freePort returns a port without a listener outside the ephemeral range.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := freePorts.Free("")
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// eventually waits until mismatch returns "".
func eventually(t *testing.T, mismatch func() string) {
	t.Helper()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(waitTimeout); ; <-tick.C {
		problem := mismatch()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", waitTimeout, problem)
		}
	}
}

// errUnexpectedStatus reports an HTTP status other than 200.
var errUnexpectedStatus = errors.New("unexpected status")
