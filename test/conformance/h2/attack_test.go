package h2

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/process"
)

// An attack keeps attackerCount connections open for attackTime, and replaces those that the server
// closes. Each connection sends at most one batch per roundInterval, which leaves CPU time for the
// server and for the other client. A batch has 100 sends of one or two frames. So the attackers
// send at most 800,000 frames per second in total.
const (
	attackerCount = 4
	attackTime    = time.Second
	roundInterval = time.Millisecond
)

// Limits for Weft during and after an attack. The attackers use CPU time of the same machine.
const (
	maxGrowth           = 96 << 20               // bytes of memory
	minOtherResponses   = 3                      // minimum number of responses to another client; low, because the origin is busy too
	maxOtherLatency     = 2 * time.Second        // latency of another client's response
	maxIdleCPU          = 0.1                    // CPUs, after the attackers have stopped
	maxCPUPerConnection = 25 * time.Millisecond  // CPU time per connection that the server closes
	maxMemoryAttackCPU  = 600 * time.Millisecond // CPU time of attacks that only hold resources
)

// outcome is the result of an attack.
type outcome struct {
	frames         int
	connections    int
	closedByGoAway int           // connections that the server closed with GOAWAY
	cpu            time.Duration // of the server
	growth         int64         // growth of its memory, in bytes: from the start to the peak
	otherLatencies []time.Duration
	otherFailures  []error // of other clients
}

// compareEnv is the environment variable that makes the tests run all attacks on net/http's server
// too, for comparison.
const compareEnv = "WEFT_H2_COMPARE"

// TestAttacksAreMeasured verifies that the harness measures attacks on net/http's server, with the
// first flood and the first memory attack.
func TestAttacksAreMeasured(t *testing.T) {
	address, pid := startProcess(t)
	selected := []attack{floods()[0], memoryAttacks()[0]}
	if os.Getenv(compareEnv) != "" {
		selected = attacks()
	}
	table := newAttackTable()
	for _, atk := range selected {
		t.Run(atk.name, func(t *testing.T) {
			o := atk.measure(t, address, pid)
			table.add(atk, o)
			if o.frames == 0 || len(o.otherLatencies) == 0 || o.cpu == 0 {
				t.Errorf("%d frames, %d responses for other clients, %v of CPU time: want all above 0", o.frames, len(o.otherLatencies), o.cpu)
			}
		})
	}
	table.write(t, "net-http")
}

// TestViolationsAreReported verifies that violations reports the violation of each limit.
func TestViolationsAreReported(t *testing.T) {
	latencies := func(d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, minOtherResponses) }
	withinLimits := func() outcome {
		return outcome{frames: 100_000, connections: 2 * attackerCount, cpu: 100 * time.Millisecond, otherLatencies: latencies(time.Millisecond)}
	}
	for name, c := range map[string]struct {
		change   func(o *outcome)
		problems int
	}{
		"no violation":                  {func(*outcome) {}, 0},
		"other client fails":            {func(o *outcome) { o.otherFailures = []error{errKeepOpen} }, 1},
		"other client waits":            {func(o *outcome) { o.otherLatencies = latencies(maxOtherLatency + 1) }, 1},
		"other client gets no response": {func(o *outcome) { o.otherLatencies = nil }, 1},
		"memory grows":                  {func(o *outcome) { o.growth = maxGrowth + 1 }, 1},
		"connections stay open":         {func(o *outcome) { o.connections = attackerCount }, 1},
		"connections cost too much":     {func(o *outcome) { o.cpu = 2*attackerCount*maxCPUPerConnection + 8 }, 1},
		"frames cost too much":          {func(o *outcome) { o.cpu, o.connections = 100_001*costPerFrame, 1000 }, 1},
	} {
		o := withinLimits()
		c.change(&o)
		if got := (attack{mustClose: true}).violations(o); len(got) != c.problems {
			t.Errorf("%s: violations = %q, want %d", name, got, c.problems)
		}
	}
}

// TestAttacksOnWeft verifies that Weft in front of an origin withstands all attacks. It lowers the
// limit of concurrent streams, so that the origin's limit is not reached first. It does not run in
// parallel with other tests.
func TestAttacksOnWeft(t *testing.T) {
	origin, _ := startProcess(t)
	w := startWeft(t, listener{
		upstream: "Http2", hosts: []string{origin}, extend: object{"http2_max_concurrent_streams": 100},
	})
	table := newAttackTable()
	for _, atk := range attacks() {
		t.Run(atk.name, func(t *testing.T) {
			// Other work on the machine can cause a failure once; only repeated failures count.
			const attempts = 3
			var o outcome
			var problems []string
			for range attempts {
				o = atk.measure(t, w.addresses[0], w.cmd.Process.Pid)
				if problems = atk.violations(o); len(problems) == 0 {
					break
				}
				t.Logf("in one of at most %d attempts: %q", attempts, problems)
			}
			table.add(atk, o)
			for _, problem := range problems {
				t.Error(problem)
			}
		})
	}
	table.write(t, "weft")
}

