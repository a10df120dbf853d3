package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	sigterm = syscall.SIGTERM
	sigint  = syscall.SIGINT
	sighup  = syscall.SIGHUP
	sigusr1 = syscall.SIGUSR1
)

// holdingUpstream is an upstream that responds when release is closed.
type holdingUpstream struct {
	*origin
	arrived chan struct{} // gets a value for each request that arrives
	release chan struct{} // closed to respond to requests
}

func startHoldingUpstream(t *testing.T) *holdingUpstream {
	t.Helper()
	h := &holdingUpstream{arrived: make(chan struct{}, 1024), release: make(chan struct{})}
	h.origin = startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		h.arrived <- struct{}{}
		select {
		case <-h.release:
			_, _ = fmt.Fprint(w, "released")
		case <-r.Context().Done():
		}
	})
	return h
}

func (h *holdingUpstream) await(t *testing.T) {
	t.Helper()
	select {
	case <-h.arrived:
	case <-time.After(waitTimeout):
		t.Fatal("the request did not reach the upstream")
	}
}

func connectionRefused(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		_ = c.Close() // only checks whether the port is open
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	app := startHoldingUpstream(t)
	s, front := simpleProxy(app.address)
	s.server = object{"graceful_timeout": "1m"}
	w := startWeft(t, s.config())
	const get = "GET / HTTP/1.1\nHost: a\n\n"
	busy := dialRaw(t, front).send(get)
	app.await(t)
	unused := dialRaw(t, front)
	used := dialRaw(t, front).send("GET / HTTP/1.1\n\n") // rejected, and closed
	used.readToEnd()
	keepAlive := dialRaw(t, front).send("GET / HTTP/1.0\nHost: a\nConnection: keep-alive\n\n")
	app.await(t)

	w.signal(sigterm)
	w.stderr.await(t, 0, "draining")
	if got := unused.readToEnd(); got != "" {
		t.Errorf("unused connection read %q, want EOF", got)
	}
	eventually(t, "new connections are refused", func() bool { return connectionRefused(front) })
	if ready, err := adminClient.Get("http://" + w.admin + "/ready"); err != nil {
		t.Errorf("/ready while draining: %v", err)
	} else if ready.Body.Close(); ready.StatusCode != 503 {
		t.Errorf("/ready while draining: %d, want 503", ready.StatusCode)
	}
	close(app.release)
	for _, c := range []*rawConn{busy, keepAlive} {
		response, body := c.readResponse("GET")
		if response.StatusCode != 200 || body != "released" || !response.Close {
			t.Errorf("request in flight got %d %q, Connection: close %v; want the complete response and close", response.StatusCode, body, response.Close)
		}
		if got := c.readToEnd(); got != "" {
			t.Errorf("after the response: read %q, want none", got)
		}
	}
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	w.stderr.await(t, 0, "drained")
}

func TestSIGTERMClosesIdleConnections(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("hello"))
	s, front := simpleProxy(app.address)
	s.server = object{"graceful_timeout": "1m"}
	w := startWeft(t, s.config())
	conns := make([]*rawConn, 20)
	for i := range conns {
		conns[i] = dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\n\n")
		conns[i].readResponse("GET")
	}
	start := time.Now()
	w.signal(sigterm)
	for _, c := range conns {
		if got := c.readToEnd(); got != "" {
			t.Errorf("an idle connection got %q, want none", got)
		}
	}
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	if elapsed := time.Since(start); elapsed > 5*time.Second {
		t.Errorf("exit without requests in flight took %v, want at most 5s", elapsed)
	}
}

func TestSIGTERMForceCloses(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]func(*weft){
		"at the end of the drain time": func(*weft) {},
		"at a second SIGTERM":          func(w *weft) { w.signal(sigterm) },
		"at a SIGINT":                  func(w *weft) { w.signal(sigint) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := startHoldingUpstream(t)
			s, front := simpleProxy(app.address)
			s.server = object{"graceful_timeout": "1h"}
			if strings.Contains(name, "drain time") {
				s.server = object{"graceful_timeout": "300ms"}
			}
			w := startWeft(t, s.config())
			busy := dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\n\n")
			app.await(t)
			w.signal(sigterm)
			w.stderr.await(t, 0, "draining")
			eventually(t, "new connections are refused", func() bool { return connectionRefused(front) })
			trigger(w)
			busy.readToEnd()
			if status := w.awaitExit(waitTimeout); status != 0 {
				t.Errorf("exit status %d, want 0", status)
			}
		})
	}
}

