package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// dnsJSON contains the DNS keys of a cluster.
type dnsJSON struct {
	DNSRefreshRate time.Duration  `key:"dns_refresh_rate" doc:"STRICT_DNS, LOGICAL_DNS: how often names are resolved." min:"1ms" default:"5s" example:"\"30s\""`
	RespectTTL     bool           `key:"respect_dns_ttl" doc:"STRICT_DNS, LOGICAL_DNS: resolve when the answer's time to live ends instead, at least after a second, at most after an hour." example:"true"`
	DNSFailure     dnsFailureJSON `key:"dns_failure_refresh_rate" doc:"STRICT_DNS, LOGICAL_DNS: when a name that could not be resolved is tried again, twice as long after each failure; absent: after half a second, up to dns_refresh_rate."`
	DNSJitter      time.Duration  `key:"dns_jitter" doc:"STRICT_DNS, LOGICAL_DNS: each wait is longer by up to so much, at random. 0s: shorter by up to a tenth." default:"0s" example:"\"1s\""`
	DNSFamily      string         `key:"dns_lookup_family" doc:"STRICT_DNS, LOGICAL_DNS: kinds of addresses. AUTO and V4_PREFERRED: IPv6 only if there is no IPv4; ALL: both." enum:"AUTO|V4_ONLY|V6_ONLY|V4_PREFERRED|ALL" default:"AUTO" example:"\"V4_ONLY\""`
	DNSResolvers   document.Node  `key:"dns_resolvers" doc:"STRICT_DNS, LOGICAL_DNS: name servers, [\"10.0.0.2:53\"], or an object with servers, port, search, ndots, timeout and attempts; absent: the system's." accept:"list|object" example:"[\"10.0.0.2:53\"]"`
	ResolverFile   string         `key:"dns_resolver_file" doc:"STRICT_DNS, LOGICAL_DNS: file in the form of resolv.conf in the place of dns_resolvers; read when the configuration is." example:"\"resolv.conf\""`
	ResolverPort   string         `key:"dns_resolver_port" doc:"STRICT_DNS, LOGICAL_DNS: port of the name servers of dns_resolver_file; absent: 53." example:"\"5353\""`
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
	Base time.Duration `key:"base_interval" doc:"After the first failure." min:"1ms" required:"true" example:"\"1s\""`
	Max  time.Duration `key:"max_interval" doc:"At most; absent: ten times base_interval." min:"1ms" example:"\"10s\""`
}

// resolversJSON is the object form of dns_resolvers.
type resolversJSON struct {
	Node     document.Node `key:"."`
	Servers  []string      `key:"servers" doc:"IP addresses of name servers; absent: the system's." example:"[\"10.0.0.2\"]"`
	Port     string        `key:"port" doc:"Their port." default:"53" example:"\"5353\""`
	Search   []string      `key:"search" doc:"Domains that short names are completed with; absent: as the system does." example:"[\"svc.cluster.local\"]"`
	Ndots    int           `key:"ndots" doc:"Dots that a name has to have to be tried as it stands first, with search." unit:"dots" min:"1" max:"15" default:"1" example:"2"`
	Timeout  int           `key:"timeout" doc:"How long one server may take for an answer; absent: 3 if there are several." unit:"seconds" min:"1" max:"30" example:"2"`
	Attempts int           `key:"attempts" doc:"Times that each server is asked." unit:"times" min:"1" max:"5" default:"1" example:"2"`
}
