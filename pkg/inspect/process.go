package inspect

import (
	"encoding/json"
	"fmt"
	"time"
)

// State is the phase of the process.
type State string

// States of the process.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Draining State = "draining"
	Alive    State = "alive" // the response of /healthz in every phase
)

// envoyState returns the name and the number of s in envoy.admin.v3.ServerInfo.State.
func (s State) envoyState() (name string, number int) {
	switch s {
	case Ready, Alive:
		return "LIVE", 0
	case Draining:
		return "DRAINING", 1
	case Starting:
	}
	return "PRE_INITIALIZING", 2
}

// Status is the response body of /ready, /healthz and /drain.
type Status struct {
	State State `json:"state"`
}

// Level is the response body of /logging.
type Level struct {
	Level string `json:"level"`
}

// Version identifies the build. It is the response body of /version.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// Build identifies the binary, as weft version prints it.
type Build struct {
	Arch     string `json:"arch"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Revision string `json:"revision"`
	Version  string `json:"version"`
}

// Process describes the process.
type Process struct {
	Version     Version
	State       State
	Uptime      time.Duration
	ConfigPath  string          // as given on the command line
	Concurrency int             // number of processors in use
	Node        json.RawMessage // node of the Envoy bootstrap; nil: none
}

// ServerInfo describes the process as Envoy's /server_info does.
type ServerInfo struct {
	Version           string `json:"version"` // "revision/version/edition/type/TLS library"
	State             string `json:"state"`
	Uptime            string `json:"uptime_current_epoch"` // such as "12s"
	UptimeAllEpochs   string `json:"uptime_all_epochs"`
	HotRestartVersion string `json:"hot_restart_version"`

	CommandLine CommandLine     `json:"command_line_options"`
	Node        json.RawMessage `json:"node"`
}

// CommandLine holds the command-line options that Envoy has, too.
type CommandLine struct {
	Concurrency int    `json:"concurrency"`
	ConfigPath  string `json:"config_path"`
}

// hotRestartVersion is the version of Envoy's hot restart, which Weft does not support.
const hotRestartVersion = "disabled"

// NewServerInfo returns the view of p in the format of Envoy's /server_info.
func NewServerInfo(p Process) ServerInfo {
	state, _ := p.State.envoyState()
	uptime := fmt.Sprintf("%ds", int64(p.Uptime.Seconds()))
	s := ServerInfo{
		Version: p.Version.Revision + "/" + p.Version.Version + "/weft/RELEASE/" + p.Version.Go,
		State:   state, Uptime: uptime, UptimeAllEpochs: uptime, HotRestartVersion: hotRestartVersion,
		CommandLine: CommandLine{p.Concurrency, p.ConfigPath},
		Node:        p.Node,
	}
	if len(s.Node) == 0 {
		s.Node = json.RawMessage("{}")
	}
	return s
}
