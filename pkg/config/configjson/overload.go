package configjson

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// defaultMinScale is the fraction of the idle timeout that remains when reduce_timeouts takes full
// effect, if the action sets no timer.
const defaultMinScale = 0.1

// envoyConnectionsMonitor is Envoy's name of config.MonitorConnections.
const envoyConnectionsMonitor = "global_downstream_max_connections"

// Prefixes of Envoy's names of monitors and actions. Weft's names have no prefix.
const (
	monitorPrefix = "envoy.resource_monitors."
	actionPrefix  = "envoy.overload_actions."
)

// overloadJSON is the value of the key "overload_manager", with Envoy's structure.
type overloadJSON struct {
	Node     document.Node        `key:"."`
	Interval time.Duration        `key:"refresh_interval,refreshInterval" doc:"How often Weft reads the monitors." min:"10ms" default:"250ms" example:"\"1s\""`
	Monitors []monitorJSON        `key:"resource_monitors,resourceMonitors" doc:"Monitored resources. The pressure of a monitor is the used fraction of its limit; see docs/overload.md."`
	Actions  []overloadActionJSON `key:"actions" doc:"Overload actions and their triggers; see docs/overload.md."`

	LoadShed document.Node `key:"loadshed_points,loadshedPoints" doc:"Envoy's load shed points." accept:"list" unsupported:"loadshed_points" example:"[{\"name\": \"envoy.load_shed_points.http1_server_abort_dispatch\"}]"`
	Buffers  document.Node `key:"buffer_factory_config,bufferFactoryConfig" doc:"Envoy's buffer accounting." accept:"object" unsupported:"buffer_factory_config" example:"{\"minimum_account_to_track_power_of_two\": 20}"`
}

type monitorJSON struct {
	Node   document.Node     `key:"."`
	Name   string            `key:"name" doc:"Name of the monitor: fixed_heap, memory, cgroup_memory, file_descriptors, cpu_utilization or downstream_connections; or in Envoy's form, \"envoy.resource_monitors.fixed_heap\"." required:"true" example:"\"memory\""`
	Config monitorConfigJSON `key:"typed_config,typedConfig,config" doc:"Settings of the monitor."`
}

type monitorConfigJSON struct {
	Node           document.Node  `key:"."`
	Type           string         `key:"@type" doc:"Envoy's type of the settings. Ignored: the name of the monitor determines it." example:"\"type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig\""`
	MaxHeap        int64          `key:"max_heap_size_bytes,maxHeapSizeBytes" doc:"fixed_heap: limit of the Go heap. Required for fixed_heap." unit:"bytes" min:"1048576" allowstring:"true" example:"268435456"`
	MaxMemory      int64          `key:"max_memory_bytes,maxMemoryBytes" doc:"memory, cgroup_memory: limit of memory, if lower than the system's limit. 0: the system's limit." unit:"bytes" min:"0" allowstring:"true" default:"0" example:"268435456"`
	MaxDescriptors int64          `key:"max_file_descriptors,maxFileDescriptors" doc:"file_descriptors: limit of open file descriptors, if lower than RLIMIT_NOFILE. 0: RLIMIT_NOFILE." unit:"descriptors" min:"0" allowstring:"true" default:"0" example:"1000"`
	MaxConnections int64          `key:"max_active_downstream_connections,maxActiveDownstreamConnections" doc:"downstream_connections: maximum number of client connections; further connections are closed immediately. Required for downstream_connections." unit:"connections" min:"1" allowstring:"true" example:"10000"`
	Mode           config.CPUMode `key:"mode" doc:"cpu_utilization: which CPU time to measure; the result is smoothed over about 5 s. HOST: the CPU time of the machine, as a fraction of all CPUs. CONTAINER: the CPU time of the control group, as a fraction of its quota (without a quota, of the CPUs that Weft may use). PROCESS: the CPU time of Weft, as a fraction of the same limit." enum:"HOST|CONTAINER|PROCESS" default:"HOST" example:"\"CONTAINER\""`
}

type overloadActionJSON struct {
	Node     document.Node    `key:"."`
	Name     string           `key:"name" doc:"Name of the action: stop_accepting_requests, disable_http_keepalive, reduce_timeouts, reject_incoming_connections, stop_accepting_connections, shrink_idle or shrink_heap; or in Envoy's form, \"envoy.overload_actions.shrink_heap\"." required:"true" example:"\"stop_accepting_requests\""`
	Triggers []triggerJSON    `key:"triggers" doc:"Triggers of the action; the one that demands the strongest effect applies." required:"true"`
	Config   actionConfigJSON `key:"typed_config,typedConfig,config" doc:"Settings of the action."`
}

