package configjson

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type listenerJSON struct {
	Node           document.Node        `key:"."`
	Name           string               `key:"name" doc:"Unique name of the listener. Absent: its address." example:"\"ingress\""`
	Type           string               `key:"type" doc:"ingress: requests to the local application. egress: requests of the local application to other services." enum:"ingress|egress" default:"egress" example:"\"ingress\""`
	Address        string               `key:"address" doc:"ip:port, [ipv6]:port, or the path of a unix socket, which contains a slash." required:"true" example:"\"127.0.0.1:2046\""`
	Network        string               `key:"network" doc:"Network of the address. Absent: unix for a path, else tcp." enum:"tcp|udp|unix" example:"\"tcp\""`
	Bind           bool                 `key:"bind_port" doc:"true: Weft listens on the address. false: the listener gets its connections only from a listener with use_original_dst." default:"true" example:"false"`
	ReusePort      bool                 `key:"reuseport" doc:"Allow other processes to listen on the same port (SO_REUSEPORT)." example:"true"`
	OriginalDst    document.Node        `key:"use_original_dst" doc:"The listener receives redirected connections: true or \"redirect\" for REDIRECT of iptables or nftables; \"tproxy\" for TPROXY. Weft passes a connection to the listener with bind_port false whose address is the original destination; if there is none, this listener serves it." accept:"bool|string" example:"\"redirect\""`
	MaxConnections int                  `key:"max_connections" doc:"Maximum number of open connections; Weft closes further connections immediately. 0: no limit." unit:"connections" min:"0" default:"0" example:"10000"`
	AcceptRate     *acceptRateJSON      `key:"accept_rate" doc:"Limit on the rate of accepted connections. Weft does not refuse connections beyond the limit: they wait in the kernel backlog. Absent: no limit."`
	KeepAlive      *tcpKeepAliveJSON    `key:"tcp_keepalive" doc:"TCP keepalive of idle client connections; {}: with the system's values. Absent: none."`
	IdleTimeout    time.Duration        `key:"connection_idle_timeout" doc:"Maximum time that a connection may stay without a request. 0s: no limit." default:"90s" example:"\"60s\""`
	ReadBufferSize int                  `key:"default_read_buffer_size" doc:"Initial read buffer size of a connection." unit:"bytes" min:"0" ignored:"buffers are allocated on demand and grow as needed" example:"16384"`
	AccessLogs     []accessLogJSON      `key:"access_logs" doc:"Access logs of requests."`
	ListenerFilter []listenerFilterJSON `key:"listener_filters" doc:"Filters that process a connection before TLS."`
	FiltersTimeout time.Duration        `key:"listener_filters_timeout" doc:"Maximum time for the PROXY protocol header, and then again for the first bytes that listener filters and the matches of filter_chains need. Weft closes connections that exceed it." min:"1ms" default:"15s" example:"\"5s\""`
	FilterChains   []filterChainJSON    `key:"filter_chains" doc:"Filter chains. Each connection uses the chain with the most specific match." required:"true"`
	DefaultChain   document.Node        `key:"default_filter_chain" doc:"Filter chain without a match, for connections that match none of filter_chains. Absent: Weft closes them." accept:"object" object:"filter_chain" example:"{\"filters\": [{\"type\": \"tcp_proxy\", \"config\": {\"cluster\": \"one\"}}]}"`
	StreamFilters  []streamFilterJSON   `key:"stream_filters" doc:"Filters that process requests, in order."`
	Inspector      bool                 `key:"inspector" doc:"Accept TLS and plaintext on one port: connections that begin with a TLS handshake use TLS." example:"true"`
	LogPath        string               `key:"log_path" doc:"Older form of the listener's log." ignored:"true" example:"\"/var/log/l.log\""`
	Mark           document.Node        `key:"mark" doc:"SO_MARK of the listening socket and of its connections, for firewall and routing rules: 1 to 4294967295, or a string, which may be hexadecimal with \"0x\". Requires CAP_NET_ADMIN, or since Linux 5.17 CAP_NET_RAW." accept:"number|string" example:"1"`
}

