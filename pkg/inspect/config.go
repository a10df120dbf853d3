package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo"
)

// ConfigDump is the response body of /config_dump: the active configuration.
type ConfigDump struct {
	Source  string    `json:"source"`  // origin of the configuration: a file, or standard input
	Hash    string    `json:"hash"`    // hash of Config; secrets do not affect it
	Applied time.Time `json:"applied"` // when the configuration became active
	// Rejected says why the last reload was rejected; null: the configuration is the newest one.
	Rejected *Rejection `json:"rejected"`
	// Config is the configuration with its secrets redacted.
	Config json.RawMessage `json:"config"`
	// Dubbo shows the services that the application publishes and subscribes to; nil: Dubbo services
	// are disabled.
	Dubbo *dubbo.Status `json:"dubbo,omitempty"`
	// Configs holds the resources that control planes sent, as messages of envoy.admin.v3 in JSON;
	// nil: there is no control plane.
	Configs []json.RawMessage `json:"configs,omitempty"`
}

// Resources are the resources of control planes that ?resource= of /config_dump selects.
type Resources struct {
	Configs []json.RawMessage `json:"configs"` // see ConfigDump.Configs
}

// Rejection says why a configuration was rejected.
type Rejection struct {
	At      time.Time `json:"at"`
	Reasons []string  `json:"reasons"`
}

// Check is the result of checking a configuration file, as weft check prints it.
type Check struct {
	File        string    `json:"file"`
	OK          bool      `json:"ok"` // the file has no errors and, with --strict, no warnings
	Listeners   int       `json:"listeners"`
	RouteTables int       `json:"route_tables"`
	Clusters    int       `json:"clusters"`
	Problems    []Problem `json:"problems"`
}

// Problem is an error or a warning about a configuration file.
type Problem struct {
	Severity string `json:"severity"` // "error" or "warning"
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`   // from 1; missing: the problem concerns the whole file
	Column   int    `json:"column,omitempty"` // from 1, in characters
	Path     string `json:"path,omitempty"`   // such as servers[0].listeners[2].address
	Message  string `json:"message"`
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

// Text returns the result for people, as weft reload prints it.
func (r *Reload) Text() string {
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintln(&b, p)
	}
	for _, key := range r.Restart {
		fmt.Fprintf(&b, "the change of %s takes effect after a restart\n", key)
	}
	if r.Applied {
		fmt.Fprintf(&b, "%s: applied\n", r.Source)
	} else {
		fmt.Fprintf(&b, "%s: rejected, the previous configuration stays active\n", r.Source)
	}
	return b.String()
}
