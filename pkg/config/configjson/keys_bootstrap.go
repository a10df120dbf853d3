package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

type xdsCacheJSON struct {
	Node   document.Node `key:"."`
	Path   string        `key:"path" doc:"Directory, of this Weft alone. Nobody else may read it; secrets, and resources that hold a private key, are not kept." required:"true" example:"\"/var/lib/weft/xds\""`
	MaxAge time.Duration `key:"max_age" doc:"How old what is kept may be when it is used; 0: of any age." default:"0s" example:"\"24h\""`
}

type xdsStatusJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address" doc:"ip:port of a loopback address, or the path of a unix socket: who reaches it reads the configuration, without its secrets." required:"true" example:"\"127.0.0.1:34902\""`
}
