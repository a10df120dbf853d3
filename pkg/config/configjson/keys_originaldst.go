package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// originalDstJSON contains the cluster keys for redirected connections and the socket mark for
// kernel rules.
type originalDstJSON struct {
	OriginalDst     originalDstLBJSON `key:"original_dst_lb_config" doc:"Destination of clusters of type ORIGINAL_DST, if not the original destination of the client connection."`
	CleanupInterval time.Duration     `key:"cleanup_interval" doc:"ORIGINAL_DST: a destination that is unused for this time is removed, and its connections are closed." min:"1ms" default:"5s" example:"\"30s\""`
	Mark            document.Node     `key:"mark" doc:"SO_MARK of the sockets to the hosts, by which firewall and routing rules recognize Weft's traffic: 1 to 4294967295, or a string, which may be hexadecimal with \"0x\". Requires CAP_NET_ADMIN." accept:"number|string" example:"\"0x77\""`
}

type originalDstLBJSON struct {
	Node       document.Node `key:"."`
	UseHeader  bool          `key:"use_header" doc:"Send requests that have the header header_name to the ip:port in it instead of their original destination. Clients that can set the header can reach any address that Weft can reach: enable it for trusted clients only." example:"true"`
	HeaderName string        `key:"header_name" doc:"Name of the header; for RPC, of the attachment." default:"x-envoy-original-dst-host" example:"\"x-dst\""`
	Port       uint16        `key:"upstream_port_override" doc:"Port that replaces the port of the original destination. 0: no replacement." max:"65535" default:"0" example:"8080"`
}

// originalDstFilterJSON is the listener filter "original_dst", which has no settings.
type originalDstFilterJSON struct {
	Node document.Node `key:"."`
}
