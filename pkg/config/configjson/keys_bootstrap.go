package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

type xdsCacheJSON struct {
	Node   document.Node `key:"."`
	Path   string        `key:"path" doc:"Directory that only this Weft process uses. Only its owner can read it. Weft does not cache secrets or resources that contain a private key." required:"true" example:"\"/var/lib/weft/xds\""`
	MaxAge time.Duration `key:"max_age" doc:"Maximum age of cached resources; older ones are not used. 0: no limit." default:"0s" example:"\"24h\""`
}

type xdsStatusJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address" doc:"Loopback ip:port, or the path of a unix socket. Clients that can connect to it can read the configuration, without its secrets." required:"true" example:"\"127.0.0.1:34902\""`
}
