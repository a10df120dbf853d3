package h2

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/subject"
)

// startNginx runs nginx with HTTP/2 until the end of the test and returns its address. locations
// are the location blocks of its configuration. nginx serves files from the directory root.
func startNginx(t *testing.T, locations string) (address, root string) {
	t.Helper()
	program := requireTool(t, "nginx", "nginx")
	dir, address := t.TempDir(), freeAddress(t)
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;" // otherwise the worker cannot read the directory
	}
	text := fmt.Sprintf(`%[1]s
worker_processes 1;
daemon off;
pid %[2]s/nginx.pid;
error_log stderr error;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	client_max_body_size 64m;
	server {
		listen %[3]s http2;
		root %[2]s;
		%[4]s
	}
}
`, user, dir, address, locations)
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := subject.NewLogBuffer()
	cmd := exec.Command(program, "-p", dir, "-e", "stderr", "-c", path)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the master stops its worker
		_ = cmd.Wait()                          // a signal stopped it
		if t.Failed() && log.String() != "" {
			t.Logf("nginx wrote:\n%s", log)
		}
	})
	awaitListener(t, address)
	return address, dir
}

// awaitListener waits until the address accepts connections.
func awaitListener(t *testing.T, address string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	for {
		conn, err := dial(address)
		if err == nil {
			_ = conn.Close() // nothing was sent
			return
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("no listener at %s: %v", address, err)
		}
	}
}

// TestNginxOnBothSides verifies that nginx forwards requests over HTTP/2 to Weft, and that Weft
// forwards them to nginx. nginx uses its gRPC module.
func TestNginxOnBothSides(t *testing.T) {
	t.Parallel()
	requireTool(t, "nginx", "nginx")
	pass := func(upstream string) string { return "location / { grpc_pass grpc://" + upstream + "; }" }
	for name, start := range map[string]func(t *testing.T, origin string) (address string){
		"nginx alone": func(t *testing.T, origin string) string {
			address, _ := startNginx(t, pass(origin))
			return address
		},
		"nginx before weft": func(t *testing.T, origin string) string {
			w := startWeft(t, listener{upstream: "Http2", hosts: []string{origin}})
			address, _ := startNginx(t, pass(w.addresses[0]))
			return address
		},
		"nginx after weft": func(t *testing.T, origin string) string {
			address, _ := startNginx(t, pass(origin))
			return startWeft(t, listener{upstream: "Http2", hosts: []string{address}}).addresses[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startOrigin(t, true)
			url := "http://" + start(t, o.address)
			checkContains(t, curl(t, "--header", "Content-Type: application/grpc", "--data-binary", "@"+tempFile(t, 1000), url+"/call"), "POST /call 2 1000\n", "\nHTTP/2 200\n")
			checkContains(t, curl(t, "--data-binary", "@"+tempFile(t, 10<<20), url+"/upload"), "POST /upload 2 10485760\n")
			checkContains(t, curl(t, "--output", os.DevNull, "--write-out", "%{size_download}\n", url+"/bytes/10485760"), "10485760\n")
			checkContains(t, curl(t, "--header", "X-Before: value", url+"/trailers"), "content\n", "\nx-after: value\r\n")
			h2load(t, "1000", "-n1000", "-c2", "-m50", url+"/bytes/1024")
		})
	}
}

// TestNoServerPush verifies that a client of Weft receives no push, although nginx pushes to
// clients that allow it.
func TestNoServerPush(t *testing.T) {
	t.Parallel()
	nghttp := requireTool(t, "nghttp", "nghttp2-client")
	address, dir := startNginx(t, "location = /page { http2_push /pushed; }")
	for _, name := range []string{"page", "pushed"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out := run(t, nghttp, "-v", "http://"+address+"/page"); !strings.Contains(out, "recv PUSH_PROMISE") {
		t.Skip("SKIPPED: this nginx does not push")
	}
	w := startWeft(t, listener{upstream: "Http2", hosts: []string{address}})
	out := run(t, nghttp, "-v", "http://"+w.addresses[0]+"/page")
	checkContains(t, out, ":status: 200", "page\n")
	if strings.Contains(out, "PUSH_PROMISE") {
		t.Errorf("nghttp received a push:\n%s", out)
	}
}
