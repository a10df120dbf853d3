// Package peer runs the programs that are measured, each with the configuration
// that makes them do the same work: proxies on one thread, with connections kept
// alive on both sides and no access log. They carry HTTP/1.1, HTTP/2, one as the
// other, or an RPC protocol, of which haproxy and the relay know only the bytes.
package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/test/bench/certs"
	"github.com/weft-proxy/weft/test/bench/frame"
	"github.com/weft-proxy/weft/test/bench/h2"
	"github.com/weft-proxy/weft/test/bench/process"
)

// Config is what a program is to be started with.
type Config struct {
	Dir         string         // an empty directory of its own, for its files
	Listen      netip.AddrPort // where it is to listen
	Origin      netip.AddrPort // where its requests go
	Admin       netip.AddrPort // where its operator's port is to be, if it has one
	Connections int            // how many connections it must be able to hold on each side
	Profile     bool           // its profiler is to be on, if it has one
	MaxQueued   int            // bytes that may wait to be sent to the origin; 0: its default

	Protocol *frame.Protocol // what callers and origin speak; nil: HTTP
	HTTP     Sides           // versions of HTTP

	Certificates certs.Dir // of Sides.MutualTLS
}

// Sides says which version of HTTP is spoken on either side of a program. The zero
// value is HTTP/1.1.
type Sides struct {
	Callers2 bool // callers speak HTTP/2 with prior knowledge
	Origin2  bool // the origin does
	GRPC     bool // it is calls of gRPC

	MutualTLS bool // callers speak TLS 1.3, and either side shows a certificate
}

// Same tells whether callers and origin could speak to each other.
func (s Sides) Same() bool { return s.Callers2 == s.Origin2 && !s.MutualTLS }

// String is "" for HTTP/1.1.
func (s Sides) String() string {
	name := func(second bool) string {
		if second {
			return "HTTP/2"
		}
		return "HTTP/1.1"
	}
	switch {
	case s == Sides{}:
		return ""
	case s.MutualTLS:
		return "mutual TLS"
	case s.GRPC:
		return "gRPC"
	case s.Same():
		return name(s.Callers2)
	}
	return name(s.Callers2) + " to " + name(s.Origin2)
}

// ErrNotSupported tells that a program knows of a protocol and does not carry it.
var ErrNotSupported = errors.New("not supported")

// Program is one that can be measured.
type Program struct {
	Name string
	Path string // of the executable
	HTTP bool   // it carries nothing else

	// configure writes the files of the configuration and returns the arguments
	// of a process that runs it in the foreground.
	configure func(Config) ([]string, error)
	// version holds the arguments that make it tell its version.
	version []string
}

