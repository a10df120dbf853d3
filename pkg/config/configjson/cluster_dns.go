package configjson

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// dnsJSON contains the DNS keys of a cluster.
type dnsJSON struct {
	DNSRefreshRate time.Duration  `key:"dns_refresh_rate" doc:"STRICT_DNS, LOGICAL_DNS: time between two resolutions of a name." min:"1ms" default:"5s" example:"\"30s\""`
	RespectTTL     bool           `key:"respect_dns_ttl" doc:"STRICT_DNS, LOGICAL_DNS: resolve a name again when the TTL of its DNS response expires, instead of after dns_refresh_rate; at least after 1 s, at most after 1 h." example:"true"`
	DNSFailure     dnsFailureJSON `key:"dns_failure_refresh_rate" doc:"STRICT_DNS, LOGICAL_DNS: wait after a failed resolution, which doubles with each further failure. Absent: from 500 ms up to dns_refresh_rate."`
	DNSJitter      time.Duration  `key:"dns_jitter" doc:"STRICT_DNS, LOGICAL_DNS: maximum random time added to each wait. 0s: Weft shortens each wait by up to a tenth instead." default:"0s" example:"\"1s\""`
	DNSFamily      string         `key:"dns_lookup_family" doc:"STRICT_DNS, LOGICAL_DNS: address families. AUTO and V4_PREFERRED: IPv6 only if there is no IPv4 address. ALL: both." enum:"AUTO|V4_ONLY|V6_ONLY|V4_PREFERRED|ALL" default:"AUTO" example:"\"V4_ONLY\""`
	DNSResolvers   document.Node  `key:"dns_resolvers" doc:"STRICT_DNS, LOGICAL_DNS: DNS servers, [\"10.0.0.2:53\"], or an object with servers, port, search, ndots, timeout and attempts. Absent: the system's." accept:"list|object" object:"resolvers" example:"[\"10.0.0.2:53\"]"`
	ResolverFile   string         `key:"dns_resolver_file" doc:"STRICT_DNS, LOGICAL_DNS: file in the format of resolv.conf, instead of dns_resolvers. Weft reads it when it loads the configuration." example:"\"resolv.conf\""`
	ResolverPort   string         `key:"dns_resolver_port" doc:"STRICT_DNS, LOGICAL_DNS: port of the DNS servers in dns_resolver_file. Absent: 53." example:"\"5353\""`
}

// dnsKeys returns the keys of dnsJSON.
func dnsKeys() []string {
	return []string{
		"dns_refresh_rate", "respect_dns_ttl", "dns_failure_refresh_rate", "dns_jitter", "dns_lookup_family",
		"dns_resolvers", "dns_resolver_file", "dns_resolver_port",
	}
}

type dnsFailureJSON struct {
	Node document.Node `key:"."`
	Base time.Duration `key:"base_interval" doc:"Delay after the first failure." min:"1ms" required:"true" example:"\"1s\""`
	Max  time.Duration `key:"max_interval" doc:"Maximum delay. Absent: ten times base_interval." min:"1ms" example:"\"10s\""`
}

// resolversJSON is the object form of dns_resolvers.
type resolversJSON struct {
	Node     document.Node `key:"."`
	Servers  []string      `key:"servers" doc:"IP addresses of the DNS servers. Absent: the system's." example:"[\"10.0.0.2\"]"`
	Port     string        `key:"port" doc:"Port of the DNS servers." default:"53" example:"\"5353\""`
	Search   []string      `key:"search" doc:"Search domains for short names. Absent: the system's." example:"[\"svc.cluster.local\"]"`
	Ndots    int           `key:"ndots" doc:"Number of dots from which a name is first tried without the search domains." unit:"dots" min:"1" max:"15" default:"1" example:"2"`
	Timeout  int           `key:"timeout" doc:"Timeout for the response of one DNS server. Absent: 3 if there are several; else 5 with the families AUTO and V4_PREFERRED, and 10 with others." unit:"seconds" min:"1" max:"30" example:"2"`
	Attempts int           `key:"attempts" doc:"Number of attempts per DNS server." unit:"times" min:"1" max:"5" default:"1" example:"2"`
}

// convertToStrictDNS handles a host whose address is a DNS name. It turns a static cluster into a
// ClusterStrictDNS, because MOSN resolves names in clusters of any type.
func (r *clusterReader) convertToStrictDNS(h *hostJSON, c *config.Cluster) {
	node := h.Node.Get("address")
	switch {
	case c.Type != config.ClusterStatic: // the type resolves names itself, has no hosts, or has been reported as invalid
	case !slices.Contains(r.capabilities.ClusterTypes, config.ClusterStrictDNS):
		r.report.Errorf(node, "found a host name, expected an IP address: DNS names are not supported yet")
	default:
		r.report.Warnf(node, "the cluster of type SIMPLE has a DNS name: it is treated as STRICT_DNS")
		c.Type = config.ClusterStrictDNS
	}
}