type triggerJSON struct {
	Node      document.Node `key:"."`
	Name      string        `key:"name" doc:"Name of the monitor." required:"true" example:"\"memory\""`
	Threshold *struct {
		Value float64 `key:"value" doc:"Pressure at which the action takes full effect; above 0. It stops after the pressure has been 3 % lower for 1 s." min:"0" max:"1" required:"true" example:"0.95"`
	} `key:"threshold" doc:"On/off trigger at one pressure."`
	Scaled *struct {
		Scaling    float64 `key:"scaling_threshold,scalingThreshold" doc:"Pressure at which the action begins; above 0 and below saturation_threshold." min:"0" max:"1" required:"true" example:"0.8"`
		Saturation float64 `key:"saturation_threshold,saturationThreshold" doc:"Pressure at which the action takes full effect." min:"0" max:"1" required:"true" example:"0.9"`
	} `key:"scaled" doc:"Proportional trigger between two pressures."`
}

type actionConfigJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"@type" doc:"Envoy's type of the settings. Ignored: the name of the action determines it." example:"\"type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig\""`
	Timers []timerJSON   `key:"timer_scale_factors,timerScaleFactors" doc:"reduce_timeouts: reduced values of timeouts when the action takes full effect. Absent: a tenth of the idle timeout of client connections."`
}

type timerJSON struct {
	Node       document.Node `key:"."`
	Timer      string        `key:"timer" doc:"Name of the timer: HTTP_DOWNSTREAM_CONNECTION_IDLE is connection_idle_timeout of client connections." enum:"HTTP_DOWNSTREAM_CONNECTION_IDLE" required:"true" example:"\"HTTP_DOWNSTREAM_CONNECTION_IDLE\""`
	MinTimeout time.Duration `key:"min_timeout,minTimeout" doc:"Reduced timeout, as a duration." example:"\"2s\""`
	MinScale   *struct {
		Value float64 `key:"value" doc:"Percentage of the configured timeout." unit:"percent" min:"0" max:"100" required:"true" example:"20"`
	} `key:"min_scale,minScale" doc:"Reduced timeout, as a percentage."`
}

func monitorNames() []config.MonitorName {
	return []config.MonitorName{
		config.MonitorHeap, config.MonitorMemory, config.MonitorCgroup, config.MonitorDescriptors,
		config.MonitorCPU, config.MonitorConnections,
	}
}

func actionNames() []config.ActionName {
	return []config.ActionName{
		config.ActionStopAccepting, config.ActionRejectConnections, config.ActionStopRequests, config.ActionDisableKeepAlive,
		config.ActionReduceTimeouts, config.ActionShrinkIdle, config.ActionShrinkHeap,
	}
}

// overloadReader reads the key "overload_manager", at the top level or in the server.
type overloadReader struct {
	*input
	out *config.Overload // nil: absent
}

// read converts an overload_manager, at the top level or in the server. node is its JSON value, for
// diagnostics. j is the decoded value, or nil if the key is absent.
func (r *overloadReader) read(node document.Node, j *overloadJSON) {
	if j == nil {
		return
	}
	if r.out != nil {
		r.report.Errorf(node, "duplicate overload_manager: set it at the top level or in the server")
		return
	}
	o := &config.Overload{Interval: j.Interval}
	for i := range j.Monitors {
		r.readMonitor(o, &j.Monitors[i])
	}
	for i := range j.Actions {
		r.readAction(o, &j.Actions[i])
	}
	if len(o.Monitors) == 0 && len(j.Monitors) == 0 {
		r.report.Warnf(node, "overload_manager has no effect without resource_monitors")
	}
	r.out = o
}

func (r *overloadReader) readMonitor(o *config.Overload, j *monitorJSON) {
	node := j.Node.Get("name").Or(j.Node)
	name, prefixed := strings.CutPrefix(j.Name, monitorPrefix)
	if name == envoyConnectionsMonitor && prefixed {
		name = string(config.MonitorConnections)
	}
	if name == "" {
		return // already reported
	}
	monitor, ok := choose(r.report, node, "resource monitor", name, monitorNames(), []string{"injected_resource"})
	if !ok {
		return
	}
	if slices.ContainsFunc(o.Monitors, func(m config.Monitor) bool { return m.Name == monitor }) {
		r.report.Errorf(node, "duplicate resource monitor %q", monitor)
		return
	}
	m := config.Monitor{Name: monitor}
	setting := ""
	switch monitor {
	case config.MonitorHeap:
		setting, m.Max = "max_heap_size_bytes", j.Config.MaxHeap
	case config.MonitorMemory, config.MonitorCgroup:
		setting, m.Max = "max_memory_bytes", j.Config.MaxMemory
	case config.MonitorDescriptors:
		setting, m.Max = "max_file_descriptors", j.Config.MaxDescriptors
	case config.MonitorConnections:
		setting, m.Max = "max_active_downstream_connections", j.Config.MaxConnections
	case config.MonitorCPU:
		setting, m.CPU = "mode", j.Config.Mode
	}
	if m.Max == 0 && (monitor == config.MonitorHeap || monitor == config.MonitorConnections) && !j.Config.Node.Get(setting, lowerCamel(setting)).Exists() {
		r.report.Errorf(j.Config.Node.Or(j.Node), "the resource monitor %q requires typed_config.%s", monitor, setting)
	}
	r.warnUnused(j.Config.Node, setting, "the resource monitor", string(monitor))
	o.Monitors = append(o.Monitors, m)
}

// warnUnused warns about each enabled key in settings other than usedKey and @type.
func (r *overloadReader) warnUnused(settings document.Node, usedKey, label, name string) {
	for member := range settings.All() {
		if key := member.Key(); key != usedKey && key != lowerCamel(usedKey) && key != "@type" && !member.IsDisabled() {
			r.report.Warnf(member, "%s has no effect on %s %q", key, label, name)
		}
	}
}

func (r *overloadReader) readAction(o *config.Overload, j *overloadActionJSON) {
	node := j.Node.Get("name").Or(j.Node)
	name := strings.TrimPrefix(j.Name, actionPrefix)
	if name == "" {
		return // already reported
	}
	action, ok := choose(r.report, node, "overload action", name, actionNames(), []string{"reset_high_memory_stream"})
	if !ok {
		return
	}
	if slices.ContainsFunc(o.Actions, func(a config.OverloadAction) bool { return a.Name == action }) {
		r.report.Errorf(node, "duplicate overload action %q", action)
		return
	}
	a := config.OverloadAction{Name: action}
	for i := range j.Triggers {
		if t, ok := r.readTrigger(o, &j.Triggers[i]); ok {
			a.Triggers = append(a.Triggers, t)
		}
	}
	if list := j.Node.Get("triggers"); list.Kind() == document.Array && len(j.Triggers) == 0 {
		r.report.Errorf(list, "the list is empty: the overload action %q requires a trigger", action)
	}
	usedKey := ""
	if action == config.ActionReduceTimeouts {
		a.MinScale, usedKey = defaultMinScale, "timer_scale_factors"
		r.readTimers(&a, j.Config.Timers)
	}
	r.warnUnused(j.Config.Node, usedKey, "the overload action", string(action))
	o.Actions = append(o.Actions, a)
}

// readTimers converts the timers of reduce_timeouts.
func (r *overloadReader) readTimers(a *config.OverloadAction, timers []timerJSON) {
	for i := range timers {
		t := &timers[i]
		if i > 0 {
			r.report.Errorf(t.Node, "duplicate timer %q", t.Timer)
			return
		}
		a.MinTimeout = t.MinTimeout
		if t.MinScale != nil {
			a.MinScale = t.MinScale.Value / 100
		}
		if (t.MinScale != nil) == (t.MinTimeout > 0) {
			r.report.Errorf(t.Node, "expected exactly one of min_timeout and min_scale")
		}
	}
}

func (r *overloadReader) readTrigger(o *config.Overload, j *triggerJSON) (config.Trigger, bool) {
	name, prefixed := strings.CutPrefix(j.Name, monitorPrefix)
	if name == envoyConnectionsMonitor && prefixed {
		name = string(config.MonitorConnections)
	}
	t := config.Trigger{Monitor: config.MonitorName(name)}
	node := j.Node.Get("name").Or(j.Node)
	if name != "" && !slices.ContainsFunc(o.Monitors, func(m config.Monitor) bool { return m.Name == t.Monitor }) {
		r.report.Errorf(node, "unknown resource monitor %q: it is not in resource_monitors", name)
		return t, false
	}
	switch {
	case (j.Threshold != nil) == (j.Scaled != nil):
		r.report.Errorf(j.Node, "expected exactly one of threshold and scaled")
		return t, false
	case j.Threshold != nil:
		t.From, t.To = j.Threshold.Value, j.Threshold.Value
		node = j.Node.Get("threshold")
	default:
		t.From, t.To = j.Scaled.Scaling, j.Scaled.Saturation
		node = j.Node.Get("scaled")
	}
	switch {
	case j.Scaled != nil && (t.From <= 0 || t.From >= t.To):
		r.report.Errorf(node, "scaling_threshold must be above 0 and below saturation_threshold")
		return t, false
	case t.From <= 0:
		r.report.Errorf(node, "value must be above 0")
		return t, false
	}
	return t, name != ""
}
