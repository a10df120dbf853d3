package inspect

import (
	"encoding/json"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo"
)

// ConfigDump is the active configuration, the content of /config_dump.
type ConfigDump struct {
	Source  string    `json:"source"`  // file or server that it came from
	Hash    string    `json:"hash"`    // of the content
	Applied time.Time `json:"applied"` // when it became active
	// Rejected is the newest configuration if it was rejected, else null.
	Rejected *Rejection `json:"rejected"`
	// Config is the configuration with its secrets redacted.
	Config json.RawMessage `json:"config"`
	// Dubbo shows the services that the application publishes and subscribes to; nil: none.
	Dubbo *dubbo.Status `json:"dubbo,omitempty"`
	// Configs holds the resources that control planes sent, as messages of envoy.admin.v3 in JSON;
	// nil: there is no control plane.
	Configs []json.RawMessage `json:"configs,omitempty"`
}

// Resources are the resources of control planes that ?resource= of /config_dump selects.
type Resources struct {
	Configs []json.RawMessage `json:"configs"` // as in ConfigDump
}

// Rejection says why a configuration was rejected.
type Rejection struct {
	At      time.Time `json:"at"`
	Reasons []string  `json:"reasons"`
}

// Reload is the result of reading the configuration again.
type Reload struct {
	Source  string `json:"source"`
	Applied bool   `json:"applied"` // false: the previous configuration stays active
	// Problems holds the reasons for a rejection, and warnings.
	Problems []string `json:"problems,omitempty"`
	// Restart lists the changed keys that take effect after a restart.
	Restart []string `json:"restart,omitempty"`
}
