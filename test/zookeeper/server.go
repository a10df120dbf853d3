// Package zookeeper runs real ZooKeeper servers for tests: one, or three that elect a
// leader among them, on loopback and with folders that the test made. They are Debian's
// package zookeeper; a test that asks for one where it cannot be had is skipped, and
// says so.
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
	// jar is where the package of Debian has the server.
	jar = "/usr/share/java/zookeeper.jar"
	// logger writes to the standard error; without it, or another, ZooKeeper is silent.
	logger = "/usr/share/java/slf4j-simple.jar"
	// patience is how long a server may take to serve.
	patience = 60 * time.Second
	interval = 20 * time.Millisecond
)

// Options of a server. The zero value is a usual one.
type Options struct {
	// Tick is ZooKeeper's unit of time; a session lasts from 2 to 20 of them. 0: 500 ms.
	Tick time.Duration
	// MaxBuffer is the greatest request that the server reads, in bytes
	// (jute.maxbuffer); 0: its default, 1 MiB.
	MaxBuffer int
	// Config is appended to zoo.cfg.
	Config []string
}

// Server is a ZooKeeper server. Its methods are for the goroutine of the test.
type Server struct {
	t       testing.TB
	options Options
	address string
	folder  string // its data and configuration
	process *child.Process
}

// Start runs one server until the end of the test, and returns when it serves.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	demand(t)
	s := newServer(t, options, ports(t, 1)[0])
	s.configure("", 0)
	s.Restart()
	return s
}

// demand skips the test where there are no servers.
func demand(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("no Java to run ZooKeeper with")
	}
	if _, err := os.Stat(jar); err != nil {
		t.Skipf("no ZooKeeper: %v (Debian's package zookeeper has it)", err)
	}
}

// ports returns ports of loopback that the servers of this test may listen on, and nobody
// else, however often they are restarted, until the end of the test.
func ports(t testing.TB, n int) []int {
	t.Helper()
	found := make([]int, n)
	for i := range found {
		var err error
		if found[i], err = reserve(t.Cleanup); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// reserve has a socket bound to a port that does not listen: the kernel gives the port to
// nobody, and leaves it to who asks for it by SO_REUSEADDR, as Java does.
func reserve(atEnd func(func())) (port int, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	atEnd(func() { _ = syscall.Close(fd) }) // it has carried nothing
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
	return &Server{t: t, options: options, address: "127.0.0.1:" + strconv.Itoa(port), folder: t.TempDir()}
}

// configure writes zoo.cfg. members is what it says of an ensemble, id this server's
// number in it.
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

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

func (s *Server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Address returns where the server listens, as host:port.
func (s *Server) Address() string { return s.address }

// Restart runs the server again, with the data it has, and returns when it serves.
func (s *Server) Restart() {
	s.t.Helper()
	s.launch()
	s.Await()
}

// launch runs the process.
func (s *Server) launch() {
	s.t.Helper()
	buffer := s.options.MaxBuffer
	if buffer == 0 {
		buffer = 0xfffff
	}
	cmd := exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", child.JavaHosts(s.t),
		"-Djute.maxbuffer="+strconv.Itoa(buffer), "-Dzookeeper.forceSync=no", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", jar+":"+logger,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.folder, "zoo.cfg"))
	cmd.Dir = s.folder
	s.process = child.Start(s.t, "ZooKeeper "+s.address, cmd)
}

// Await returns when the server serves, alone or as one of an ensemble.
func (s *Server) Await() {
	s.t.Helper()
	s.process.Await(s.t, patience, interval, func() bool { return s.Mode() != "" })
}

// Mode returns what the server says it is: standalone, leader or follower; "": it does
// not serve.
func (s *Server) Mode() string {
	conn, err := net.DialTimeout("tcp", s.address, time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }() // it was asked all it is asked
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

func command(w io.Writer, word string) error {
	_, err := io.WriteString(w, word)
	return err
}

// Kill ends the server without a farewell, and returns when it has ended. Its data stay.
func (s *Server) Kill() { s.process.Kill() }

// Forget removes the data of a server that was killed.
func (s *Server) Forget() {
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

// Pause stops the process where it is: its connections stay, and nothing is answered.
func (s *Server) Pause() { s.process.MustSignal(s.t, syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.process.MustSignal(s.t, syscall.SIGCONT) }

// Ensemble is three servers that elect a leader among them.
type Ensemble struct{ Servers []*Server }

// StartEnsemble runs three servers until the end of the test, and returns when all of
// them serve.
func StartEnsemble(t testing.TB, options Options) *Ensemble {
	t.Helper()
	demand(t)
	const n = 3
	found := ports(t, 3*n)
	var members strings.Builder
	members.WriteString("initLimit=20\nsyncLimit=10\n")
	for i := range n {
		fmt.Fprintf(&members, "server.%d=127.0.0.1:%d:%d\n", i+1, found[3*i+1], found[3*i+2])
	}
	e := &Ensemble{}
	for i := range n {
		s := newServer(t, options, found[3*i])
		s.configure(members.String(), i+1)
		e.Servers = append(e.Servers, s)
	}
	for _, s := range e.Servers {
		s.launch()
	}
	for _, s := range e.Servers {
		s.Await()
	}
	return e
}

// Address returns where the servers listen, as host:port,host:port,host:port.
func (e *Ensemble) Address() string {
	addresses := make([]string, len(e.Servers))
	for i, s := range e.Servers {
		addresses[i] = s.address
	}
	return strings.Join(addresses, ",")
}

// Leader returns the server that leads, once there is one.
func (e *Ensemble) Leader() *Server {
	t := e.Servers[0].t
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(interval) {
		for _, s := range e.Servers {
			if s.Mode() == "leader" {
				return s
			}
		}
	}
	t.Fatalf("none of the servers leads after %v", patience)
	return nil
}
