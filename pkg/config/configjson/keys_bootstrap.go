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
