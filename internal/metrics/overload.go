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
	OverloadPressure = Metric{"weft_overload_pressure", "What is used of what the monitor watches, as a share of what there is.",
		KindGauge, []string{LabelMonitor}}
	// OverloadFailures counts failed reads of a monitor.
	OverloadFailures = Metric{"weft_overload_monitor_failures_total", "Times that a monitor could not be read; its pressure stayed as it was.",
		KindCounter, []string{LabelMonitor}}
	// OverloadValue is the strength of an action, from 0 to 1.
	OverloadValue = Metric{"weft_overload_action_value", "How far the action goes: 0 for nothing, 1 for all that it can.",
		KindGauge, []string{LabelAction}}
	// OverloadDone counts what actions did.
	OverloadDone = Metric{"weft_overload_action_done_total", "What the action has done: requests refused, answers that ended their connection, connections ended or closed at once, times that accepting stopped or memory was given back.",
		KindCounter, []string{LabelAction}}
)

func overloadMetrics() []Metric {
	return []Metric{OverloadPressure, OverloadFailures, OverloadValue, OverloadDone}
}
