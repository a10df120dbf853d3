// Package peer runs the programs under test, each with a configuration that makes it do the same
// work: a proxy on one thread, with keepalive connections on both sides and no access log. The
// programs proxy HTTP/1.1, HTTP/2 or an RPC protocol, or translate between the HTTP versions.
// haproxy and the relay forward RPC as bytes.
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

// Config holds the parameters of a program's configuration.
type Config struct {
	Dir         string         // an empty directory for the files of the program
	Listen      netip.AddrPort // address that the program listens on
	Origin      netip.AddrPort // address that the program forwards to
	Admin       netip.AddrPort // address of the admin port, if the program has one
	Connections int            // connections that the program must be able to hold on each side
	Profile     bool           // enables the profiler, if the program has one
	MaxQueued   int            // maximum number of pending bytes per origin connection; 0: the program's default

	Protocol *frame.Protocol // protocol of client and origin; nil: HTTP
	HTTP     Sides           // versions of HTTP

	Certificates certs.Dir // for Sides.MutualTLS
}

// Sides holds the HTTP versions of both sides of a program. The zero value is HTTP/1.1.
type Sides struct {
	ClientHTTP2 bool // the client uses HTTP/2 with prior knowledge
	OriginHTTP2 bool // the origin uses HTTP/2 with prior knowledge
	GRPC        bool // the requests are gRPC calls

	MutualTLS bool // the client uses TLS 1.3, and both sides present a certificate
	Sidecar   bool // MutualTLS with the filters of a sidecar, from a bootstrap file
}

// SameProtocol reports whether the client could use the origin without a proxy.
func (s Sides) SameProtocol() bool {
	return s.ClientHTTP2 == s.OriginHTTP2 && !s.MutualTLS && !s.Sidecar
}

// String returns a description, or "" for HTTP/1.1.
func (s Sides) String() string {
	name := func(http2 bool) string {
		if http2 {
			return "HTTP/2"
		}
		return "HTTP/1.1"
	}
	switch {
	case s == Sides{}:
		return ""
	case s.Sidecar:
		return "sidecar"
	case s.MutualTLS:
		return "mutual TLS"
	case s.GRPC:
		return "gRPC"
	case s.SameProtocol():
		return name(s.ClientHTTP2)
	}
	return name(s.ClientHTTP2) + " to " + name(s.OriginHTTP2)
}

// ErrNotSupported reports that a program does not support a protocol yet.
var ErrNotSupported = errors.New("not supported")

// Program is a program that can be measured.
type Program struct {
	Name     string
	Path     string // path of the executable
	HTTPOnly bool   // the program supports only HTTP

	// configure writes the configuration files and returns the arguments that run the program in
	// the foreground.
	configure func(Config) ([]string, error)
	// version holds the arguments that print the version.
	version []string
}

// Version returns the first line of the program's version output, or "" if that is not available.
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

// Environment is the environment of the programs: one directory, one CPU, one origin.
type Environment struct {
	Launcher     *process.Launcher
	CPU          int
	Ports        *Ports
	Dir          string         // parent of the directories of the programs
	Origin       netip.AddrPort // copied to Config
	Connections  int            // copied to Config
	Certificates certs.Dir      // copied to Config
	Profile      bool           // copied to Config
	MaxQueued    int            // copied to Config
}

// RunningProgram is a started program. The caller stops it.
type RunningProgram struct {
	Program
	Listen netip.AddrPort
	Admin  netip.AddrPort
	PIDs   []int // the process and its descendants

	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when the process has exited
	err    error         // result of cmd.Wait; set before exited is closed
}

// startTimeout is the maximum time until a started program serves a request.
const startTimeout = 20 * time.Second

// notSupported is the text with which Weft reports a feature that it does not support yet.
const notSupported = "is not supported yet"

// Start starts the program with a configuration for the protocol (nil: HTTP/1.1), and returns when
// the program has proxied a request. The error wraps ErrNotSupported if the program does not
// support the protocol.
func (e *Environment) Start(ctx context.Context, p Program, protocol *frame.Protocol) (*RunningProgram, error) {
	probe := HTTP("/b/1", 200)
	if protocol != nil {
		probe = RPC(protocol)
	}
	return e.start(ctx, p, Config{Protocol: protocol}, probe)
}

