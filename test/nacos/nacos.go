// Package nacos runs real Nacos servers for tests: standalone, with the embedded database. Nacos's
// modules come from Maven Central. A server always opens its gRPC ports on every address, so the
// tests run in their own network namespace:
//
//	func TestMain(m *testing.M) { os.Exit(nacos.Main(m, "../../../../..")) }
//
// A test without an available server is skipped with a message.
package nacos

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/child"
	"github.com/weft-proxy/weft/test/interop/kit"
	"github.com/weft-proxy/weft/test/netns"
)

const (
	// dirEnv and problemEnv are environment variables for the process that runs the tests. dirEnv
	// is the directory of the server. problemEnv is the reason why the tests cannot run.
	dirEnv     = "WEFT_NACOS"
	problemEnv = "WEFT_NO_NACOS"
	// waitTimeout is the timeout of server starts and of Peer.AwaitProviders.
	waitTimeout  = 120 * time.Second
	pollInterval = 100 * time.Millisecond

	// User is the administrator, if authentication is enabled.
	User = "nacos"
	// Password is the password of User.
	Password = "nacos"
)

// Main builds the server and runs the tests in their own network namespace. TestMain calls it with
// the root directory of the checkout and exits with the returned status.
func Main(m *testing.M, root string) int {
	flag.Parse()
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		return m.Run()
	}
	if netns.InNamespace() {
		if err := netns.LoopbackUp(); err != nil {
			return fail(err)
		}
		return m.Run()
	}
	if err := build(root); err != nil {
		return fail(err)
	}
	status, err := netns.RunInNamespace()
	if err == nil {
		return status
	}
	if err := os.Setenv(problemEnv, fmt.Sprintf("no network namespace for Nacos: %v", err)); err != nil {
		return fail(err)
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "nacos:", err)
	return 1
}

// build builds the server and sets dirEnv. If a tool or a download is missing, build sets
// problemEnv.
func build(root string) error {
	tools, err := filepath.Abs(filepath.Join(root, ".tools", "nacos"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(tools, 0o755); err != nil { //nolint:gosec // jars are not secret
		return err
	}
	dir, err := kit.Java().Get(filepath.Join(root, "test", "nacos"), tools)
	var missing *kit.MissingError
	if errors.As(err, &missing) {
		return os.Setenv(problemEnv, missing.Reason)
	}
	if err != nil {
		return err
	}
	return os.Setenv(dirEnv, dir)
}

// Options configures a server. The zero value disables authentication.
type Options struct {
	// Auth enables authentication with the user User.
	Auth bool
}

// Server is a Nacos server. Only the test's goroutine may call its methods.
type Server struct {
	t       testing.TB
	options Options
	address string
	dir     string // of its data and configuration
	process *child.Process
}

// Start runs a server on port 8848 until the end of the test and returns when it serves. The server
// also uses the ports 7848, 9848 and 9849, so a test has one server at a time.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	if problem := os.Getenv(problemEnv); problem != "" {
		t.Skip(problem)
	}
	if os.Getenv(dirEnv) == "" {
		t.Skip("the test's TestMain has not called nacos.Main")
	}
	s := &Server{t: t, options: options, address: "127.0.0.1:8848", dir: t.TempDir()}
	s.configure()
	s.Restart()
	return s
}

func (s *Server) configure() {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	lines := []string{
		"server.address=" + host,
		"server.port=" + port,
		"server.servlet.contextPath=/nacos",
		"nacos.core.auth.enabled=" + strconv.FormatBool(s.options.Auth),
		"nacos.core.auth.system.type=nacos",
		"nacos.core.auth.server.identity.key=weft",
		"nacos.core.auth.server.identity.value=test",
		"nacos.core.auth.plugin.nacos.token.secret.key=V2VmdC10ZXN0LXNlY3JldC1rZXktb2YtdGhpcnR5LXR3by1ieXRlcy1hdC1sZWFzdA==",
		"spring.autoconfigure.exclude=org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration",
		"spring.main.banner-mode=off",
	}
	conf := filepath.Join(s.dir, "conf")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(conf, "application.properties"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Address returns the address of the server as host:port.
func (s *Server) Address() string { return s.address }

// Restart starts the server again and returns when it serves. Configurations persist. Registered
// instances do not.
func (s *Server) Restart() {
	s.t.Helper()
	s.launch()
	s.process.Await(s.t, waitTimeout, pollInterval, s.isReady)
}

func (s *Server) launch() {
	s.t.Helper()
	buildDir := filepath.Join(os.Getenv(dirEnv), "server")
	cmd := exec.Command("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", child.JavaHosts(s.t),
		"-Dnacos.standalone=true", "-Dnacos.home="+s.dir, "-Dnacos.server.ip=127.0.0.1",
		"-Dspring.config.additional-location=file:"+filepath.Join(s.dir, "conf")+"/",
		"-cp", filepath.Join(buildDir, "server.jar")+":"+filepath.Join(buildDir, "lib", "*"), "com.alibaba.nacos.Server")
	cmd.Dir = s.dir
	s.process = child.Start(s.t, "Nacos "+s.address, cmd)
}

// isReady reports whether services can be registered.
func (s *Server) isReady() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/nacos/v1/ns/operator/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }() // the body was read
	body, err := io.ReadAll(response.Body)
	return err == nil && bytes.Contains(body, []byte(`"UP"`))
}

// Kill kills the server and returns when it has exited. The configurations persist.
func (s *Server) Kill() { s.process.Kill() }

// Pause stops the process with SIGSTOP: the connections stay open, and the server does not respond.
func (s *Server) Pause() { s.process.MustSignal(s.t, syscall.SIGSTOP) }

// Resume continues a paused server.
func (s *Server) Resume() { s.process.MustSignal(s.t, syscall.SIGCONT) }
