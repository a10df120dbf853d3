package h2

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/subject"
)

// waitTimeout is the timeout of operations that should complete immediately. The machine may be
// busy.
const waitTimeout = 15 * time.Second

// object is a JSON object.
type object map[string]any

// listener describes a listener of Weft: Weft responds to the path /direct itself and forwards all
// other paths to the hosts.
type listener struct {
	downstream string   // protocol; "": Http2
	upstream   string   // protocol; "": the protocol of the client
	hosts      []string // addresses; nil: Weft responds to every request
	extend     object   // extend_config: limits
	route      object   // additional keys of the route to the hosts
}

// weft is a process under test.
type weft struct {
	addresses []string // of the listeners, in order
	cmd       *exec.Cmd
	log       *subject.LogBuffer
	exited    chan struct{} // closed when the process has exited
}

// startWeft runs Weft until the end of the test and returns when all listeners are open. It skips
// the test if the listeners need a feature that Weft does not support yet.
func startWeft(t *testing.T, listeners ...listener) *weft {
	t.Helper()
	binary, err := weftBinary()
	if err != nil {
		t.Fatal(err)
	}
	w := &weft{log: subject.NewLogBuffer(), exited: make(chan struct{})}
	for range listeners {
		w.addresses = append(w.addresses, freeAddress(t))
	}
	path := filepath.Join(t.TempDir(), "weft.json")
	text, err := json.MarshalIndent(configuration(w.addresses, listeners), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	requireSupport(t, binary, path)
	w.cmd = exec.Command(binary, "start", "-c", path)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.exited)
		_ = w.cmd.Wait() // ProcessState has the result
		w.log.Close()
	}()
	t.Cleanup(func() { w.kill(t) })
	if _, err := w.log.Await(0, "is ready", waitTimeout); err != nil {
		t.Fatal(err)
	}
	return w
}

// kill kills the process and checks its log for defects.
func (w *weft) kill(t *testing.T) {
	_ = w.cmd.Process.Kill() // the process may have exited
	<-w.exited
	w.log.CheckLog(t)
}

// terminate asks Weft to shut down gracefully.
func (w *weft) terminate(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// awaitExit waits until the process exits, and returns the exit status.
func (w *weft) awaitExit(t *testing.T, d time.Duration) int {
	t.Helper()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case <-w.exited:
	case <-timeout.C:
		t.Fatalf("weft did not exit within %v", d)
	}
	return w.cmd.ProcessState.ExitCode()
}

// requireSupport skips the test if "weft check" rejects the configuration only for features that
// are not supported yet, and fails it for any other problem.
func requireSupport(t *testing.T, binary, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "check", "-c", path)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	missing := ""
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, path+":") {
			continue // the summary line
		}
		if !strings.Contains(line, "is not supported yet") {
			t.Fatalf("weft check: %v\n%s", err, out)
		}
		missing = strings.TrimSpace(line[strings.LastIndex(line, ": ")+2:])
	}
	if missing == "" {
		t.Fatalf("weft check: %v\n%s", err, out)
	}
	t.Skip("SKIPPED: " + missing)
}

// configuration returns a config.json with the listeners on the addresses.
func configuration(addresses []string, listeners []listener) object {
	var listenerList, routers, clusters []object
	for i, l := range listeners {
		id := fmt.Sprintf("l%d", i)
		proxy := object{"downstream_protocol": firstNonEmpty(l.downstream, "Http2"), "router_config_name": id}
		if l.upstream != "" {
			proxy["upstream_protocol"] = l.upstream
		}
		if l.extend != nil {
			proxy["extend_config"] = l.extend
		}
		listenerList = append(listenerList, object{
			"name": id, "address": addresses[i],
			"filter_chains": []object{{"filters": []object{{"type": "proxy", "config": proxy}}}},
		})
		reply := object{"status": 200, "body": "response of the proxy\n"}
		routes := []object{{"match": object{"path": "/direct"}, "direct_response": reply}}
		if l.hosts == nil {
			routes = []object{{"match": object{"prefix": "/"}, "direct_response": reply}}
		} else {
			forward := object{"cluster_name": id}
			maps.Copy(forward, l.route)
			routes = append(routes, object{"match": object{"prefix": "/"}, "route": forward})
			var hosts []object
			for _, h := range l.hosts {
				hosts = append(hosts, object{"address": h})
			}
			clusters = append(clusters, object{"name": id, "type": "SIMPLE", "lb_type": "LB_ROUNDROBIN", "hosts": hosts})
		}
		routers = append(routers, object{
			"router_config_name": id,
			"virtual_hosts":      []object{{"name": id, "domains": []string{"*"}, "routers": routes}},
		})
	}
	return object{
		"servers": []object{{
			"default_log_path": "stderr", "graceful_timeout": "10s",
			"listeners": listenerList, "routers": routers,
		}},
		"cluster_manager": object{"clusters": clusters},
	}
}

func firstNonEmpty(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

// freeAddress returns a loopback address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// dial connects to an address and sets a deadline for the connection.
func dial(address string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, waitTimeout)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(waitTimeout))
	}
	return conn, err
}

// port returns the port of an address.
func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