// attackTable formats a report.
type attackTable struct{ text strings.Builder }

func newAttackTable() *attackTable {
	at := &attackTable{}
	at.row("attack", "connections", "frames", "CPU ms", "µs/frame", "growth MB", "others", "p99 ms", "max ms")
	at.row("---", "---", "---", "---", "---", "---", "---", "---", "---")
	return at
}

func (at *attackTable) row(cells ...any) {
	_, _ = fmt.Fprintf(&at.text, "| %-40v | %11v | %8v | %6v | %8v | %9v | %6v | %6v | %6v |\n", cells...) // writes to memory
}

func (at *attackTable) add(atk attack, o outcome) {
	at.row(atk.name, fmt.Sprintf("%d/%d", o.closedByGoAway, o.connections), o.frames, o.cpu.Milliseconds(),
		fmt.Sprintf("%.2f", float64(o.cpu)/float64(time.Microsecond)/float64(max(o.frames, 1))),
		fmt.Sprintf("%.1f", float64(o.growth)/(1<<20)), len(o.otherLatencies), o.percentile(99).Milliseconds(), o.percentile(100).Milliseconds())
}

// write logs the report and writes it to h2-attacks-NAME.md.
func (at *attackTable) write(t *testing.T, name string) {
	t.Helper()
	head := fmt.Sprintf("# Attacks over HTTP/2 on %s\n\nEach for %v, with %d concurrent connections. Connections: closed with GOAWAY / all.\n"+
		"Others: responses to another client, and their latencies.\n\n", name, attackTime, attackerCount)
	t.Log(head + at.text.String())
	writeReport(t, "h2-attacks-"+name+".md", []byte(head+at.text.String()))
}

// percentile returns a percentile of the other client's latencies; o.otherLatencies is sorted.
func (o outcome) percentile(p int) time.Duration {
	if len(o.otherLatencies) == 0 {
		return 0
	}
	return o.otherLatencies[min(len(o.otherLatencies)*p/100, len(o.otherLatencies)-1)]
}

// violations returns the violated limits.
func (atk attack) violations(o outcome) (problems []string) {
	addProblem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if len(o.otherFailures) > 0 {
		addProblem("%d requests of another client failed; the first: %v", len(o.otherFailures), o.otherFailures[0])
	}
	if n, slowest := len(o.otherLatencies), o.percentile(100); n < minOtherResponses || slowest > maxOtherLatency {
		addProblem("another client got %d responses, the slowest after %v, want at least %d within %v", n, slowest, minOtherResponses, maxOtherLatency)
	}
	if o.growth > maxGrowth {
		addProblem("memory grew by %d MB, want at most %d", o.growth>>20, maxGrowth>>20)
	}
	if atk.mustClose && o.connections < 2*attackerCount {
		addProblem("%d frames were accepted on %d connections: the server does not close them", o.frames, o.connections)
	}
	if perConn := o.cpu / time.Duration(max(o.connections, 1)); atk.mustClose && perConn > maxCPUPerConnection {
		addProblem("%v of CPU time for each of %d connections, want at most %v", perConn, o.connections, maxCPUPerConnection)
	}
	maximum := max(maxMemoryAttackCPU, time.Duration(o.frames)*cmp.Or(atk.cost, costPerFrame))
	if o.cpu > maximum {
		addProblem("%v of CPU time for %d frames, want at most %v", o.cpu, o.frames, maximum)
	}
	return problems
}

// measure runs the attack and measures the server and another client.
func (atk attack) measure(t *testing.T, address string, pid int) outcome {
	t.Helper()
	pids := []int{pid}
	before, err := process.ReadMemory(pids)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.ResetPeak(pids); err != nil {
		t.Fatal(err)
	}
	cpuBefore, err := process.CPUTime(pids)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(attackTime)
	var other sync.WaitGroup
	var o outcome
	other.Go(func() { o.otherLatencies, o.otherFailures = sendRequestsUntil(address, end) })
	attacker := exec.Command(os.Args[0])
	attacker.Env = append(os.Environ(), roleEnv+"="+attackRole+" "+address+" "+atk.name)
	attacker.Stderr = os.Stderr
	attacker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	received, err := attacker.Output()
	other.Wait()
	if err != nil {
		t.Fatalf("attacker process: %v", err)
	}
	if _, err := fmt.Sscan(string(received), &o.frames, &o.connections, &o.closedByGoAway); err != nil {
		t.Fatalf("attacker process printed %q: %v", received, err)
	}
	slices.Sort(o.otherLatencies)
	cpuAfter, err := process.CPUTime(pids)
	if err != nil {
		t.Fatalf("the server has exited: %v", err)
	}
	after, err := process.ReadMemory(pids)
	if err != nil {
		t.Fatal(err)
	}
	o.cpu = cpuAfter - cpuBefore
	o.growth = int64(after.Peak) - int64(before.Resident)
	awaitIdle(t, pids)
	return o
}

