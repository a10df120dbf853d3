package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// originalDstJSON contains the cluster keys for redirected connections and the socket mark for
// kernel rules.
type originalDstJSON struct {
	OriginalDst     originalDstLBJSON `key:"original_dst_lb_config" doc:"Where the clusters of type ORIGINAL_DST send to, if not to where the caller was going."`
	CleanupInterval time.Duration     `key:"cleanup_interval" doc:"ORIGINAL_DST: a destination that nobody wants for so long is forgotten, and its connections are closed." min:"1ms" default:"5s" example:"\"30s\""`
	Mark            document.Node     `key:"mark" doc:"Mark of the sockets to the hosts (SO_MARK), by which rules of the kernel can tell what Weft sends: 1 to 4294967295, or a string that may be \"0x\" and hexadecimal. It needs CAP_NET_ADMIN." accept:"number|string" example:"\"0x77\""`
}

type originalDstLBJSON struct {
	Node       document.Node `key:"."`
	UseHeader  bool          `key:"use_header" doc:"Send a request that has the field header_name to the ip:port that it says, whatever its connection was for. Whoever may set the field chooses any address that Weft can reach: only for callers that are trusted." example:"true"`
	HeaderName string        `key:"header_name" doc:"The field; an attachment, of RPC." default:"x-envoy-original-dst-host" example:"\"x-dst\""`
	Port       uint16        `key:"upstream_port_override" doc:"Port in the place of the destination's. 0: that." max:"65535" default:"0" example:"8080"`
}

// originalDstFilterJSON is the listener filter "original_dst", which has no settings.
type originalDstFilterJSON struct {
	Node document.Node `key:"."`
}
