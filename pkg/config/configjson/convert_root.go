package configjson

import (
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// readRoot builds the snapshot: first the clusters, then the tables that refer to them, then the
// listeners that refer to tables and clusters.
func (r *reader) readRoot(j *rootJSON) {
	r.readClusters(&j.ClusterManager)
	r.readAdmin(j)
	r.readMetrics(&j.Metrics)
	r.readBootstrap(j)
	r.checkEnvoyBootstrap(&j.envoyJSON)
	r.readExtensions(j.Extends)
	r.findExternalClusters(j)
	r.readOverload(j.Node.Get("overload_manager", "overloadManager"), j.Overload)
	switch at := j.Node.Get("servers"); {
	case len(j.Servers) == 1:
		r.readServer(&j.Servers[0], r.indexChains(j.StreamFilters))
	case at.Kind() == document.Array:
		r.report.Errorf(at, "found %d servers: a file has exactly one", len(j.Servers))
	case at.Exists():
	case j.hasBootstrap():
		r.readBootstrapServer(j)
	default:
		r.report.Errorf(j.Node, "the key \"servers\" is missing: expected a list with one server, or static_resources or dynamic_resources of an Envoy bootstrap")
	}
	r.snapshot.Server.PIDFile = j.PIDFile
}

func (r *reader) readServer(j *serverJSON, chains map[string]*chainJSON) {
	roller := r.logRotation(j)
	r.snapshot.Server = config.Server{
		Name:            j.Name,
		Log:             config.Log{Path: j.LogPath, Level: j.LogLevel, JSON: j.LogFormat == "json", Rotation: roller},
		GracefulTimeout: j.GracefulTimeout,
		MaxProcs:        j.Processor,
	}
	r.readOverload(j.Node.Get("overload_manager"), j.Overload)
	r.readTables(j)
	r.readListeners(j.Listeners, chains, roller)
	r.checkTables()
	r.enableOutlierDetection()
}

// logRotation parses "size=100 age=10 keep=10 compress=off" or "time=24".
func (r *reader) logRotation(j *serverJSON) config.Roller {
	var out config.Roller
	bad := func(format string, args ...any) {
		r.report.Errorf(j.Node.Get("global_log_roller"), format, args...)
	}
	for word := range strings.FieldsSeq(j.LogRoller) {
		name, value, _ := strings.Cut(word, "=")
		if name == "compress" {
			if value != "on" && value != "off" {
				bad("compress=%s: expected compress=on or compress=off", value)
			}
			out.Compress = value == "on"
			continue
		}
		number, err := strconv.ParseUint(value, 10, 31)
		known := []string{"size", "time", "age", "keep", "compress"}
		switch {
		case !slices.Contains(known, name):
			r.report.Unknown(j.Node.Get("global_log_roller"), "option", name, known)
		case err != nil:
			bad("%s: expected a whole number, like %s=10", word, name)
		case name == "size":
			out.MaxSizeMB = int(number)
		case name == "time":
			out.Interval = time.Duration(number) * time.Hour
		case name == "age":
			out.MaxDays = int(number)
		case name == "keep":
			out.MaxBackups = int(number)
		}
	}
	return out
}

func (r *reader) readAdmin(j *rootJSON) {
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
			r.adminSocket(pipe.Get("path"), socketPath(j.Admin.Address.Pipe.Path))
			if r.snapshot.Admin != nil {
				r.snapshot.Admin.Mode = fs.FileMode(j.Admin.Address.Pipe.Mode)
			}
		case isPath(s.Address):
			r.adminSocket(s.Node.Get("address"), s.Address)
		case !s.Node.Get("port_value", "portValue").Exists():
			r.report.Errorf(s.Node.Or(j.Admin.Node), "the admin port requires address.socket_address.port_value")
		default:
			at := s.Node.Get("address").Or(s.Node)
			if _, err := netip.ParseAddr(s.Address); err != nil && s.Address != localhost {
				r.report.Errorf(at, "found %q, expected an IP address", s.Address)
			}
			address := net.JoinHostPort(s.Address, strconv.Itoa(int(s.Port)))
			r.snapshot.Admin = &config.Admin{Address: numericHost(address)}
		}
	}
	r.allowedHosts(j)
	if !j.Pprof.Debug {
		return
	}
	at := j.Pprof.Node.Get("debug")
	switch {
	case j.Admin == nil:
		r.report.Errorf(at, "the profiler requires \"admin\": the admin port serves it")
	case j.Pprof.Port != 0 && j.Pprof.Port != j.Admin.Address.Socket.Port:
		r.report.Unsupported(j.Pprof.Node.Get("port_value"), "a separate port for the profiler (the admin port serves it)")
	case r.snapshot.Admin != nil:
		r.snapshot.Admin.Pprof = true
	}
}

