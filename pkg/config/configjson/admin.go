package configjson

import (
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type adminJSON struct {
	Node    document.Node `key:"."`
	Address struct {
		Socket struct {
			Node      document.Node `key:"."`
			Address   string        `key:"address" doc:"IP address, or path of a unix socket. Clients that can connect to it can drain Weft and read its configuration." default:"127.0.0.1" example:"\"127.0.0.9\""`
			Port      uint16        `key:"port_value,portValue" doc:"Port of the admin API. Required unless the address is a unix socket." allowstring:"true" example:"9901"`
			Protocol  string        `key:"protocol" doc:"Envoy bootstrap: protocol of the address; always TCP." enum:"TCP" ignored:"there is no other" example:"\"TCP\""`
			IPv4      bool          `key:"ipv4_compat,ipv4Compat" doc:"Envoy bootstrap: accept IPv4 connections on \"::\"." ignored:"IPv4 is always accepted" example:"true"`
			NamedPort string        `key:"named_port,namedPort" doc:"Envoy bootstrap: named port." unsupported:"named_port" example:"\"admin\""`
			Resolver  string        `key:"resolver_name,resolverName" doc:"Envoy bootstrap: resolver of the address." unsupported:"resolver_name" example:"\"dns\""`
			Namespace string        `key:"network_namespace_filepath,networkNamespaceFilepath" doc:"Envoy bootstrap: network namespace of the admin port." unsupported:"network_namespace_filepath" example:"\"/run/netns/admin\""`
		} `key:"socket_address,socketAddress" doc:"IP address and port."`
		Pipe struct {
			Path string `key:"path" doc:"Path of a unix socket, instead of socket_address." example:"\"/run/weft/admin\""`
			Mode uint32 `key:"mode" doc:"Permissions of the socket file, as a decimal number. Users with write permission can connect, drain Weft and read its configuration. 0: its owner only (384). 432 also allows its group." max:"511" default:"0" example:"432"`
		} `key:"pipe" doc:"Envoy bootstrap: unix socket."`
		Internal document.Node `key:"envoy_internal_address,envoyInternalAddress" doc:"Envoy bootstrap: address inside the process." accept:"object" unsupported:"envoy_internal_address" example:"{\"server_listener_name\": \"admin\"}"`
	} `key:"address" doc:"Address of the admin port."`
	AllowedHosts []string        `key:"allowed_hosts" doc:"Accepted hostnames in requests to the admin port, without port; *.suffix for all names below the suffix. IP addresses and localhost are always accepted; other names get 403, which prevents DNS rebinding attacks by web pages." example:"[\"weft.mesh.example\"]"`
	LogPath      string          `key:"access_log_path,accessLogPath" doc:"Access log of the admin port." ignored:"true" example:"\"/dev/null\""`
	AccessLog    []document.Node `key:"access_log,accessLog" doc:"Envoy bootstrap: access logs of the admin port." ignored:"true" example:"[{\"name\": \"envoy.access_loggers.file\"}]"`
	ProfilePath  string          `key:"profile_path,profilePath" doc:"Envoy bootstrap: file of CPU profiles." ignored:"set pprof.debug instead" example:"\"/tmp/envoy.prof\""`
	Sockets      []document.Node `key:"socket_options,socketOptions" doc:"Envoy bootstrap: socket options of the admin port." ignored:"true" example:"[{\"level\": 1}]"`
	NoLimit      bool            `key:"ignore_global_conn_limit,ignoreGlobalConnLimit" doc:"Envoy bootstrap: exempt the admin port from connection limits." ignored:"the admin port is always exempt" example:"true"`
	AllowPaths   []document.Node `key:"allow_paths,allowPaths" doc:"Envoy bootstrap: paths that the admin port serves." unsupported:"allow_paths" example:"[{\"exact\": \"/stats\"}]"`
}

type pprofJSON struct {
	Node     document.Node `key:"."`
	Debug    bool          `key:"debug" doc:"Serve /debug/pprof: on the admin port, or on a separate port if port_value is set." example:"true"`
	Port     uint16        `key:"port_value" doc:"Separate port of the profiler. 0 or the port of the admin port: the admin port serves the profiles." example:"9090"`
	Endpoint string        `key:"endpoint" doc:"IP address of port_value. Clients that can connect to it can read profiles." default:"127.0.0.1" example:"\"127.0.0.9\""`
}

// adminReader reads the keys "admin" and "pprof".
type adminReader struct {
	*input
	out      *config.Admin // nil: no admin port
	profiler string        // address of the separate port of the profiler; "": none
}

// read converts the keys "admin" and "pprof".
func (r *adminReader) read(j *rootJSON) {
	if j.Admin != nil && j.hasBootstrap() && j.Admin.Node.Get("address").IsDisabled() {
		r.report.Warnf(j.Admin.Node, "admin has no effect without an address: Weft opens no admin port")
		j.Admin = nil
	}
	if j.Admin != nil {
		s := &j.Admin.Address.Socket
		switch pipe := j.Admin.Node.Get("address").Get("pipe"); {
		case pipe.Exists() && s.Node.Exists():
			r.report.Errorf(pipe, "socket_address and pipe are mutually exclusive")
		case j.Admin.Address.Pipe.Path != "":
			r.setSocket(pipe.Get("path"), j.Admin.Address.Pipe.Path)
			if r.out != nil {
				r.out.Mode = fs.FileMode(j.Admin.Address.Pipe.Mode)
			}
		case isUnixSocket(s.Address):
			r.setSocket(s.Node.Get("address"), s.Address)
		case !s.Node.Get("port_value", "portValue").Exists():
			r.report.Errorf(s.Node.Or(j.Admin.Node), "the admin port requires address.socket_address.port_value")
		default:
			node := s.Node.Get("address").Or(s.Node)
			if _, err := netip.ParseAddr(s.Address); err != nil && s.Address != localhost {
				r.report.Errorf(node, "found %q, expected an IP address", s.Address)
			}
			address := net.JoinHostPort(s.Address, strconv.Itoa(int(s.Port)))
			r.out = &config.Admin{Address: numericHost(address)}
		}
	}
	r.readAllowedHosts(j)
	r.readProfiler(j)
}

// readProfiler converts the key "pprof".
func (r *adminReader) readProfiler(j *rootJSON) {
	p := &j.Pprof
	endpoint := p.Node.Get("endpoint")
	hasEndpoint := endpoint.Exists() && p.Endpoint != "" // in MOSN's files, "" is the default
	host := p.Endpoint
	if host == "" {
		host = localhost
	}
	if _, err := netip.ParseAddr(host); err != nil && host != localhost {
		r.report.Errorf(endpoint, "found %q, expected an IP address", host)
		return
	}
	if !p.Debug {
		return
	}
	address := numericHost(net.JoinHostPort(host, strconv.Itoa(int(p.Port))))
	isAdminPort := j.Admin != nil && p.Port == j.Admin.Address.Socket.Port && (!hasEndpoint || r.out != nil && address == r.out.Address)
	switch {
	case p.Port == 0 && hasEndpoint:
		r.report.Errorf(endpoint, "endpoint requires port_value: without it, the admin port serves the profiles")
	case p.Port == 0 && j.Admin == nil:
		r.report.Errorf(p.Node.Get("debug"), "the profiler requires port_value, or the admin port (\"admin\")")
	case p.Port != 0 && !isAdminPort:
		r.profiler = address
	case r.out != nil:
		r.out.Pprof = true
	}
}

// readAllowedHosts converts the host names that the admin port accepts.
func (r *adminReader) readAllowedHosts(j *rootJSON) {
	if j.Admin == nil {
		return
	}
	nodes := slices.Collect(j.Admin.Node.Get("allowed_hosts").All())
	for i, text := range j.Admin.AllowedHosts {
		host := strings.ToLower(text)
		suffix := strings.TrimPrefix(host, "*.")
		if suffix == "" || strings.ContainsAny(suffix, "*:/[] ") {
			r.report.Errorf(nodes[i], "found %q, expected a host name without port, or *.suffix", text)
			continue
		}
		if r.out != nil {
			r.out.Hosts = append(r.out.Hosts, host)
		}
	}
}

// isUnixSocket reports whether the address is a unix socket, or a malformed unix: URL.
func isUnixSocket(address string) bool {
	_, isSocket, err := unixaddr.Parse(address)
	return isSocket || err != nil
}

// setSocket sets a unix socket, given as a path or a unix: URL, as the admin address.
func (r *adminReader) setSocket(node document.Node, text string) {
	path, _, err := unixaddr.Parse(text)
	switch {
	case err != nil:
		r.report.Errorf(node, "%v", err)
	case unixaddr.IsAbstract(path):
		r.report.Errorf(node, "%q is an abstract socket, which every process in the network namespace can connect to: expected a path, whose permissions restrict access", path)
	default:
		r.out = &config.Admin{Address: unixaddr.FromPath(path)}
	}
}