type accessLogJSON struct {
	Node   document.Node `key:"."`
	Path   string        `key:"log_path" doc:"A file, \"stdout\" or \"stderr\"." default:"stdout" example:"\"/var/log/access.log\""`
	Format string        `key:"log_format" doc:"Format of a log line, with %variables%. Empty: the default format; see docs/observability.md." example:"\"%start_time% %response_code%\""`
	JSON   document.Node `key:"json_format" doc:"One JSON object per line, instead of log_format: its members in order, with %variables%." accept:"object" example:"{\"status\": \"%response_code%\"}"`
}

// acceptRateJSON is the value of the key "accept_rate" of a listener.
type acceptRateJSON struct {
	Node      document.Node `key:"."`
	PerSecond float64       `key:"per_second" doc:"Maximum rate of accepted connections per second. 0: no limit." unit:"connections" min:"0" max:"1000000" required:"true" example:"500"`
	Burst     int           `key:"burst" doc:"Maximum burst of accepted connections after a pause. 0 or absent: the connections of one second." unit:"connections" min:"0" max:"1000000" example:"1000"`
}

// listenerReader reads the listeners. It runs after the readers of clusters and route tables.
type listenerReader struct {
	*input
	tls      tlsReader
	clusters *clusterSet
	filters  *filterReader
	routes   *routeReader // for route tables inside listeners
	out      []*config.Listener
	proxies  []proxyNode // the network filters "proxy" of all listeners
}

// read converts the listeners and checks them against each other. streamFilterChains maps the names
// of listeners to their filters, for listeners without stream_filters. roller configures the
// rotation of access logs.
func (r *listenerReader) read(list []listenerJSON, streamFilterChains map[string]*chainJSON, roller config.Roller) {
	names := map[string]bool{}
	addresses := map[string]string{} // names of the listeners that bind, by address
	for i := range list {
		j := &list[i]
		l := r.readListener(j, roller)
		if c := streamFilterChains[l.Name]; c != nil {
			delete(streamFilterChains, l.Name)
			if len(j.StreamFilters) > 0 {
				r.report.Errorf(c.Node, "the chain has no effect: listener %q has its own stream_filters", l.Name)
			}
			j.StreamFilters = append(j.StreamFilters, c.Filters...)
		}
		r.readChains(j, l)
		r.checkTimeoutFields(l)
		r.checkUDP(j, l)
		if names[l.Name] {
			r.report.Errorf(j.Node.Get("name").Or(j.Node), "duplicate listener name %q", l.Name)
		}
		names[l.Name] = true
		key := l.Address
		if l.Network == networkUDP {
			key = "udp " + key // UDP ports are separate
		}
		if otherName, inUse := addresses[key]; inUse && l.Address != "" && l.Bind && !hasEphemeralPort(l) {
			r.report.Errorf(j.Node.Get("address"), "the address is already in use by listener %q", otherName)
		}
		if l.Bind {
			addresses[key] = l.Name
		}
		r.out = append(r.out, l)
	}
	r.checkVirtualListeners(list)
	for _, name := range slices.Sorted(maps.Keys(streamFilterChains)) {
		c := streamFilterChains[name]
		r.filters.readStreamFilters(c.Filters)
		r.report.Warnf(c.Node, "no listener is named %q: the chain is not used", name)
	}
}

// checkTimeoutFields rejects trust_timeout_fields on ingress listeners: with it any client could
// set a very long timeout and occupy an upstream.
func (r *listenerReader) checkTimeoutFields(l *config.Listener) {
	if !l.Ingress {
		return
	}
	for c := range l.Chains() {
		for _, pn := range r.proxies {
			if pn.proxy == c.Proxy && c.Proxy.ClientHeaders.OverrideTimeouts {
				r.report.Errorf(pn.node.MemberOrEmpty("extend_config").Get("trust_timeout_fields"),
					"trust_timeout_fields is not allowed: listener %q is of type ingress, and its clients are not trusted to override timeouts", l.Name)
			}
		}
	}
}