// StartHTTP is Start for the given HTTP versions.
func (e *Environment) StartHTTP(ctx context.Context, p Program, sides Sides) (*RunningProgram, error) {
	probe := HTTP("/b/1", 200)
	switch {
	case sides.MutualTLS, sides.Sidecar:
		probe = HTTPS(e.Certificates, "/b/1", 200)
	case sides.GRPC:
		probe = HTTP2(h2.Unary, 5+1)
	case sides.ClientHTTP2:
		probe = HTTP2("/b/1", 1)
	}
	return e.start(ctx, p, Config{HTTP: sides}, probe)
}

// start completes and writes the configuration, and launches the program.
func (e *Environment) start(ctx context.Context, p Program, c Config, probe Probe) (*RunningProgram, error) {
	dir, err := os.MkdirTemp(e.Dir, p.Name+"-")
	if err != nil {
		return nil, err
	}
	ports, err := e.Ports.Take(2)
	if err != nil {
		return nil, err
	}
	c.Dir, c.Listen, c.Admin, c.Origin = dir, ports[0], ports[1], e.Origin
	c.Connections, c.Profile, c.MaxQueued, c.Certificates = e.Connections, e.Profile, e.MaxQueued, e.Certificates
	arguments, err := p.configure(c)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", p.Name, err)
	}
	return e.Launch(ctx, p, arguments, ports[0], ports[1], probe)
}

// Launch starts the program with an existing configuration, and returns when the probe succeeds.
// The arguments name the configuration, which contains the addresses listen and admin.
func (e *Environment) Launch(ctx context.Context, p Program, arguments []string, listen, admin netip.AddrPort, probe Probe) (*RunningProgram, error) {
	log, err := os.CreateTemp(e.Dir, p.Name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(p.Path, arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := e.Launcher.Start(cmd, e.CPU); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	r := &RunningProgram{
		Program: p, Listen: listen, Admin: admin,
		cmd: cmd, log: log.Name(), exited: make(chan struct{}),
	}
	go func() {
		r.err = cmd.Wait()
		close(r.exited)
	}()
	if err := r.awaitReady(ctx, probe); err != nil {
		r.Stop()
		output := r.logTail()
		if strings.Contains(output, notSupported) {
			err = errors.Join(ErrNotSupported, err)
		}
		return nil, fmt.Errorf("start %s: %w%s", p.Name, err, output)
	}
	r.PIDs = process.Tree(cmd.Process.Pid)
	return r, nil
}

// awaitReady waits until the probe succeeds, at most startTimeout.
func (r *RunningProgram) awaitReady(ctx context.Context, probe Probe) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return r.Await(ctx, probe)
}

// Await probes the program every millisecond until the probe succeeds. It returns an error if the
// context ends or the program exits.
func (r *RunningProgram) Await(ctx context.Context, probe Probe) error {
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
			return fmt.Errorf("the program has exited: %w", orUnknown(r.err))
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// errUnknown replaces a nil error in a message.
var errUnknown = errors.New("no error")

func orUnknown(err error) error {
	if err == nil {
		return errUnknown
	}
	return err
}

// Signal sends the signal to the started process.
func (r *RunningProgram) Signal(s os.Signal) error { return r.cmd.Process.Signal(s) }

// stopTimeout is how long Stop waits for the program to exit before it kills the program.
const stopTimeout = 5 * time.Second

// Stop stops the program and returns when it has exited. Further calls do nothing.
func (r *RunningProgram) Stop() {
	// An error means that the process has already exited.
	_ = r.cmd.Process.Signal(syscall.SIGINT)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-r.exited:
	case <-timer.C:
		for _, pid := range process.Tree(r.cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have exited
		}
		<-r.exited
	}
}

// logTail returns the end of the program's output, for an error message.
func (r *RunningProgram) logTail() string {
	text, err := os.ReadFile(r.log)
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\noutput: " + string(text[max(0, len(text)-2000):])
}

// write writes a configuration file and returns its path.
func write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
