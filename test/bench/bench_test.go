package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/process"
)

// TestMain runs the role that the arguments name. Without a role it runs the tests.
func TestMain(m *testing.M) {
	if r, ok := findRole(os.Args); ok {
		if err := r(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// parse returns the options of a command line, or fails the test.
func parse(t *testing.T, arguments ...string) options {
	t.Helper()
	o, err := parseOptions(arguments)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// newTestEnvironment returns an environment with the options of the command line. The cleanup of
// the test closes the environment.
func newTestEnvironment(t *testing.T, arguments ...string) *environment {
	t.Helper()
	env, err := newEnvironment(t.Context(), parse(t, arguments...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(env.close)
	return env
}

// TestShortRun verifies that a short run through the relay and directly, in closed and open loop,
// produces samples and a report.
func TestShortRun(t *testing.T) {
	out := t.TempDir()
	env := newTestEnvironment(t, "-proxies", "relay,direct", "-rows", "1k-1,64k-64,post-64,dubbo-16x8,bolt-16x1,boltv2-16x64", "-rounds", "2",
		"-seconds", "0.3", "-warmup", "0.05", "-patience", "0", "-o", out)
	report, err := env.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range report.Loads {
		for _, c := range l.Cells {
			if len(c.Rounds) != 2 {
				t.Fatalf("%s, %s: %d rounds, want 2", l.Name, c.Proxy, len(c.Rounds))
			}
			for _, s := range append(c.Rounds, c.Half...) {
				if s.Requests == 0 || s.P50 <= 0 || s.P99 < s.P50 || s.Max < s.P99 || s.Reconnects != 0 {
					t.Errorf("%s, %s: %+v, want increasing latencies and no reconnects", l.Name, c.Proxy, s.Result)
				}
				if proxied := c.Proxy == "relay"; proxied != (s.CPU > 0) || proxied != (s.Memory.Resident > 0) {
					t.Errorf("%s, %s: CPU time %v, memory %+v; want values only for the relay", l.Name, c.Proxy, s.CPU, s.Memory)
				}
			}
		}
		if half := l.Name == "64k-64" || l.Protocol != ""; half != (len(l.Cells[0].Half) == 2) || half != (l.Rate > 0) {
			t.Errorf("%s: %d rounds at half load, rate %v; want 2 rounds and a rate only for 64k-64 and RPC", l.Name, len(l.Cells[0].Half), l.Rate)
		}
	}
	if err := report.write(out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var repeated struct{ Loads []loadRow }
	if err := json.Unmarshal(text, &repeated); err != nil {
		t.Fatal(err)
	}
	if got, want := repeated.Loads[1].Cells[0].Rounds[1].Requests, report.Loads[1].Cells[0].Rounds[1].Requests; got != want {
		t.Errorf("report.json has %d requests, want %d", got, want)
	}
	page, err := os.ReadFile(filepath.Join(out, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| relay |", "| direct |", "### post-64", "| dubbo-16x8 |", "requests/s in an open loop"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("report.md has no %q:\n%s", want, page)
		}
	}
}

// TestIdleConnections verifies that the idle measurement reads memory in every state. It uses the
// relay, which the idle row skips because it opens an origin connection for each client connection.
func TestIdleConnections(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", "relay", "-idle", "50")
	result, err := env.idle(t.Context(), env.programs[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.Start.Resident == 0 || result.Opened.Resident == 0 || result.Used.Resident == 0 {
		t.Errorf("idle = %+v, want memory in every state", result)
	}
}

func TestCloseStopsProcesses(t *testing.T) {
	env, err := newEnvironment(t.Context(), parse(t, "-proxies", "relay,direct"))
	if err != nil {
		t.Fatal(err)
	}
	subjects, err := env.startAll(t.Context(), row{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(process.Tree(os.Getpid())); n < 3 {
		t.Errorf("%d processes, want three: this one, the origin and the relay", n)
	}
	stopAll(subjects)
	env.close()
	if remaining := process.Tree(os.Getpid()); len(remaining) != 1 {
		t.Errorf("the processes %v run after close, want only %d", remaining, os.Getpid())
	}
	if _, err := os.Stat(env.dir); !os.IsNotExist(err) {
		t.Errorf("%s remains: %v, want it removed", env.dir, err)
	}
}

// acceptEach passes each connection to the function, one after another, until the test ends.
func acceptEach(t *testing.T, serve func(conn net.Conn, r *bufio.Reader)) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// Serving one connection at a time is enough: the load has only one.
			serve(conn, bufio.NewReader(conn))
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return netip.MustParseAddrPort(listener.Addr().String())
}

// TestLoadAgainstServers verifies that the load generator measures valid responses, also with
// reconnects, and reports invalid responses as errors.
func TestLoadAgainstServers(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", direct)
	// keepAlive returns a server that sends text as the response to every request of a connection.
	keepAlive := func(text string) func(net.Conn, *bufio.Reader) {
		return func(conn net.Conn, r *bufio.Reader) {
			for {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				if _, err := io.WriteString(conn, text); err != nil {
					return
				}
			}
		}
	}
	// respondOnce returns a server that sends text for one request and closes the connection.
	respondOnce := func(text string) func(net.Conn, *bufio.Reader) {
		return func(conn net.Conn, r *bufio.Reader) {
			if _, err := http.ReadRequest(r); err == nil {
				// The generator may have closed the connection.
				_, _ = io.WriteString(conn, text)
			}
		}
	}
	tests := []struct {
		name       string
		response   func(net.Conn, *bufio.Reader)
		reconnects bool
		wantErr    string // part of the error; empty: no error
	}{
		{"keepalive responses", keepAlive("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"), false, ""},
		{"new connection after Connection: close", respondOnce("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nabcd"), true, ""},
		{"error status", keepAlive("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nabcd"), false, "503 Busy"},
		{"different length", keepAlive("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), false, "a response of 3 bytes, want 4"},
		{"bytes after the response", keepAlive("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcde"), false, "1 bytes after the response"},
		{"truncated response", respondOnce("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab"), false, "ends early"},
		{"endless head", keepAlive("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 9<<10)), false, "more than 8192 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			job := load.Job{
				Address: acceptEach(t, test.response), Request: get(4), Body: 4, Connections: 1,
				Warmup: 10 * time.Millisecond, Measure: 50 * time.Millisecond,
			}
			result, err := env.load(t.Context(), job)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if result.Requests == 0 || (result.Reconnects > 0) != test.reconnects {
				t.Errorf("%d requests, %d reconnects, want requests and reconnects: %v", result.Requests, result.Reconnects, test.reconnects)
			}
		})
	}
}

// TestOpenLoopRate verifies that an open loop sends requests at its rate.
func TestOpenLoopRate(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", direct)
	job := load.Job{
		Address: env.programEnv.Origin, Request: get(1024), Body: 1024, Connections: 4,
		Rate: 1000, Warmup: 50 * time.Millisecond, Measure: 400 * time.Millisecond,
	}
	result, err := env.load(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	// The mean is 400. The arrivals are the same in every run, but a busy machine may complete
	// fewer.
	if got := float64(result.Requests); math.Abs(got-400) > 120 {
		t.Errorf("%v responses at 1,000 requests per second in 0.4 s, want about 400", got)
	}
}

func TestInterruptEndsRun(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", direct, "-seconds", "60", "-rows", "1k-1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	if _, err := env.run(ctx); err == nil {
		t.Error("an interrupted run returned no error")
	}
	if elapsed := time.Since(start); elapsed > 20*time.Second {
		t.Errorf("the run ended after %v, want at most 20s", elapsed)
	}
}
