package chaos

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// hostEnv is the environment variable that makes the test binary a host. Its value is the name, the
// HTTP address and the Dubbo address, separated by commas.
const hostEnv = "WEFT_CHAOS_HOST"

// host is a server: HTTP/1.1, HTTP/2 and gRPC on one port, Dubbo on another.
type host struct {
	name   string
	server *http.Server
	rpc    net.Listener
	posts  *opCounts // POSTs; nil: not recorded
	wg     sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
}

// opCounts counts operations that must not be repeated.
type opCounts struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

// record records an operation.
func (o *opCounts) record(op string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = map[string]int{}
	}
	o.counts[op]++
}

// checkOnce verifies that operations were recorded, and each of them only once.
func (o *opCounts) checkOnce(r *testRun) {
	r.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.counts) == 0 {
		r.Error("no operations were recorded, want at least one")
	}
	for op, n := range o.counts {
		if n > 1 {
			r.Errorf("%.60s was executed %d times, want once", op, n)
		}
	}
}

// newHost serves on the listeners until close. It records POSTs in posts, which may be nil.
func newHost(name string, web, rpc net.Listener, posts *opCounts) *host {
	h := &host{name: name, rpc: rpc, posts: posts, conns: map[net.Conn]bool{}}
	h.server = &http.Server{Handler: h, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute, ConnState: func(c net.Conn, s http.ConnState) {
		h.trackConn(c, s != http.StateClosed && s != http.StateHijacked)
	}}
	h.server.Protocols.SetHTTP1(true)
	h.server.Protocols.SetUnencryptedHTTP2(true)
	h.wg.Go(func() { _ = h.server.Serve(web) }) // until close
	h.wg.Go(h.acceptRPC)
	return h
}

// trackConn adds an open connection, or removes a closed one.
func (h *host) trackConn(c net.Conn, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if open {
		h.conns[c] = true
	} else {
		delete(h.conns, c)
	}
}

// resetConns closes every connection with a RST.
func (h *host) resetConns() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the connection may be closed already
			_ = tcp.Close()
		}
	}
}

// close stops the host and waits for its goroutines.
func (h *host) close() {
	_ = h.rpc.Close()
	_ = h.server.Close()
	h.resetConns()
	h.wg.Wait()
}

// ServeHTTP responds with the content of the token, after the milliseconds of the parameter wait.
func (h *host) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set(hostHeader, h.name)
	if request.URL.Path == grpcPath {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = io.Copy(w, request.Body) // fails if the client has disconnected
		w.Header().Set("Grpc-Status", "0")
		return
	}
	query := request.URL.Query()
	if wait, err := strconv.Atoi(query.Get("wait")); err == nil {
		sleep(request.Context().Done(), time.Duration(wait)*time.Millisecond)
	}
	token := query.Get("token")
	if request.Method == http.MethodPost && h.posts != nil {
		h.posts.record(token)
	}
	size, _ := strconv.Atoi(query.Get("size")) // missing: 0
	_, _ = io.WriteString(w, bodyFor(token, size))
}

func (h *host) acceptRPC() {
	for {
		c, err := h.rpc.Accept()
		if err != nil {
			return
		}
		h.trackConn(c, true)
		h.wg.Go(func() {
			defer h.trackConn(c, false)
			defer func() { _ = c.Close() }() // the connection may be closed already
			_ = serveRPC(c)                  // until the connection ends
		})
	}
}

// serveRPC responds to each call with its string.
func serveRPC(c net.Conn) error {
	p, err := frame.Find("dubbo")
	if err != nil {
		return err
	}
	for r := bufio.NewReader(c); ; {
		b, err := readDubbo(r)
		if err != nil {
			return err
		}
		_, f, err := p.Parse(b)
		if err != nil {
			return err
		}
		var response []byte
		switch f.Kind {
		case frame.Ping:
			response = p.AppendPong(nil, f.ID)
		case frame.Request:
			response = p.AppendResponse(nil, f.ID, f.Text)
		default:
			continue
		}
		if _, err := c.Write(response); err != nil {
			return err
		}
	}
}

// addresses holds the addresses that a host serves.
type addresses struct{ http, rpc string }

// newHost starts a host in the test process on loopback.
func (r *testRun) newHost(name string) (*host, addresses) {
	r.Helper()
	web, rpc := r.listen("127.0.0.1:0"), r.listen("127.0.0.1:0")
	h := newHost(name, web, rpc, nil)
	r.Cleanup(h.close)
	return h, addresses{web.Addr().String(), rpc.Addr().String()}
}

func (r *testRun) listen(address string) net.Listener {
	r.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// runHost serves as a host until the process is killed or its stdin is closed. On SIGUSR1 the
// process exits with a RST on each connection.
func runHost(spec string) int {
	parts := strings.Split(spec, ",")
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", parts[1+i])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		listeners[i] = l
	}
	reset := make(chan os.Signal, 1)
	signal.Notify(reset, syscall.SIGUSR1)
	h := newHost(parts[0], listeners[0], listeners[1], nil)
	stdinClosed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stdinClosed)
	}()
	fmt.Println("serving")
	select {
	case <-reset:
		h.resetConns()
	case <-stdinClosed:
	}
	return 0
}

// hostProcess is a host in its own process, which a test can kill and restart.
type hostProcess struct {
	r         *testRun
	name      string
	addresses addresses
	cmd       *exec.Cmd // nil: not running
}

// newHostProcess starts a host process.
func (r *testRun) newHostProcess(name string) *hostProcess {
	r.Helper()
	p := &hostProcess{r: r, name: name, addresses: addresses{freeAddress(), freeAddress()}}
	if err := p.start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { p.signalAndWait(syscall.SIGKILL) })
	return p
}

// start starts the process and returns when the host serves.
func (p *hostProcess) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), hostEnv+"="+strings.Join([]string{p.name, p.addresses.http, p.addresses.rpc}, ","), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	// The child exits when its stdin is closed. Pdeathsig would fire when the thread that started
	// the child ends, which may be before this process ends.
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("host %s printed %q: %w", p.name, line, err)
	}
	return nil
}

// signalAndWait sends the signal to the process, if it runs, and waits for its exit.
func (p *hostProcess) signalAndWait(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig) // the process may have exited
	_ = p.cmd.Wait()              // the exit status is that of the signal
	p.cmd = nil
}
