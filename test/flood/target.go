package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/test/bench/certs"
	"github.com/weft-proxy/weft/test/bench/frame"
	"github.com/weft-proxy/weft/test/bench/peer"
	"github.com/weft-proxy/weft/test/bench/process"
)

// environment holds the hosts, the certificates and the directory of the targets.
type environment struct {
	dir          string
	ports        *peer.Ports
	certificates certs.Dir
	http         string // address of the HTTP/1.1 host
	rpc          map[string]string

	listeners []net.Listener
	server    *http.Server
	wg        sync.WaitGroup
}

func newEnvironment(dir string) (*environment, error) {
	env := &environment{dir: dir, ports: peer.NewPorts(), certificates: certs.Dir(dir), rpc: map[string]string{}}
	if err := env.certificates.Write(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	env.http = l.Addr().String()
	env.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok") // the client may have disconnected
	}), ReadHeaderTimeout: time.Minute}
	env.wg.Go(func() { _ = env.server.Serve(l) }) // ends with close
	for _, p := range frame.All() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			env.close()
			return nil, err
		}
		env.listeners = append(env.listeners, l)
		env.rpc[p.Name()] = l.Addr().String()
		env.wg.Go(func() { env.serveRPC(l, p) })
	}
	return env, nil
}

// serveRPC responds to calls of one protocol.
func (env *environment) serveRPC(l net.Listener, p *frame.Protocol) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		env.wg.Go(func() {
			defer conn.Close() //nolint:errcheck // the proxy may have closed it
			var in []byte
			buf := make([]byte, 64<<10)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				in = append(in, buf[:n]...)
				var out []byte
				for len(in) > 0 {
					n, f, err := p.Parse(in)
					if err != nil {
						return
					}
					if n == 0 {
						break
					}
					in = in[n:]
					out = p.AppendResponse(out, f.ID, []byte("ok"))
				}
				if _, err := conn.Write(out); err != nil {
					return
				}
			}
		})
	}
}

// close stops the hosts. The targets must have exited.
func (env *environment) close() {
	_ = env.server.Close() // shutdown errors do not matter
	for _, l := range env.listeners {
		_ = l.Close()
	}
	env.wg.Wait()
}

// target is a proxy with one listener for the attack and another one for an honest client.
type target struct {
	attackAddress, clientAddress string
	pid                          int
	cmd                          *exec.Cmd
	exited                       chan struct{}
}

// program is a proxy that can be attacked. configure returns errUnsupported if the proxy does not
// support the RPC protocol.
type program struct {
	name      string
	path      string
	configure func(b *environment, dir string, a attack, attacked, honest netip.AddrPort) (arguments []string, err error)
}

var errUnsupported = errors.New("not supported")

