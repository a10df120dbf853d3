package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// dnsJSON contains the DNS keys of a cluster.
type dnsJSON struct {
	DNSRefreshRate time.Duration  `key:"dns_refresh_rate" doc:"STRICT_DNS, LOGICAL_DNS: time between two resolutions of a name." min:"1ms" default:"5s" example:"\"30s\""`
	RespectTTL     bool           `key:"respect_dns_ttl" doc:"STRICT_DNS, LOGICAL_DNS: resolve a name again when the TTL of its DNS response expires, instead of after dns_refresh_rate; at least after 1 s, at most after 1 h." example:"true"`
	DNSFailure     dnsFailureJSON `key:"dns_failure_refresh_rate" doc:"STRICT_DNS, LOGICAL_DNS: wait after a failed resolution, which doubles with each further failure. Absent: from 500 ms up to dns_refresh_rate."`
	DNSJitter      time.Duration  `key:"dns_jitter" doc:"STRICT_DNS, LOGICAL_DNS: maximum random time added to each wait. 0s: each wait is shortened by up to a tenth instead." default:"0s" example:"\"1s\""`
	DNSFamily      string         `key:"dns_lookup_family" doc:"STRICT_DNS, LOGICAL_DNS: address families. AUTO and V4_PREFERRED: IPv6 only if there is no IPv4 address. ALL: both." enum:"AUTO|V4_ONLY|V6_ONLY|V4_PREFERRED|ALL" default:"AUTO" example:"\"V4_ONLY\""`
	DNSResolvers   document.Node  `key:"dns_resolvers" doc:"STRICT_DNS, LOGICAL_DNS: DNS servers, [\"10.0.0.2:53\"], or an object with servers, port, search, ndots, timeout and attempts. Absent: the system's." accept:"list|object" example:"[\"10.0.0.2:53\"]"`
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
	Base time.Duration `key:"base_interval" doc:"Wait after the first failure." min:"1ms" required:"true" example:"\"1s\""`
	Max  time.Duration `key:"max_interval" doc:"Maximum wait. Absent: ten times base_interval." min:"1ms" example:"\"10s\""`
}

// resolversJSON is the object form of dns_resolvers.
type resolversJSON struct {
	Node     document.Node `key:"."`
	Servers  []string      `key:"servers" doc:"IP addresses of the DNS servers. Absent: the system's." example:"[\"10.0.0.2\"]"`
	Port     string        `key:"port" doc:"Port of the DNS servers." default:"53" example:"\"5353\""`
	Search   []string      `key:"search" doc:"Search domains for short names. Absent: the system's." example:"[\"svc.cluster.local\"]"`
	Ndots    int           `key:"ndots" doc:"Number of dots from which a name is first tried without the search domains." unit:"dots" min:"1" max:"15" default:"1" example:"2"`
	Timeout  int           `key:"timeout" doc:"Timeout for the response of one DNS server. Absent: 3 if there are several, else 10." unit:"seconds" min:"1" max:"30" example:"2"`
	Attempts int           `key:"attempts" doc:"Number of attempts per DNS server." unit:"times" min:"1" max:"5" default:"1" example:"2"`
}