// attackAll runs all attackers until the end.
func (atk attack) attackAll(address string, end time.Time) outcome {
	var o outcome
	var mu sync.Mutex // guards o
	var wg sync.WaitGroup
	for range attackerCount {
		wg.Go(func() {
			result := atk.attack(address, end)
			mu.Lock()
			defer mu.Unlock()
			o.frames += result.frames
			o.connections += result.connections
			o.closedByGoAway += result.closedByGoAway
		})
	}
	wg.Wait()
	return o
}

// attack runs one attacker until end, and connects again after the server has closed the
// connection.
func (atk attack) attack(address string, end time.Time) (o outcome) {
	tick := time.NewTicker(roundInterval)
	defer tick.Stop()
	for time.Now().Before(end) {
		<-tick.C
		a, err := newAttacker(address, !atk.neverReads, atk.settings...)
		if a == nil {
			continue // the server refused the connection, which is a defense
		}
		o.connections++
		_ = a.conn.SetDeadline(end) // ends an attack that does not read
		for err == nil && time.Now().Before(end) && !a.isStopped() {
			err = atk.send(a)
			<-tick.C
		}
		if errors.Is(err, errKeepOpen) {
			a.waitUntil(end)
		}
		o.frames += a.frames
		a.close()
		if a.receivedGoAway.Load() {
			o.closedByGoAway++
		}
	}
	return o
}

// waitUntil waits until the given time or, if the attacker reads, until the server has sent GOAWAY
// or a read has failed.
func (a *attacker) waitUntil(until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.stopped: // nil: never
	}
}

// sendRequestsUntil sends a request every few milliseconds on its own connection until the end, and
// returns the latencies and the errors.
func sendRequestsUntil(address string, end time.Time) (elapsed []time.Duration, failures []error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: waitTimeout}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(end) {
		sentAt := time.Now()
		if err := get(client, "http://"+address+"/bytes/100"); err != nil {
			failures = append(failures, err)
		} else {
			elapsed = append(elapsed, time.Since(sentAt))
		}
		<-tick.C
	}
	return elapsed, failures
}

// awaitIdle waits until the processes use hardly any CPU time.
func awaitIdle(t *testing.T, pids []int) {
	t.Helper()
	const span = 100 * time.Millisecond
	deadline := time.Now().Add(waitTimeout)
	tick := time.NewTicker(span)
	defer tick.Stop()
	last, lastAt := time.Duration(0), time.Time{}
	for {
		now, err := process.CPUTime(pids)
		if err != nil {
			t.Fatalf("the server has exited: %v", err)
		}
		if !lastAt.IsZero() && float64(now-last)/float64(time.Since(lastAt)) <= maxIdleCPU {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v after the attack the server still uses %v of CPU time in %v", waitTimeout, now-last, span)
		}
		last, lastAt = now, time.Now()
		<-tick.C
	}
}

// Attackers and servers other than Weft run in child processes, so that they do not slow down the
// other client in this process. The parent sets roleEnv for them.
const (
	roleEnv    = "WEFT_H2_ROLE"
	serveRole  = "serve"  // followed by an address
	attackRole = "attack" // followed by an address and the name of an attack
)

// runRole does the work of this child process: it serves, or it attacks.
func runRole(role string) error {
	action, rest, _ := strings.Cut(role, " ")
	address, name, _ := strings.Cut(rest, " ")
	if action == serveRole {
		return serveForever(address)
	}
	i := slices.IndexFunc(attacks(), func(atk attack) bool { return atk.name == name })
	if i < 0 {
		return fmt.Errorf("unknown role %q", role)
	}
	// The attackers get a lower priority than the server.
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10); err != nil {
		return err
	}
	o := attacks()[i].attackAll(address, time.Now().Add(attackTime))
	_, err := fmt.Println(o.frames, o.connections, o.closedByGoAway)
	return err
}

// startProcess runs net/http's server in a child process until the end of the test.
func startProcess(t *testing.T) (address string, pid int) {
	t.Helper()
	address = freeAddress(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+serveRole+" "+address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have exited
		_ = cmd.Wait()         // the process was killed
	})
	awaitListener(t, address)
	return address, cmd.Process.Pid
}

func serveForever(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000},
		Handler: http.HandlerFunc(serveOrigin), ErrorLog: discardLogger(),
	}
	return s.Serve(l)
}