// Version returns the first line that the program tells of its version, or ""
// if it has none.
func (p Program) Version(ctx context.Context) string {
	if p.version == nil {
		return ""
	}
	text, err := exec.CommandContext(ctx, p.Path, p.version...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return string(bytes.TrimSpace(line))
}

// Host is where programs run: one directory, one CPU, one origin.
type Host struct {
	Launcher     *process.Launcher
	CPU          int
	Ports        *Ports
	Dir          string         // each program gets a directory below it
	Origin       netip.AddrPort // passed on in Config
	Connections  int            // passed on in Config
	Certificates certs.Dir      // passed on in Config
	Profile      bool           // passed on in Config
	MaxQueued    int            // passed on in Config
}

// Running is a program that was started. Stop it.
type Running struct {
	Program
	Listen netip.AddrPort
	Admin  netip.AddrPort
	PIDs   []int // the process and its descendants

	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when the process has ended; err is set then
	err    error
}

// startLimit is how long a program may take until it answers.
const startLimit = 20 * time.Second

// notSupported is how Weft says that it does not carry what it knows of.
const notSupported = "is not supported yet"

// Start starts the program with its configuration for the protocol, nil for
// HTTP/1.1, and returns when it proxies a request. The error is ErrNotSupported if
// the program says so of the protocol.
func (h *Host) Start(ctx context.Context, p Program, protocol *frame.Protocol) (*Running, error) {
	probe := HTTP("/b/1", 200)
	if protocol != nil {
		probe = RPC(protocol)
	}
	return h.start(ctx, p, Config{Protocol: protocol}, probe)
}

// StartHTTP is Start for versions of HTTP.
func (h *Host) StartHTTP(ctx context.Context, p Program, sides Sides) (*Running, error) {
	probe := HTTP("/b/1", 200)
	switch {
	case sides.MutualTLS:
		probe = HTTPS(h.Certificates, "/b/1", 200)
	case sides.GRPC:
		probe = HTTP2(h2.Unary, 5+1)
	case sides.Callers2:
		probe = HTTP2("/b/1", 1)
	}
	return h.start(ctx, p, Config{HTTP: sides}, probe)
}

// start completes the configuration.
func (h *Host) start(ctx context.Context, p Program, c Config, probe Probe) (*Running, error) {
	dir, err := os.MkdirTemp(h.Dir, p.Name+"-")
	if err != nil {
		return nil, err
	}
	ports, err := h.Ports.Take(2)
	if err != nil {
		return nil, err
	}
	c.Dir, c.Listen, c.Admin, c.Origin = dir, ports[0], ports[1], h.Origin
	c.Connections, c.Profile, c.MaxQueued, c.Certificates = h.Connections, h.Profile, h.MaxQueued, h.Certificates
	arguments, err := p.configure(c)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", p.Name, err)
	}
	return h.Launch(ctx, p, arguments, ports[0], ports[1], probe)
}

// Launch is Start with a configuration that is there already: the program
// listens at the addresses if it is run with the arguments. It returns when the
// probe succeeds.
func (h *Host) Launch(ctx context.Context, p Program, arguments []string, listen, admin netip.AddrPort, probe Probe) (*Running, error) {
	log, err := os.CreateTemp(h.Dir, p.Name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(p.Path, arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := h.Launcher.Start(cmd, h.CPU); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	r := &Running{
		Program: p, Listen: listen, Admin: admin,
		cmd: cmd, log: log.Name(), exited: make(chan struct{}),
	}
	go func() {
		r.err = cmd.Wait()
		close(r.exited)
	}()
	if err := r.ready(ctx, probe); err != nil {
		r.Stop()
		wrote := r.tail()
		if strings.Contains(wrote, notSupported) {
			err = errors.Join(ErrNotSupported, err)
		}
		return nil, fmt.Errorf("start %s: %w%s", p.Name, err, wrote)
	}
	r.PIDs = process.Tree(cmd.Process.Pid)
	return r, nil
}

// ready waits for a proxied request.
func (r *Running) ready(ctx context.Context, probe Probe) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return r.Await(ctx, probe)
}

// Await probes the program every millisecond until that succeeds. The error is
// that of the context, or tells that the program has ended.
func (r *Running) Await(ctx context.Context, probe Probe) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		err := probe(r.Listen)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-r.exited:
			return fmt.Errorf("it has ended: %w", orNone(r.err))
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// errNone stands for no error where one is told of.
var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// Signal sends the signal to the process that was started.
func (r *Running) Signal(s os.Signal) error { return r.cmd.Process.Signal(s) }

// stopLimit is how long a program may take to end before it is killed.
const stopLimit = 5 * time.Second

// Stop ends the program and returns when it has ended. It may be called again.
func (r *Running) Stop() {
	// An error means that it has ended already.
	_ = r.cmd.Process.Signal(syscall.SIGINT)
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-r.exited:
	case <-timer.C:
		for _, pid := range process.Tree(r.cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may end meanwhile
		}
		<-r.exited
	}
}

// tail returns the end of what the program wrote, for an error message.
func (r *Running) tail() string {
	text, err := os.ReadFile(r.log)
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\nit wrote: " + string(text[max(0, len(text)-2000):])
}

// write writes a file of a configuration and returns its path.
func write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
