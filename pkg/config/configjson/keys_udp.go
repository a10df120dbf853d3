package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// udpProxyJSON is the network filter "udp_proxy".
type udpProxyJSON struct {
	Node         document.Node       `key:"."`
	Cluster      string              `key:"cluster" doc:"Target cluster of the datagrams. The health of its hosts and its limits max_connections (sessions) and max_requests apply." required:"true" example:"\"db\""`
	IdleTimeout  time.Duration       `key:"idle_timeout" doc:"Maximum time that a session may stay without a datagram in either direction. A session is the traffic between one source and its host." min:"10ms" default:"60s" example:"\"10s\""`
	MaxSessions  int                 `key:"max_sessions" doc:"Maximum number of concurrent sessions; datagrams of further sources are dropped. Each session uses a file descriptor." unit:"sessions" min:"1" max:"1000000" default:"10000" example:"1000"`
	HashPolicies []udpHashPolicyJSON `key:"hash_policies" doc:"Inputs of the hash for LB_RINGHASH and LB_MAGLEV: one element."`
	StatPrefix   string              `key:"stat_prefix" doc:"Prefix of the filter's metrics." noeffect:"metrics are labeled by listener and cluster" example:"\"dns\""`
}

type udpHashPolicyJSON struct {
	SourceIP bool `key:"source_ip" doc:"Hash the source IP address." required:"true" example:"true"`
}