func TestDrainEndpoint(t *testing.T) {
	t.Parallel()
	s, _ := simpleProxy("127.0.0.1:1")
	w := startWeft(t, s.config())
	response, err := adminClient.Post("http://"+w.admin+"/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // the body is not needed
	if status := w.awaitExit(waitTimeout); status != 0 || response.StatusCode/100 != 2 {
		t.Errorf("POST /drain: %d, exit status %d; want 2xx, 0", response.StatusCode, status)
	}
}

func TestSIGINTExitsImmediately(t *testing.T) {
	t.Parallel()
	app := startHoldingUpstream(t)
	s, front := simpleProxy(app.address)
	s.server = object{"graceful_timeout": "1h"}
	w := startWeft(t, s.config())
	busy := dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\n\n")
	app.await(t)
	start := time.Now()
	w.signal(sigint)
	w.awaitExit(waitTimeout)
	if elapsed := time.Since(start); elapsed > rpcDeadline {
		t.Errorf("exit took %v, want at most %v", elapsed, rpcDeadline)
	}
	busy.readToEnd()
}

func TestPIDFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weft.pid")
	s, _ := simpleProxy("127.0.0.1:1")
	s.extra = object{"pid": path}
	w := startWeft(t, s.config())
	eventually(t, "the file contains the process ID", func() bool {
		text, _ := os.ReadFile(path)
		return strings.TrimSpace(string(text)) == fmt.Sprint(w.cmd.Process.Pid)
	})
	w.signal(sigterm)
	w.awaitExit(waitTimeout)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the PID file after the exit: %v, want no such file", err)
	}
}

func TestSIGHUPReloads(t *testing.T) {
	t.Parallel()
	s, front := simpleProxy("127.0.0.1:1")
	s.tables = list{routeTable("front", directRoute("/", 200, "old"))}
	first := s.config()
	w := startWeft(t, first)
	c := newClient(t)
	if got := sendRequest(t, c, "GET", "http://"+front, ""); got.body != "old" {
		t.Fatalf("before the reload: %q, want \"old\"", got.body)
	}
	s.admin = first.admin()
	s.tables = list{routeTable("front", directRoute("/new", 200, "new"), directRoute("/", 404, "gone"))}
	w.reload(s.config())
	if got := sendRequest(t, c, "GET", "http://"+front+"/new", ""); got.body != "new" {
		t.Errorf("new route: %d %q, want \"new\"", got.status, got.body)
	}
	if got := sendRequest(t, c, "GET", "http://"+front+"/", ""); got.body != "gone" {
		t.Errorf("changed route: %d %q, want \"gone\"", got.status, got.body)
	}
}