// readDNS converts the DNS settings of a cluster. It runs after readHosts, which may change the
// type of the cluster.
func (r *clusterReader) readDNS(j *clusterJSON, c *config.Cluster) {
	c.DNS = config.DNS{
		RefreshRate: j.DNSRefreshRate, RespectTTL: j.RespectTTL, Family: j.DNSFamily, Jitter: j.DNSJitter,
		FailureBackoffBase: j.DNSFailure.Base, FailureBackoffMax: j.DNSFailure.Max,
	}
	r.checkFailureRate(&j.DNSFailure, &c.DNS)
	if j.DNSResolvers.Exists() {
		r.readResolvers(j.DNSResolvers, &c.DNS)
	}
	r.readResolverFile(j, &c.DNS)
	if c.Type == config.ClusterLogicalDNS && len(j.Hosts) != 1 {
		r.report.Errorf(j.Node.Get("hosts").Or(j.Node), "found %d hosts: a cluster of type %s has exactly one name", len(j.Hosts), c.Type)
	}
	if c.Type.UsesDNS() {
		return
	}
	for _, key := range dnsKeys() {
		if node := j.Node.Get(key); node.Exists() {
			r.report.Warnf(node, "%s has no effect on a cluster of type %s", key, j.Type)
		}
	}
}

func (r *clusterReader) checkFailureRate(j *dnsFailureJSON, d *config.DNS) {
	switch {
	case j.Base == 0:
	case j.Max == 0:
		d.FailureBackoffMax = 10 * j.Base
	case j.Max < j.Base:
		r.report.Errorf(j.Node.Get("max_interval"), "max_interval (%v) is less than base_interval (%v)", j.Max, j.Base)
	}
}

// readResolvers parses ["10.0.0.2:53", "10.0.0.3"] or {"servers": ["10.0.0.2"], "port": "53"}.
func (r *clusterReader) readResolvers(n document.Node, d *config.DNS) {
	j := resolversJSON{Port: "53"}
	list := n
	if n.Kind() == document.Object {
		r.decoder.Decode(n, &j)
		list = n.Get("servers")
		r.readResolverOptions(&j, d)
	} else {
		r.decoder.Decode(n, &j.Servers)
	}
	i := 0
	for node := range list.All() {
		address := j.Servers[i]
		i++
		if node.Kind() != document.String {
			continue // already reported
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(address, j.Port)
		}
		if _, err := parseListenAddress(address); err != nil {
			r.report.Errorf(node, "found %q, expected the IP address of a DNS server", node.Text())
			continue
		}
		d.Resolvers = append(d.Resolvers, address)
	}
}

// readResolverOptions converts the settings of the object form of dns_resolvers other than the
// servers.
func (r *clusterReader) readResolverOptions(j *resolversJSON, d *config.DNS) {
	d.Ndots, d.Timeout, d.Attempts = j.Ndots, time.Duration(j.Timeout)*time.Second, j.Attempts
	for node := range j.Node.Get("search").All() {
		domain := strings.Trim(node.Text(), ".")
		if !isHostName(domain) {
			r.report.Errorf(node, "found %q, expected a domain name", node.Text())
			continue
		}
		d.Search = append(d.Search, domain)
	}
	if node := j.Node.Get("ndots"); node.Exists() && len(j.Search) == 0 {
		r.report.Warnf(node, "ndots has no effect without search")
	}
}

// readResolverFile reads the file that the key "dns_resolver_file" names, if the cluster has the
// key.
func (r *clusterReader) readResolverFile(j *clusterJSON, d *config.DNS) {
	node := j.Node.Get("dns_resolver_file")
	port := j.Node.Get("dns_resolver_port")
	if j.ResolverFile == "" {
		if port.Exists() {
			r.report.Warnf(port, "dns_resolver_port has no effect without dns_resolver_file")
		}
		return
	}
	if j.DNSResolvers.Exists() {
		r.report.Errorf(node, "dns_resolver_file and dns_resolvers are mutually exclusive")
		return
	}
	data, err := r.files.ReadFile(j.ResolverFile)
	if err != nil {
		r.report.Errorf(node, "the file %q %s", j.ResolverFile, fileProblem(err))
		return
	}
	portNumber := "53"
	if j.ResolverPort != "" {
		portNumber = j.ResolverPort
	}
	if n, err := strconv.ParseUint(portNumber, 10, 16); err != nil || n == 0 {
		r.report.Errorf(port, "%q is not a valid port: expected a number from 1 to 65535", portNumber)
		return
	}
	parseResolvConf(string(data), portNumber, d)
	if len(d.Resolvers) == 0 {
		r.report.Errorf(node, "the file %q contains no DNS server", j.ResolverFile)
	}
}

// parseResolvConf parses a file in the format of resolv.conf(5): nameserver, search, domain, and
// the options ndots, timeout and attempts. As usual for this format, it ignores everything else.
func parseResolvConf(text, port string, d *config.DNS) {
	d.Ndots, d.Attempts = 1, 1
	for line := range strings.Lines(text) {
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			address := net.JoinHostPort(fields[1], port)
			if _, err := parseListenAddress(address); err == nil {
				d.Resolvers = append(d.Resolvers, address)
			}
		case "search", "domain": // the last line applies
			d.Search = nil
			for _, domain := range fields[1:] {
				if domain = strings.Trim(domain, "."); isHostName(domain) {
					d.Search = append(d.Search, domain)
				}
			}
		case "options":
			for _, option := range fields[1:] {
				parseResolvOption(option, d)
			}
		}
	}
}

func parseResolvOption(option string, d *config.DNS) {
	name, value, _ := strings.Cut(option, ":")
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return
	}
	switch name {
	case "ndots":
		d.Ndots = min(n, 15)
	case "timeout":
		d.Timeout = time.Duration(min(n, 30)) * time.Second
	case "attempts":
		d.Attempts = min(n, 5)
	}
}
