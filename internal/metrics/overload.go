package metrics

// Label keys of the overload manager.
const (
	LabelMonitor = "monitor" // monitored resource
	LabelAction  = "action"  // overload action
)

// Metrics of the overload manager. They exist only if one is configured.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// OverloadPressure is the used fraction of a resource.
	OverloadPressure = Metric{"weft_overload_pressure", "Used fraction of the resource of the monitor.",
		KindGauge, []string{LabelMonitor}}
	// OverloadFailures counts failed reads of a monitor.
	OverloadFailures = Metric{"weft_overload_monitor_failures_total", "Failed reads of the monitor. Its pressure keeps the previous value.",
		KindCounter, []string{LabelMonitor}}
	// OverloadValue is the strength of an action, from 0 to 1.
	OverloadValue = Metric{"weft_overload_action_value", "Strength of the action, from 0 (inactive) to 1 (full).",
		KindGauge, []string{LabelAction}}
	// OverloadEffects counts the effects of actions, such as rejected requests.
	OverloadEffects = Metric{"weft_overload_action_effects_total", "Effects of the action: requests rejected, responses that closed their connection, connections closed or rejected, pauses of accepting, or releases of memory.",
		KindCounter, []string{LabelAction}}
)

func overloadMetrics() []Metric {
	return []Metric{OverloadPressure, OverloadFailures, OverloadValue, OverloadEffects}
}