// hasEphemeralPort reports whether the system chooses the listener's port.
func hasEphemeralPort(l *config.Listener) bool {
	_, port, err := splitPort(l.Address)
	return err == nil && port == "0"
}

func (r *listenerReader) readListener(j *listenerJSON, roller config.Roller) *config.Listener {
	l := &config.Listener{
		Name:           j.Name,
		Ingress:        j.Type == "ingress",
		Network:        j.Network,
		Address:        j.Address,
		Bind:           j.Bind,
		ReusePort:      j.ReusePort,
		MaxConnections: j.MaxConnections,
		AcceptRate:     convertAcceptRate(j.AcceptRate),
		KeepAlive:      convertTCPKeepAlive(j.KeepAlive),
		IdleTimeout:    j.IdleTimeout,
	}
	if l.Name == "" {
		l.Name = j.Address
	}
	r.setAddress(j, l)
	for i := range j.AccessLogs {
		r.readAccessLog(&j.AccessLogs[i], l, roller)
	}
	r.readListenerFilters(j, l)
	r.readOriginalDst(j, l)
	l.Mark = r.parseMark(j.Mark)
	return l
}

// setAddress sets the network and the address.
func (r *listenerReader) setAddress(j *listenerJSON, l *config.Listener) {
	node := j.Node.Get("address")
	if node.Kind() != document.String {
		return // already reported
	}
	address, isSocket, err := unixaddr.Parse(l.Address)
	if err != nil {
		r.report.Errorf(node, "%v", err)
		return
	}
	switch {
	case l.Network == "" && isSocket:
		l.Network = "unix"
	case l.Network == "":
		l.Network = "tcp"
	}
	switch {
	case l.Network == "unix" && address == "":
		r.report.Errorf(node, "found \"\", expected the path of a unix socket")
	case l.Network == "unix" && !isSocket && isHostPort(address):
		r.report.Errorf(node, "found %q, expected the path of a unix socket (to use a file of this name, write \"./%s\")", address, address)
	case l.Network == "unix":
		l.Address = unixaddr.FromPath(address)
	case isSocket:
		r.report.Errorf(node, "found the unix socket %q, expected ip:port for the network %q", address, l.Network)
	default:
		if l.Address, err = parseListenAddress(address); err != nil {
			r.report.Errorf(node, "%v", err)
		}
	}
}

// isHostPort reports whether address has the form host:port.
func isHostPort(address string) bool {
	_, _, err := splitPort(address)
	return err == nil
}

func (r *listenerReader) readAccessLog(j *accessLogJSON, l *config.Listener, roller config.Roller) {
	a := config.AccessLog{Path: j.Path, Format: j.Format, Rotation: roller}
	if j.Format != "" {
		r.checkTemplate(j.Node.Get("log_format"), j.Format)
	}
	if j.JSON.Exists() {
		if j.Format != "" {
			r.report.Errorf(j.Node.Get("json_format"), "json_format and log_format are mutually exclusive")
		}
		a.JSON = make([]config.LogField, 0, j.JSON.Len())
		for member := range j.JSON.All() {
			if member.Kind() != document.String {
				r.report.Expect(member, "a string with %variables%")
				continue
			}
			r.checkTemplate(member, member.Text())
			a.JSON = append(a.JSON, config.LogField{Name: member.Key(), Format: member.Text()})
		}
	}
	l.AccessLogs = append(l.AccessLogs, a)
}

// convertAcceptRate converts the key "accept_rate" of a listener.
func convertAcceptRate(j *acceptRateJSON) config.AcceptRate {
	if j == nil || j.PerSecond <= 0 {
		return config.AcceptRate{}
	}
	out := config.AcceptRate{PerSecond: j.PerSecond, Burst: j.Burst}
	if out.Burst == 0 {
		out.Burst = max(1, int(math.Ceil(j.PerSecond)))
	}
	return out
}
