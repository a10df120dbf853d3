package configjson

import (
	"math"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// Prefixes of Envoy's names, which Weft's names do not have.
const (
	monitorPrefix = "envoy.resource_monitors."
	actionPrefix  = "envoy.overload_actions."
)

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

// envoyConnectionsMonitor is Envoy's name of config.MonitorConnections.
const envoyConnectionsMonitor = "global_downstream_max_connections"

// readOverload converts the overload_manager of the file or of its server. j is nil if it is
// absent; at is its node.
func (r *reader) readOverload(at document.Node, j *overloadJSON) {
	if j == nil {
		return
	}
	if r.snapshot.Overload != nil {
		r.report.Errorf(at, "duplicate overload_manager: set it at the top level or in the server")
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
		r.report.Warnf(at, "overload_manager has no effect without resource_monitors")
	}
	r.snapshot.Overload = o
}

func (r *reader) readMonitor(o *config.Overload, j *monitorJSON) {
	at := j.Node.Get("name").Or(j.Node)
	name, prefixed := strings.CutPrefix(j.Name, monitorPrefix)
	if name == envoyConnectionsMonitor && prefixed {
		name = string(config.MonitorConnections)
	}
	if name == "" {
		return // reported
	}
	kind, ok := choose(r.report, at, "resource monitor", name, monitorNames(), []string{"injected_resource"})
	if !ok {
		return
	}
	if slices.ContainsFunc(o.Monitors, func(m config.Monitor) bool { return m.Name == kind }) {
		r.report.Errorf(at, "duplicate resource monitor %q", kind)
		return
	}
	m := config.Monitor{Name: kind}
	setting := ""
	switch kind {
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
	if m.Max == 0 && (kind == config.MonitorHeap || kind == config.MonitorConnections) && !j.Config.Node.Get(setting, lowerCamel(setting)).Exists() {
		r.report.Errorf(j.Config.Node.Or(j.Node), "the resource monitor %q requires typed_config.%s", kind, setting)
	}
	r.warnUnused(j.Config.Node, setting, "the resource monitor", string(kind))
	o.Monitors = append(o.Monitors, m)
}

// warnUnused warns of all settings other than used.
func (r *reader) warnUnused(settings document.Node, used, what, name string) {
	for member := range settings.All() {
		if key := member.Key(); key != used && key != lowerCamel(used) && key != "@type" && !member.IsDisabled() {
			r.report.Warnf(member, "%s has no effect on %s %q", key, what, name)
		}
	}
}

// minTimerScale is the default fraction of an idle timeout that reduce_timeouts keeps.
const minTimerScale = 0.1

func (r *reader) readAction(o *config.Overload, j *overloadActionJSON) {
	at := j.Node.Get("name").Or(j.Node)
	name := strings.TrimPrefix(j.Name, actionPrefix)
	if name == "" {
		return // reported
	}
	kind, ok := choose(r.report, at, "overload action", name, actionNames(), []string{"reset_high_memory_stream"})
	if !ok {
		return
	}
	if slices.ContainsFunc(o.Actions, func(a config.OverloadAction) bool { return a.Name == kind }) {
		r.report.Errorf(at, "duplicate overload action %q", kind)
		return
	}
	a := config.OverloadAction{Name: kind}
	for i := range j.Triggers {
		if t, ok := r.trigger(o, &j.Triggers[i]); ok {
			a.Triggers = append(a.Triggers, t)
		}
	}
	if list := j.Node.Get("triggers"); list.Kind() == document.Array && len(j.Triggers) == 0 {
		r.report.Errorf(list, "the list is empty: the overload action %q requires a trigger", kind)
	}
	used := ""
	if kind == config.ActionReduceTimeouts {
		a.MinScale, used = minTimerScale, "timer_scale_factors"
		r.readTimers(&a, j.Config.Timers)
	}
	r.warnUnused(j.Config.Node, used, "the overload action", string(kind))
	o.Actions = append(o.Actions, a)
}

// readTimers converts the timers of reduce_timeouts.
func (r *reader) readTimers(a *config.OverloadAction, timers []timerJSON) {
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

func (r *reader) trigger(o *config.Overload, j *triggerJSON) (config.Trigger, bool) {
	name, prefixed := strings.CutPrefix(j.Name, monitorPrefix)
	if name == envoyConnectionsMonitor && prefixed {
		name = string(config.MonitorConnections)
	}
	t := config.Trigger{Monitor: config.MonitorName(name)}
	at := j.Node.Get("name").Or(j.Node)
	if name != "" && !slices.ContainsFunc(o.Monitors, func(m config.Monitor) bool { return m.Name == t.Monitor }) {
		r.report.Errorf(at, "unknown resource monitor %q: it is not in resource_monitors", name)
		return t, false
	}
	switch {
	case (j.Threshold != nil) == (j.Scaled != nil):
		r.report.Errorf(j.Node, "expected exactly one of threshold and scaled")
		return t, false
	case j.Threshold != nil:
		t.From, t.To = j.Threshold.Value, j.Threshold.Value
		at = j.Node.Get("threshold")
	default:
		t.From, t.To = j.Scaled.Scaling, j.Scaled.Saturation
		at = j.Node.Get("scaled")
	}
	if t.From <= 0 || j.Scaled != nil && t.From >= t.To {
		r.report.Errorf(at, "expected a threshold above 0, and a saturation_threshold above scaling_threshold")
		return t, false
	}
	return t, name != ""
}

// acceptRate converts a listener's accept_rate.
func acceptRate(j *acceptRateJSON) config.AcceptRate {
	if j == nil || j.PerSecond <= 0 {
		return config.AcceptRate{}
	}
	out := config.AcceptRate{PerSecond: j.PerSecond, Burst: j.Burst}
	if out.Burst == 0 {
		out.Burst = max(1, int(math.Ceil(j.PerSecond)))
	}
	return out
}