// start runs p with a configuration for the attack, on the given CPU.
func (env *environment) start(launcher *process.Launcher, cpu int, p program, a attack) (*target, error) {
	dir, err := os.MkdirTemp(env.dir, p.name+"-")
	if err != nil {
		return nil, err
	}
	addrs, err := env.ports.Take(2)
	if err != nil {
		return nil, err
	}
	arguments, err := p.configure(env, dir, a, addrs[0], addrs[1])
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has a copy
	t := &target{attackAddress: addrs[0].String(), clientAddress: addrs[1].String(), exited: make(chan struct{})}
	t.cmd = exec.Command(p.path, arguments...)
	t.cmd.Stdout, t.cmd.Stderr = log, log
	if err := launcher.Start(t.cmd, cpu); err != nil {
		return nil, err
	}
	t.pid = t.cmd.Process.Pid
	go func() {
		_ = t.cmd.Wait() // a signal stops it
		close(t.exited)
	}()
	probe := peer.HTTP("/", 200)
	for deadline := time.Now().Add(20 * time.Second); ; {
		if err = probe(addrs[1]); err == nil {
			return t, nil
		}
		select {
		case <-t.exited:
			err = fmt.Errorf("the proxy has exited: %w", err)
		case <-time.After(10 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
		}
		t.stop()
		text, _ := os.ReadFile(log.Name()) // used only in the message
		return nil, fmt.Errorf("start %s: %w\n%s", p.name, err, text)
	}
}

// stop stops the proxy and kills it after a timeout.
func (t *target) stop() {
	_ = t.cmd.Process.Signal(syscall.SIGINT) // the process may have exited
	select {
	case <-t.exited:
	case <-time.After(3 * time.Second):
		_ = t.cmd.Process.Kill()
		<-t.exited
	}
}

type object = map[string]any

func weft(name, path string) program {
	return program{name, path, func(env *environment, dir string, a attack, attacked, honest netip.AddrPort) ([]string, error) {
		listener := func(name string, listenAddress netip.AddrPort, protocol, upstream, routes string, useTLS bool) object {
			chain := object{"filters": []object{{"type": "proxy", "config": object{
				"downstream_protocol": protocol, "upstream_protocol": upstream, "router_config_name": routes}}}}
			if useTLS {
				chain["tls_context"] = object{"status": true, "alpn": "h2", "cert_chain": env.certificates.Certificate(), "private_key": env.certificates.Key()}
			}
			return object{"name": name, "address": listenAddress.String(), "bind_port": true, "filter_chains": []object{chain}}
		}
		routes := func(name, cluster string) object {
			return object{"router_config_name": name, "virtual_hosts": []object{{"name": name, "domains": []string{"*"},
				"routers": []object{{"match": object{"prefix": "/"}, "route": object{"cluster_name": cluster}}}}}}
		}
		cluster := func(name, address string) object {
			return object{"name": name, "type": "SIMPLE", "lb_type": "LB_ROUNDROBIN", "hosts": []object{{"address": address}}}
		}
		down, up, host := "Http2", "Http1", env.http
		if a.http1 {
			down = "Http1"
		}
		if a.rpc != "" {
			down, up, host = a.rpc, a.rpc, env.rpc[a.rpc]
		}
		text, err := json.Marshal(object{
			"servers": []object{{"default_log_level": "ERROR",
				"listeners": []object{listener("attacked", attacked, down, up, "attacked", a.tls), listener("honest", honest, "Http1", "Http1", "honest", false)},
				"routers":   []object{routes("attacked", "attacked"), routes("honest", "honest")}}},
			"cluster_manager": object{"clusters": []object{cluster("attacked", host), cluster("honest", env.http)}},
		})
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, "config.json")
		return []string{"start", "-c", path}, os.WriteFile(path, text, 0o600)
	}}
}

func haproxy(path string) program {
	return program{"haproxy", path, func(env *environment, dir string, a attack, attacked, honest netip.AddrPort) ([]string, error) {
		bind, mode, host := " proto h2", "http", env.http
		switch {
		case a.rpc != "":
			bind, mode, host = "", "tcp", env.rpc[a.rpc]
		case a.http1:
			bind = ""
		case a.tls:
			bind = " ssl crt " + env.certificates.CertificateAndKey() + " alpn h2"
		}
		file := filepath.Join(dir, "haproxy.cfg")
		return []string{"-db", "-f", file}, os.WriteFile(file, fmt.Appendf(nil, `global
	nbthread 1
	maxconn 4096
	no strict-limits
defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
frontend attacked
	mode %s
	bind %v backlog 4096%s
	default_backend attacked
frontend honest
	bind %v backlog 4096
	default_backend honest
backend attacked
	mode %s
	server origin %s
backend honest
	server origin %s
`, mode, attacked, bind, honest, mode, host, env.http), 0o600)
	}}
}

func nginx(path string) program {
	return program{"nginx", path, func(env *environment, dir string, a attack, attacked, honest netip.AddrPort) ([]string, error) {
		if a.rpc != "" {
			return nil, errUnsupported
		}
		listenOptions := " http2"
		if a.http1 {
			listenOptions = ""
		}
		if a.tls {
			listenOptions = fmt.Sprintf(" http2 ssl; ssl_certificate %s; ssl_certificate_key %s", env.certificates.Certificate(), env.certificates.Key())
		}
		user := ""
		if os.Geteuid() == 0 {
			user = "user root;\n"
		}
		listen := attacked.String() + " backlog=4096"
		file := filepath.Join(dir, "nginx.conf")
		return []string{"-p", dir, "-e", "stderr", "-c", file}, os.WriteFile(file, fmt.Appendf(nil, `%sworker_processes 1;
daemon off;
pid %[2]s/nginx.pid;
error_log stderr crit;
events { worker_connections 8192; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	upstream origin { server %[3]s; keepalive 64; }
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	server { listen %[4]s%[5]s; location / { proxy_pass http://origin; } }
	server { listen %[6]v backlog=4096; location / { proxy_pass http://origin; } }
}
`, user, dir, env.http, listen, listenOptions, honest), 0o600)
	}}
}
