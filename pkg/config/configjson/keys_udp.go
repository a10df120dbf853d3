package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// udpProxyJSON is the network filter "udp_proxy".
type udpProxyJSON struct {
	Node         document.Node       `key:"."`
	Cluster      string              `key:"cluster" doc:"Where the datagrams go. The hosts' health counts, and so do max_connections (sessions) and max_requests of the cluster." required:"true" example:"\"db\""`
	IdleTimeout  time.Duration       `key:"idle_timeout" doc:"How long a session, which is all between one source and its host, may stay without a datagram either way." min:"10ms" default:"60s" example:"\"10s\""`
	MaxSessions  int                 `key:"max_sessions" doc:"Sessions at a time; datagrams of other sources are dropped. Each takes a descriptor." unit:"sessions" min:"1" max:"1000000" default:"10000" example:"1000"`
	HashPolicies []udpHashPolicyJSON `key:"hash_policies" doc:"What LB_RINGHASH and LB_MAGLEV go by: one element."`
	StatPrefix   string              `key:"stat_prefix" doc:"Name of the filter in metrics." noeffect:"metrics are by listener and cluster" example:"\"dns\""`
}

type udpHashPolicyJSON struct {
	SourceIP bool `key:"source_ip" doc:"The IP address of the source." required:"true" example:"true"`
}
