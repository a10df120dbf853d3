package inspect

import (
	"fmt"
	"net/http"

	"github.com/weft-proxy/weft/internal/admin"
)

// UnreadyListener is a listener that is not active yet, or not in its last version.
type UnreadyListener struct {
	Name    string
	Version uint64   // identifies the version
	Targets []string // what it waits for, under the names of Envoy's init targets
}

// EnvoyInitDump is the response body of /init_dump. It has the format of
// envoy.admin.v3.UnreadyTargetsDumps.
type EnvoyInitDump struct {
	Dumps []EnvoyUnreadyTargets `json:"unready_targets_dumps,omitempty"`
}

// EnvoyUnreadyTargets are the targets of one init manager.
type EnvoyUnreadyTargets struct {
	Name    string   `json:"name"`
	Targets []string `json:"target_names,omitempty"`
}

// NewEnvoyInitDump returns listeners in Envoy's format.
func NewEnvoyInitDump(listeners []UnreadyListener) (out EnvoyInitDump) {
	for _, l := range listeners {
		name := fmt.Sprintf("init manager Listener-local-init-manager %s %d", l.Name, l.Version)
		out.Dumps = append(out.Dumps, EnvoyUnreadyTargets{name, l.Targets})
	}
	return out
}

// initDump serves /init_dump. As in Envoy, any mask other than listener selects nothing.
func (s *Sources) initDump(w http.ResponseWriter, r *http.Request) {
	var listeners []UnreadyListener
	if mask := r.URL.Query().Get("mask"); mask == "" || mask == "listener" {
		listeners = s.UnreadyListeners()
	}
	admin.WriteJSON(w, http.StatusOK, NewEnvoyInitDump(listeners))
}
