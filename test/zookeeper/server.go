// Package zookeeper runs real ZooKeeper servers for tests: a single one, or an ensemble of three,
// on loopback with temporary directories. It uses Debian's package zookeeper and skips the test if
// the package is not installed.
package zookeeper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/child"
)

const (
	// jar is the path of the server in the Debian package.
	jar = "/usr/share/java/zookeeper.jar"
	// slf4jJar is the path of an SLF4J binding that logs to stderr. Without a binding, ZooKeeper
	// logs nothing.
	slf4jJar = "/usr/share/java/slf4j-simple.jar"
	// waitTimeout is the timeout of server starts and leader elections.
	waitTimeout  = 60 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Options configures a server.
type Options struct {
	// Tick is ZooKeeper's unit of time; a session lasts from 2 to 20 ticks. 0: 500 ms.
	Tick time.Duration
	// MaxBuffer is the maximum size of a request in bytes (jute.maxbuffer); 0: the default, which
	// is one byte less than 1 MiB.
	MaxBuffer int
	// Config holds further lines of zoo.cfg.
	Config []string
}

// Server is a ZooKeeper server. Only the test's goroutine may call its methods.
type Server struct {
	t       testing.TB
	options Options
	address string
	dir     string // of its data and configuration
	process *child.Process
}

// Start runs one server until the end of the test and returns when it serves.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	requirePrograms(t)
	s := newServer(t, options, reservePorts(t, 1)[0])
	s.configure("", 0)
	s.Restart()
	return s
}

// requirePrograms skips the test if Java or ZooKeeper is not installed.
func requirePrograms(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("Java is not installed")
	}
	if _, err := os.Stat(jar); err != nil {
		t.Skipf("ZooKeeper is not installed: %v (Debian package zookeeper)", err)
	}
}

// reservePorts returns loopback ports. They stay reserved for the servers of this test until the
// test ends, also across restarts.
func reservePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		var err error
		if ports[i], err = reservePort(t.Cleanup); err != nil {
			t.Fatal(err)
		}
	}
	return ports
}

// reservePort binds a socket to a port without listening: the kernel does not assign the port to
// other sockets, but a server with SO_REUSEADDR, as in Java, can listen on it.
func reservePort(atEnd func(func())) (port int, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	atEnd(func() { _ = syscall.Close(fd) }) // nothing was sent
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
	)
	if err != nil {
		return 0, err
	}
	address, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return address.(*syscall.SockaddrInet4).Port, nil
}

func newServer(t testing.TB, options Options, port int) *Server {
	if options.Tick == 0 {
		options.Tick = 500 * time.Millisecond
	}
	return &Server{t: t, options: options, address: "127.0.0.1:" + strconv.Itoa(port), dir: t.TempDir()}
}

// configure writes zoo.cfg. members holds the lines about the ensemble. id is the number of this
// server in the ensemble, or 0 for a standalone server.
func (s *Server) configure(members string, id int) {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	lines := []string{
		"dataDir=" + s.data(),
		"clientPort=" + port,
		"clientPortAddress=" + host,
		"tickTime=" + strconv.FormatInt(s.options.Tick.Milliseconds(), 10),
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=srvr",
		members,
	}
	text := strings.Join(append(lines, s.options.Config...), "\n") + "\n"
	s.write("zoo.cfg", text)
	if err := os.MkdirAll(s.data(), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if id != 0 {
		s.write("data/myid", strconv.Itoa(id))
	}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Address returns the address of the server as host:port.
func (s *Server) Address() string { return s.address }

// Restart starts the server again with its data and returns when it serves.
func (s *Server) Restart() {
	s.t.Helper()
	s.launch()
	s.AwaitReady()
}

// launch starts the process.
func (s *Server) launch() {
	s.t.Helper()
	maxBuffer := s.options.MaxBuffer
	if maxBuffer == 0 {
		maxBuffer = 0xfffff
	}
	cmd := exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", child.JavaHosts(s.t),
		"-Djute.maxbuffer="+strconv.Itoa(maxBuffer), "-Dzookeeper.forceSync=no", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", jar+":"+slf4jJar,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.dir, "zoo.cfg"))
	cmd.Dir = s.dir
	s.process = child.Start(s.t, "ZooKeeper "+s.address, cmd)
}

// AwaitReady returns when the server serves, standalone or in an ensemble.
func (s *Server) AwaitReady() {
	s.t.Helper()
	s.process.Await(s.t, waitTimeout, pollInterval, func() bool { return s.Mode() != "" })
}

// Mode returns the server's mode: standalone, leader or follower; "" if it does not serve.
func (s *Server) Mode() string {
	conn, err := net.DialTimeout("tcp", s.address, time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }() // nothing more is sent
	if err := errors.Join(conn.SetDeadline(time.Now().Add(time.Second)), command(conn, "srvr")); err != nil {
		return ""
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if mode, ok := strings.CutPrefix(lines.Text(), "Mode: "); ok {
			return mode
		}
	}
	return ""
}

func command(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// Kill kills the server and returns when it has exited. The data remain.
func (s *Server) Kill() { s.process.Kill() }

// RemoveData removes the data of a killed server.
func (s *Server) RemoveData() {
	s.t.Helper()
	entries, err := filepath.Glob(filepath.Join(s.data(), "version-*"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(entry); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Pause stops the process with SIGSTOP: the connections stay open, and the server does not respond.
func (s *Server) Pause() { s.process.MustSignal(s.t, syscall.SIGSTOP) }

// Resume continues a paused server.
func (s *Server) Resume() { s.process.MustSignal(s.t, syscall.SIGCONT) }

// Ensemble holds three servers that elect a leader.
type Ensemble struct{ Servers []*Server }

// StartEnsemble runs three servers until the end of the test and returns when all of them serve.
func StartEnsemble(t testing.TB, options Options) *Ensemble {
	t.Helper()
	requirePrograms(t)
	const n = 3
	ports := reservePorts(t, 3*n)
	var members strings.Builder
	members.WriteString("initLimit=20\nsyncLimit=10\n")
	for i := range n {
		fmt.Fprintf(&members, "server.%d=127.0.0.1:%d:%d\n", i+1, ports[3*i+1], ports[3*i+2])
	}
	e := &Ensemble{}
	for i := range n {
		s := newServer(t, options, ports[3*i])
		s.configure(members.String(), i+1)
		e.Servers = append(e.Servers, s)
	}
	for _, s := range e.Servers {
		s.launch()
	}
	for _, s := range e.Servers {
		s.AwaitReady()
	}
	return e
}

// Address returns the addresses of the servers as host:port,host:port,host:port.
func (e *Ensemble) Address() string {
	addresses := make([]string, len(e.Servers))
	for i, s := range e.Servers {
		addresses[i] = s.address
	}
	return strings.Join(addresses, ",")
}

// Leader waits until there is a leader and returns it.
func (e *Ensemble) Leader() *Server {
	t := e.Servers[0].t
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); time.Sleep(pollInterval) {
		for _, s := range e.Servers {
			if s.Mode() == "leader" {
				return s
			}
		}
	}
	t.Fatalf("no leader after %v", waitTimeout)
	return nil
}