// allowedHosts converts the host names that the admin port accepts.
func (r *reader) allowedHosts(j *rootJSON) {
	if j.Admin == nil {
		return
	}
	at := slices.Collect(j.Admin.Node.Get("allowed_hosts").All())
	for i, text := range j.Admin.AllowedHosts {
		host := strings.ToLower(text)
		rest := strings.TrimPrefix(host, "*.")
		if rest == "" || strings.ContainsAny(rest, "*:/[] ") {
			r.report.Errorf(at[i], "found %q, expected a host name without port, or *.suffix", text)
			continue
		}
		if r.snapshot.Admin != nil {
			r.snapshot.Admin.Hosts = append(r.snapshot.Admin.Hosts, host)
		}
	}
}

// adminSocket sets a unix socket as the admin address.
func (r *reader) adminSocket(at document.Node, path string) {
	switch {
	case strings.HasPrefix(path, "@"):
		r.report.Errorf(at, "%q is an abstract socket, which every process in the network namespace can connect to: expected a path, whose permissions restrict access", path)
		return
	case !strings.Contains(path, "/"):
		path = "./" + path // without a slash it would be parsed as ip:port
	}
	r.snapshot.Admin = &config.Admin{Address: path}
}

func (r *reader) readMetrics(j *metricsJSON) {
	m := &r.snapshot.Metrics
	m.RejectAll = j.StatsMatcher.RejectAll
	m.ExcludeLabels, m.ExcludeKeys = j.StatsMatcher.ExclusionLabels, j.StatsMatcher.ExclusionKeys
	for i := range j.Sinks {
		s := &j.Sinks[i]
		at := s.Node.Get("type").Or(s.Node)
		if s.Type == "" {
			continue
		}
		if _, ok := choose(r.report, at, "metrics sink", s.Type, []string{prometheusSink}, knownSinks()); !ok {
			continue
		}
		if m.Prometheus != nil {
			r.report.Errorf(at, "duplicate prometheus sink")
			continue
		}
		var p prometheusJSON
		if !r.decoder.Decode(s.Node.Member("config"), &p) {
			continue
		}
		if _, err := netip.ParseAddr(p.Address); err != nil && p.Address != localhost {
			r.report.Errorf(p.Node.Get("address"), "found %q, expected an IP address", p.Address)
		}
		if !strings.HasPrefix(p.Endpoint, "/") {
			r.report.Errorf(p.Node.Get("endpoint"), "found %q, expected a path that begins with \"/\"", p.Endpoint)
		}
		address := net.JoinHostPort(p.Address, strconv.Itoa(int(p.Port)))
		m.Prometheus = &config.Prometheus{Address: numericHost(address), Path: p.Endpoint}
	}
}

// indexChains indexes the named chains of stream filters. Their filters are converted with the listener
// of the same name.
func (r *reader) indexChains(list []chainJSON) map[string]*chainJSON {
	out := make(map[string]*chainJSON, len(list))
	for i := range list {
		c := &list[i]
		if out[c.Name] != nil {
			r.report.Errorf(c.Node.Get("name"), "duplicate chain name %q", c.Name)
			continue
		}
		out[c.Name] = c
	}
	return out
}