func TestSIGHUPRejectsInvalidFile(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	for name, c := range map[string]struct {
		text    func(s setup) []byte
		reasons []string
	}{
		"several errors": {
			func(setup) []byte { return []byte(invalidFile) }, invalidFileErrors(),
		},
		"not JSON": {
			func(setup) []byte { return []byte("{\n  \"servers\": [\n") }, []string{":3:"},
		},
		"address in use": {
			func(s setup) []byte {
				s.listeners = append(s.listeners, httpListener("front2", ln.Addr().String()))
				s.tables = append(s.tables, routeTable("front2", directRoute("/", 200, "")))
				return s.config().encode(t)
			}, []string{ln.Addr().String()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, front := simpleProxy("127.0.0.1:1")
			s.tables = list{routeTable("front", directRoute("/", 200, "old"))}
			first := s.config()
			s.admin = first.admin()
			w := startWeft(t, first)
			conn := dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\n\n")
			conn.readResponse("GET")

			w.writeText(c.text(s))
			w.signal(sighup)
			w.stderr.await(t, 0, "configuration rejected, the previous one stays active")
			for _, reason := range c.reasons {
				quoted, _ := json.Marshal(reason) // as in a quoted value of the log
				w.stderr.await(t, 0, strings.Trim(string(quoted), `"`))
			}
			if _, got := conn.send("GET / HTTP/1.1\nHost: a\n\n").readResponse("GET"); got != "old" {
				t.Errorf("on the open connection: %q, want \"old\"", got)
			}
			if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.body != "old" {
				t.Errorf("on a new connection: %q, want \"old\"", got.body)
			}
			eventually(t, "the rejection is counted", func() bool { return w.metric("weft_config_reloads_total", `result="rejected"`) == 1 })
			var dump struct {
				Rejected struct{ Reasons []string }
			}
			if err := json.Unmarshal([]byte(w.adminGet("/config_dump")), &dump); err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(dump.Rejected.Reasons, "\n"); !strings.Contains(all, c.reasons[0]) {
				t.Errorf("/config_dump reports %q for the rejection, want %q", all, c.reasons[0])
			}
			// The next valid file is applied.
			s.tables = list{routeTable("front", directRoute("/", 200, "new"))}
			w.reload(s.config())
			if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.body != "new" {
				t.Errorf("after a valid file: %q, want \"new\"", got.body)
			}
		})
	}
}

// TestSIGUSR1ReopensLogs rotates logs under traffic as logrotate does, and verifies that each
// request has one line in one of the files.
func TestSIGUSR1ReopensLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	access, process := filepath.Join(dir, "access.log"), filepath.Join(dir, "weft.log")
	s, front := simpleProxy("127.0.0.1:1")
	s.server = object{"default_log_path": process}
	s.tables = list{routeTable("front", directRoute("/", 200, "ok"))}
	s.listeners = list{httpListener("front", front, object{"access_logs": list{
		object{"log_path": access, "log_format": "%request_header_x-id% %response_code%"}}})}
	w := startWeft(t, s.config())

	const clientCount, perClient, rotations = 4, 500, 5
	var traffic sync.WaitGroup
	progress := make(chan struct{}, clientCount*perClient)
	for n := range clientCount {
		c := newClient(t)
		traffic.Go(func() {
			for i := range perClient {
				if _, err := tryRequest(t.Context(), c, "GET", "http://"+front, "", fmt.Sprintf("X-Id: %d-%d", n, i)); err != nil {
					t.Errorf("request %d-%d: %v", n, i, err)
				}
				progress <- struct{}{}
			}
		})
	}
	for r := range rotations {
		for range clientCount * perClient / (rotations + 1) {
			<-progress
		}
		for _, path := range []string{access, process} {
			if err := os.Rename(path, fmt.Sprintf("%s.%d", path, r)); err != nil {
				t.Error(err)
			}
		}
		w.signal(sigusr1)
		eventually(t, "the files are created again", func() bool { return exists(access) && exists(process) })
	}
	traffic.Wait()
	w.signal(sigterm)
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}

	seen := map[string]int{}
	files := rotatedLines(t, access)
	for _, lines := range files {
		for _, line := range lines {
			seen[line]++
		}
	}
	for n := range clientCount {
		for i := range perClient {
			if line := fmt.Sprintf("%d-%d 200", n, i); seen[line] != 1 {
				t.Fatalf("line %q occurs %d times, want once", line, seen[line])
			}
		}
	}
	if len(files) != rotations+1 || len(seen) != clientCount*perClient {
		t.Errorf("%d different lines in %d files, want %d in %d", len(seen), len(files), clientCount*perClient, rotations+1)
	}
	if text, _ := os.ReadFile(process); !strings.Contains(string(text), "drained") {
		t.Errorf("the new process log lacks the last line: %q", text)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// rotatedLines returns the lines of the file and of the files it was renamed to.
func rotatedLines(t *testing.T, path string) [][]string {
	t.Helper()
	names, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		out = append(out, lines)
	}
	return out
}
